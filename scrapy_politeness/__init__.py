"""Makes any Scrapy crawl polite and, within politeness, as fast as each site allows."""

from scrapy_politeness.addon import Addon
from scrapy_politeness.extension import PolitenessExtension
from scrapy_politeness.limiter import RateLimiter
from scrapy_politeness.middleware import PolitenessMiddleware
from scrapy_politeness.pqueue import PolitePriorityQueue
from scrapy_politeness.rescheduling import RescheduleMiddleware

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
