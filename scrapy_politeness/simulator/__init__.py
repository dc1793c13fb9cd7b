"""Clients against model servers on virtual time: an hour of crawling in a moment.

::

    slot = Slot("example.org", Bounds(), spacing=0, concurrency=8)
    report = simulate([slot], RetryAfter(TokenBucket(rate=4, burst=20)), seed=1)
    print(report.efficiency, report.refusals_per_100)
"""

from scrapy_politeness.core.failing_page import Persistence
from scrapy_politeness.simulator.crawl import Abandoned
from scrapy_politeness.simulator.headers import (
    QuotaHeaders,
    QuotaOnPages,
    RetryAfter,
    always,
    true_wait,
)
from scrapy_politeness.simulator.latencies import Latencies, lognormal, mixed, runs
from scrapy_politeness.simulator.queueing import ConnectionLimit, QueueingServer
from scrapy_politeness.simulator.results import Pages, Recovery, Results
from scrapy_politeness.simulator.run import Law, Network, simulate
from scrapy_politeness.simulator.servers import (
    Balancer,
    FixedWindow,
    Server,
    SlidingWindow,
    TokenBucket,
)
from scrapy_politeness.simulator.steps import Steps, day_and_night
from scrapy_politeness.simulator.weather import (
    BrokenPages,
    Downtime,
    Healthy,
    Noise,
    Slots,
    error,
    refused,
    unanswered,
)

__all__ = [
    "Abandoned",
    "Balancer",
    "BrokenPages",
    "ConnectionLimit",
    "Downtime",
    "FixedWindow",
    "Healthy",
    "Latencies",
    "Law",
    "Network",
    "Noise",
    "Pages",
    "Persistence",
    "QueueingServer",
    "QuotaHeaders",
    "QuotaOnPages",
    "Recovery",
    "Results",
    "RetryAfter",
    "Server",
    "SlidingWindow",
    "Slots",
    "Steps",
    "TokenBucket",
    "always",
    "day_and_night",
    "error",
    "lognormal",
    "mixed",
    "refused",
    "runs",
    "simulate",
    "true_wait",
    "unanswered",
]
