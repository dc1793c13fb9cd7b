"""The hosts of the benchmark `governors`, and what our law has to reach there: those
that mean what they say. Those with bad luck are in ``failure_rows``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from scrapy_politeness.core.failing_page import Persistence
from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.simulator import (
    Balancer,
    ConnectionLimit,
    FixedWindow,
    Network,
    QueueingServer,
    QuotaHeaders,
    RetryAfter,
    SlidingWindow,
    Steps,
    TokenBucket,
    always,
)
from scrapy_politeness.simulator.servers import (
    OVER_UNNAMED_LIMIT,
    Reply,
    Server,
    Wrapper,
)
from tests.benchmarks.laws import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy_politeness.simulator.servers import CountingServer

NETWORK = Network(latency=0.05, jitter=0.1)

# No two answers of a real server take the same time.
VARIATION = 0.2

STEP = Steps((0.0, 4.0), (1200.0, 2.0), (2400.0, 6.0))
# Twelve hours each, every day.
DAY = Steps((0.0, 1.0), (43200.0, 2.0), every=86400.0)


class Kind(Enum):
    """What matters at a host, and so the table that it is shown in."""

    LIMIT = "efficiency, refusals per 100 on top of bad luck"
    QUEUE = "efficiency, timeouts per 100, latency x unloaded"
    RETURN = "seconds until 90 % after being healthy, efficiency"
    PAGES = "share of the fastest, fewest tries, served, s in all"


@dataclass(frozen=True, slots=True)
class Target:
    """What is None is not asked for. ``refusals`` and ``timeouts`` are per 100 served,
    ``latency`` is a multiple of the unloaded one, ``back_in`` are the seconds until
    90 % of a host that is healthy again are used, ``tries`` how often a page was asked
    for before it was given up; ``quick`` asks for the quick start as well."""

    efficiency: float = 0.0
    refusals: float | None = None
    timeouts: float | None = None
    latency: float | None = None
    back_in: float | None = None
    tries: int | None = None
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A server, made anew for each seed, and how clients meet it. ``connections`` is
    what the oracle knows besides the server's rate. With ``pages``, the crawl is over
    when it has so many, ``broken`` of which cannot be had."""

    name: str
    server: Callable[[int], Server]
    target: Target | None = None
    concurrency: int = 16
    timeout: float = 30.0
    clients: int = 1
    hours: float = 0.0
    connections: int | None = None
    kind: Kind = Kind.LIMIT
    bounds: Bounds = BOUNDS
    pages: int | None = None
    broken: int = 0

    @property
    def persistence(self) -> Persistence:
        return Persistence(self.bounds.backoff_base, self.bounds.backoff_max)


def _fixed(limit: int, period: float, seed: int) -> CountingServer:
    """The window did not begin when the crawl does."""
    return FixedWindow(limit, period, phase=period * (seed % 5) / 5)


LIMITS: dict[str, tuple[Callable[[int], CountingServer], Target]] = {
    "bucket 20/s burst 10": (
        lambda seed: TokenBucket(20.0, 10),
        Target(0.97, 0.5, quick=True),
    ),
    "bucket 4/s burst 20": (lambda seed: TokenBucket(4.0, 20), Target(0.97, 0.5)),
    "bucket 1/s burst 5": (lambda seed: TokenBucket(1.0, 5), Target(0.97, 0.5)),
    "bucket 0.2/s burst 3": (lambda seed: TokenBucket(0.2, 3), Target(0.97, 1.5)),
    "fixed 120/min": (partial(_fixed, 120, 60.0), Target(0.96, 0.5)),
    "fixed 200/10s": (partial(_fixed, 200, 10.0), Target(0.96, 0.5, quick=True)),
    "sliding 120/min": (lambda seed: SlidingWindow(120, 60.0), Target(0.96, 0.5)),
    "sliding 20/s": (
        lambda seed: SlidingWindow(20, 1.0),
        Target(0.96, 0.5, quick=True),
    ),
    "sliding 120/min all count": (
        lambda seed: SlidingWindow(120, 60.0, counts_refused=True),
        Target(0.94, 0.5),
    ),
    "step 4-2-6/s burst 5": (lambda seed: TokenBucket(STEP, 5), Target(0.88, 0.5)),
}


def _says(
    make: Callable[[int], Server], says: Callable[[float], float], seed: int
) -> Server:
    return RetryAfter(make(seed), says)


def _counts(make: Callable[[int], CountingServer], policy: bool, seed: int) -> Server:
    return QuotaHeaders(make(seed), policy=policy)


def _connections(seed: int) -> Server:
    return ConnectionLimit(
        4, 0.15, round_trip=NETWORK.round_trip, variation=VARIATION, seed=seed
    )


def _queue(capacity: float, workers: int, variation: float, seed: int) -> Server:
    return QueueingServer(capacity, workers=workers, variation=variation, seed=seed)


