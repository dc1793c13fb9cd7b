"""The hosts of the benchmark `governors` on which things fail whatever the rate is."""

from __future__ import annotations

import math
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.quota import Quota
from scrapy_politeness.simulator import (
    BrokenPages,
    ConnectionLimit,
    Downtime,
    FewConnections,
    Latencies,
    QueueingServer,
    QuotaOnPages,
    RandomFailures,
    RetryAfter,
    Server,
    SlidingWindow,
    TokenBucket,
    error,
    lognormal,
    mixed,
    refused,
    runs,
    unanswered,
)
from tests.benchmarks.rows import NETWORK, VARIATION, Kind, Row, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy_politeness.simulator.failures import Failure

    Make = Callable[[int], Server]

BOUNDS = Bounds(start_rate=1.0, max_rate=10.0)

# Of the hosts that were unwell: at 90 % of what they allow within a minute.
BACK = Target(back_in=60.0)

SHORT_BOUNDS = Bounds(start_rate=5.0, max_rate=20.0, backoff_base=1.0)

_SLOTS = 8
_TIMEOUT = 30.0

_failing = partial(Row, bounds=BOUNDS)
_returning = partial(Row, bounds=BOUNDS, kind=Kind.RETURN)


def _healthy() -> Server:
    return Server(BOUNDS.max_rate)


def _noise(share: float, failure: Failure, end: float, seed: int) -> Server:
    return RandomFailures(_healthy(), share, failure, end=end, seed=seed)


def _outage(start: float, end: float, failure: Failure, seed: int) -> Server:
    return Downtime(_healthy(), start, end, failure)


def _varied(table: Callable[[int], list[float]], seed: int) -> Server:
    return Latencies(_healthy(), table(seed))


def _timeouts(share: float, seed: int) -> Server:
    noisy = RandomFailures(_healthy(), share, unanswered, seed=seed)
    latency = NETWORK.round_trip
    return FewConnections(noisy, _SLOTS, latency, share, _TIMEOUT)


def _noisy_hosts() -> Iterator[Row]:
    for share, wanted, patient in (
        (0.001, 0.97, 0.95),
        (0.01, 0.93, 0.88),
        (0.02, 0.90, 0.82),
        (0.05, 0.85, 0.75),
        (0.10, 0.75, 0.70),
    ):
        text = f"{100 * share:g} %"
        for name, failure in (("503s", refused()), ("resets", error())):
            yield _failing(
                f"{text} {name}",
                partial(_noise, share, failure, math.inf),
                Target(wanted),
            )
        yield _failing(
            f"{text} timeouts, {_SLOTS} slots",
            partial(_timeouts, share),
            # Asked for is a share of all that the slots can carry, timeouts included.
            Target(patient / (1 - share)),
            concurrency=_SLOTS,
            timeout=_TIMEOUT,
        )


def _noisy(make: Callable[[], Server], share: float, seed: int) -> Server:
    return RandomFailures(make(), share, refused(), seed=seed)


def _noisy_limits() -> Iterator[Row]:
    limits: dict[str, Callable[[], Server]] = {
        "bucket 8/s burst 10, silent": lambda: TokenBucket(8.0, 10),
        "bucket 8/s burst 10, Retry-After": lambda: RetryAfter(TokenBucket(8.0, 10)),
        "sliding 8/s, silent": lambda: SlidingWindow(8, 1.0),
        "sliding 8/s, Retry-After": lambda: RetryAfter(SlidingWindow(8, 1.0)),
        "sliding 80/10s, silent": lambda: SlidingWindow(80, 10.0),
    }
    for name, make in limits.items():
        for share, wanted in ((0.01, 0.90), (0.05, 0.82)):
            yield _failing(
                f"{name}, {100 * share:g} % 503s",
                partial(_noisy, make, share),
                Target(wanted, 0.6),
            )


def _recoveries() -> Iterator[Row]:
    outages = {
        "refusing for 10 min": (0.0, 600.0, refused()),
        "unanswering for 10 min": (0.0, 600.0, unanswered),
        "resetting for 10 min": (0.0, 600.0, error()),
        "Retry-After 60 at the start": (0.0, 60.0, refused("429", 60.0)),
        "one 503 at the start": (0.0, 0.5, refused()),
        "refusing for 10 min, later": (1200.0, 1800.0, refused()),
        "unanswering for 10 min, later": (1200.0, 1800.0, unanswered),
        "unanswering for 1 min, later": (1200.0, 1260.0, unanswered),
    }
    for name, (start, end, failure) in outages.items():
        yield _returning(
            name,
            partial(_outage, start, end, failure),
            BACK,
        )
    for minutes in (10, 30):
        yield _returning(
            f"5 % 503s for {minutes} min",
            partial(_noise, 0.05, refused(), 60.0 * minutes),
            BACK,
        )


