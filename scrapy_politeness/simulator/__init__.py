"""Clients against model servers on virtual time: an hour of crawling in a moment.

::

    scope = Scope("example.org", Bounds(), spacing=0, concurrency=8)
    report = simulate([scope], RetryAfter(TokenBucket(rate=4, burst=20)), seed=1)
    print(report.efficiency, report.refusals_per_100)
"""

from scrapy_politeness.simulator.busy import ConnectionLimit, QueueingServer
from scrapy_politeness.simulator.report import Recovery, Report
from scrapy_politeness.simulator.run import Law, Network, simulate
from scrapy_politeness.simulator.servers import (
    FixedWindow,
    Server,
    SlidingWindow,
    TokenBucket,
)
from scrapy_politeness.simulator.steps import Steps, day_and_night
from scrapy_politeness.simulator.voices import (
    QuotaHeaders,
    RetryAfter,
    always,
    true_wait,
)

__all__ = [
    "ConnectionLimit",
    "FixedWindow",
    "Law",
    "Network",
    "QueueingServer",
    "QuotaHeaders",
    "Recovery",
    "Report",
    "RetryAfter",
    "Server",
    "SlidingWindow",
    "Steps",
    "TokenBucket",
    "always",
    "day_and_night",
    "simulate",
    "true_wait",
]