def _backends(kind: str, by_chance: bool, seed: int) -> Server:
    servers: list[Server]
    if kind == "queueing":
        servers = [_queue(5.0, 1, VARIATION, 4 * seed + n) for n in range(4)]
    else:
        servers = [TokenBucket(5.0, 10) for _ in range(4)]
    return Balancer(servers, seed=seed if by_chance else None)


def _limits() -> Iterator[Row]:
    for name, (make, target) in LIMITS.items():
        yield Row(f"{name}, Retry-After", partial(_says, make, math.ceil), target)
        yield Row(f"{name}, silent", make, target)
        told = Target(0.98, 0.1, quick=target.quick)
        yield Row(f"{name}, quota", partial(_counts, make, True), told)
        yield Row(f"{name}, quota, no window", partial(_counts, make, False), told)


def _one_at_a_time() -> Iterator[Row]:
    """Limiters with little or no burst."""
    limits: dict[str, tuple[Callable[[int], Server], Target]] = {
        "sliding 1/s": (lambda seed: SlidingWindow(1, 1.0), Target(0.90, 0.5)),
        "sliding 3/s": (lambda seed: SlidingWindow(3, 1.0), Target(0.90, 0.5)),
        # Here, travel times that differ by milliseconds matter.
        "bucket 10/s burst 1": (
            lambda seed: TokenBucket(10.0, 1),
            Target(0.80, 0.5),
        ),
    }
    for name, (make, target) in limits.items():
        yield Row(f"{name}, Retry-After", partial(_says, make, math.ceil), target)
        yield Row(f"{name}, silent", make, target)


def _connection_limits() -> Iterator[Row]:
    telling = partial(_says, _connections, math.ceil)
    for room in (16, 8):
        name = f"connections 4, {room} slots"
        target = Target(0.90, 1.0)
        yield Row(f"{name}, Retry-After", telling, target, room, connections=4)
        yield Row(f"{name}, silent", _connections, target, room, connections=4)


def _queues() -> Iterator[Row]:
    target = Target(0.85, timeouts=0.2, latency=2.0)
    queue = partial(Row, timeout=3.0, kind=Kind.QUEUE)
    for workers in (1, 4):
        make = partial(_queue, 20.0, workers, VARIATION)
        # With few slots no wait gets as long as the timeout: the latency alone tells.
        for room in (8, 16, 100):
            yield queue(f"queue of {workers}, {room} slots", make, target, room)
    yield queue("queue of 1, exponential", partial(_queue, 20.0, 1, 1.0))
    # A few time out before the first slow answer is there.
    yield queue(
        "queue of 1, 2/s, started at 5/s",
        partial(_queue, 2.0, 1, VARIATION),
        Target(0.85, timeouts=1.0, latency=2.0),
        bounds=Bounds(start_rate=5.0, max_rate=100.0),
    )


def _balancers() -> Iterator[Row]:
    for by_chance in (False, True):
        how = "by chance" if by_chance else "in turn"
        limit = partial(_backends, "limiting", by_chance)
        # Where chance decides, servers are now and then asked more than their share.
        most = None if by_chance else 0.5
        yield Row(f"4 backends of 5/s, {how}", limit, Target(0.85, most))
        yield Row(
            f"4 queueing backends of 5/s, {how}",
            partial(_backends, "queueing", by_chance),
            Target(0.85, timeouts=0.2),
            timeout=3.0,
            kind=Kind.QUEUE,
        )


class Unnamed(Wrapper):
    """Refuses with a bare 503, as nginx does by default: its refusals look like bad
    luck."""

    def arrive(self, now: float, page: int = 0) -> Reply:
        return self.server.arrive(now, page)._replace(reason=OVER_UNNAMED_LIMIT)


def _unnamed() -> Iterator[Row]:
    limits: dict[str, Callable[[], Server]] = {
        "bucket 8/s burst 10": lambda: TokenBucket(8.0, 10),
        "bucket 2/s burst 5": lambda: TokenBucket(2.0, 5),
        "bucket 1/s burst 5": lambda: TokenBucket(1.0, 5),
    }
    for name, make in limits.items():
        yield Row(f"{name}, bare 503s", partial(_bare, make), Target(0.97, 0.5))


def _bare(make: Callable[[], Server], seed: int) -> Server:
    return Unnamed(make())


def _others() -> Iterator[Row]:
    """Without a target: liars, rivals, a day."""
    slow, _ = LIMITS["bucket 4/s burst 20"]
    for text, said in (("0", 0.0), ("1 s", 1.0), ("1 h", 3600.0)):
        yield Row(f"bucket 4/s, says {text}", partial(_says, slow, always(said)))
    quick, _ = LIMITS["bucket 20/s burst 10"]
    shared = partial(_says, quick, math.ceil)
    yield Row("bucket 20/s, 3 clients", shared, clients=3)
    yield Row("day 1/s night 2/s", lambda seed: TokenBucket(DAY, 5), hours=24.0)


LIMIT_ROWS = [
    *_limits(),
    *_one_at_a_time(),
    *_connection_limits(),
    *_queues(),
    *_balancers(),
    *_unnamed(),
    *_others(),
]