def _latencies() -> Iterator[Row]:
    tables: dict[str, Callable[[int], list[float]]] = {
        "in runs": lambda seed: runs(0.05, 0.5, length=50),
        "mixed": lambda seed: mixed(0.05, 0.5, seed=seed),
        "lognormal, sigma 1.5": lambda seed: lognormal(0.1, 1.5, seed),
    }
    for name, table in tables.items():
        yield _failing(
            f"fast and slow pages, {name}",
            partial(_varied, table),
            Target(0.95),
        )
    yield _failing(
        "static robots.txt, pages of 150 ms",
        lambda seed: Latencies(_healthy(), [0.15], first=0.003),
        Target(0.95),
        concurrency=_SLOTS,
    )
    yield _failing(
        "one login says 4 left for 60 s",
        lambda seed: QuotaOnPages(_healthy(), {100}, Quota(4, 60)),
        Target(0.95),
    )


def _broken(make: Make, pages: int, broken: int, seed: int) -> Server:
    numbers = set(Random(f"broken {seed}").sample(range(pages), broken))
    return BrokenPages(make(seed), numbers, refused())


def _broken_pages() -> Iterator[Row]:
    pages = 2000
    for broken, wanted in ((0, 0.95), (1, 0.95), (5, 0.93), (20, 0.85)):
        yield Row(
            f"{broken} of {pages} pages broken",
            partial(_broken, lambda seed: _healthy(), pages, broken),
            Target(wanted, tries=4 if broken else None),
            kind=Kind.PAGES,
            bounds=BOUNDS,
            pages=pages,
            broken=broken,
        )


def _short_crawls() -> Iterator[Row]:
    """1,000 pages from 5/s to at most 20/s with a backoff of 1 s: what is measured
    with real crawls, too."""
    rate = SHORT_BOUNDS.max_rate
    crawls: dict[str, tuple[Make, float]] = {
        "healthy": (lambda seed: Server(rate), 0.85),
        "1 % 503s": (
            lambda seed: RandomFailures(Server(rate), 0.01, refused(), seed=seed),
            0.85,
        ),
        "5 % 503s": (
            lambda seed: RandomFailures(Server(rate), 0.05, refused(), seed=seed),
            0.75,
        ),
        "sliding 20/s, 1 % 503s": (
            lambda seed: RandomFailures(
                SlidingWindow(20, 1.0), 0.01, refused(), seed=seed
            ),
            0.80,
        ),
        "0.5 % timeouts": (
            lambda seed: RandomFailures(Server(rate), 0.005, unanswered, seed=seed),
            0.85,
        ),
        "mixed latencies": (
            lambda seed: Latencies(Server(rate), mixed(0.05, 0.5, seed=seed)),
            0.90,
        ),
        "1 page broken": (
            partial(_broken, lambda seed: Server(rate), 1000, 1),
            0.88,
        ),
        "queue of 20/s": (
            lambda seed: QueueingServer(20.0, variation=VARIATION, seed=seed),
            0.85,
        ),
        "4 connections": (
            lambda seed: ConnectionLimit(
                4, 0.15, round_trip=NETWORK.round_trip, variation=VARIATION, seed=seed
            ),
            0.85,
        ),
    }
    for name, (make, wanted) in crawls.items():
        yield Row(
            f"1,000 pages, {name}",
            make,
            Target(wanted),
            kind=Kind.PAGES,
            bounds=SHORT_BOUNDS,
            timeout=5.0,
            connections=4 if name == "4 connections" else None,
            pages=1000,
            broken=int(name == "1 page broken"),
        )


def _starts() -> Iterator[Row]:
    """400 pages with the default settings, some of the first of which fail. The fastest
    crawl takes 40 s, and one that begins at 1/s takes 55 s."""
    pages = 400
    crawls: dict[str, tuple[Make, float, int]] = {
        "2 % 503s": (partial(_noise, 0.02, refused(), math.inf), 0.4, 0),
        "5 % 503s": (partial(_noise, 0.05, refused(), math.inf), 0.2, 0),
        "3 of the first 40 broken": (
            partial(_broken, lambda seed: _healthy(), 40, 3),
            0.35,
            3,
        ),
    }
    for name, (make, wanted, broken) in crawls.items():
        yield Row(
            f"400 pages, {name}",
            make,
            Target(wanted),
            kind=Kind.PAGES,
            bounds=BOUNDS,
            pages=pages,
            broken=broken,
        )


FAILURE_ROWS = [
    *_noisy_hosts(),
    *_noisy_limits(),
    *_recoveries(),
    *_latencies(),
    *_broken_pages(),
    *_short_crawls(),
    *_starts(),
]
