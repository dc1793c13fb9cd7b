"""Clients against model servers on virtual time: an hour of crawling in a moment.

::

    slot = Slot("example.org", Bounds(), spacing=0, concurrency=8)
    results = simulate([slot], RetryAfter(TokenBucket(rate=4, burst=20)), seed=1)
    print(results.efficiency, results.refusals_per_100)
"""

from scrapy_politeness.simulator.failures import (
    BrokenPages,
    ClosingPort,
    Downtime,
    FewConnections,
    RandomFailures,
    error,
    refused,
    unanswered,
)
from scrapy_politeness.simulator.queueing import ConnectionLimit, QueueingServer
from scrapy_politeness.simulator.responses import (
    Latencies,
    QuotaHeaders,
    QuotaOnPages,
    RetryAfter,
    always,
    lognormal,
    mixed,
    runs,
)
from scrapy_politeness.simulator.results import Results
from scrapy_politeness.simulator.run import Law, Network, simulate
from scrapy_politeness.simulator.servers import (
    Balancer,
    FixedWindow,
    Server,
    SlidingWindow,
    Steps,
    TokenBucket,
)

__all__ = [
    "Balancer",
    "BrokenPages",
    "ClosingPort",
    "ConnectionLimit",
    "Downtime",
    "FewConnections",
    "FixedWindow",
    "Latencies",
    "Law",
    "Network",
    "QueueingServer",
    "QuotaHeaders",
    "QuotaOnPages",
    "RandomFailures",
    "Results",
    "RetryAfter",
    "Server",
    "SlidingWindow",
    "Steps",
    "TokenBucket",
    "always",
    "error",
    "lognormal",
    "mixed",
    "refused",
    "runs",
    "simulate",
    "unanswered",
]
