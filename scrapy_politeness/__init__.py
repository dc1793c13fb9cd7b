"""Makes any Scrapy crawl polite and, within politeness, as fast as each site allows."""

from scrapy_politeness.components.addon import Addon
from scrapy_politeness.components.extension import PolitenessExtension
from scrapy_politeness.components.middleware import PolitenessMiddleware
from scrapy_politeness.components.priority_queue import PolitePriorityQueue
from scrapy_politeness.components.rescheduling import RescheduleMiddleware
from scrapy_politeness.scheduling.rate_limiter import RateLimiter

__version__ = "0.1.0"

__all__ = [
    "Addon",
    "PolitePriorityQueue",
    "PolitenessExtension",
    "PolitenessMiddleware",
    "RateLimiter",
    "RescheduleMiddleware",
    "__version__",
]
