"""Clients against model servers on virtual time: an hour of crawling in a moment.

::

    scope = Scope("example.org", Bounds(), spacing=0, concurrency=8)
    report = simulate([scope], RetryAfter(TokenBucket(rate=4, burst=20)), seed=1)
    print(report.efficiency, report.refusals_per_100)
"""

from scrapy_politeness.core.failing import Persistence
from scrapy_politeness.simulator.busy import ConnectionLimit, QueueingServer
from scrapy_politeness.simulator.crawl import GivenUp
from scrapy_politeness.simulator.latencies import Latencies, lognormal, mixed, runs
from scrapy_politeness.simulator.report import Pages, Recovery, Report
from scrapy_politeness.simulator.run import Law, Network, simulate
from scrapy_politeness.simulator.servers import (
    Balancer,
    FixedWindow,
    Server,
    SlidingWindow,
    TokenBucket,
)
from scrapy_politeness.simulator.steps import Steps, day_and_night
from scrapy_politeness.simulator.voices import (
    QuotaHeaders,
    QuotaOnPages,
    RetryAfter,
    always,
    true_wait,
)
from scrapy_politeness.simulator.weather import (
    BrokenPages,
    Healthy,
    Noise,
    Outage,
    Slots,
    error,
    refused,
    unanswered,
)

__all__ = [
    "Balancer",
    "BrokenPages",
    "ConnectionLimit",
    "FixedWindow",
    "GivenUp",
    "Healthy",
    "Latencies",
    "Law",
    "Network",
    "Noise",
    "Outage",
    "Pages",
    "Persistence",
    "QueueingServer",
    "QuotaHeaders",
    "QuotaOnPages",
    "Recovery",
    "Report",
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
