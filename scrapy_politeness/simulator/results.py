"""What a simulation has measured."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, pairwise
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_politeness.simulator.crawl import Crawl, GivenUpPage
    from scrapy_politeness.simulator.servers import Server

# The limit is reached when a window has served this share of what it allows. It must be
# as long as the limit's own window, and long enough to be no accident.
_REACHED = 0.9
_SHORTEST_WINDOW = 10.0
_FEWEST_ALLOWED = 20

_LONGEST_TRACE = 2000


class Trace:
    """The rate over time, thinned out when it has too many points."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._spacing = 0.0

    def note(self, now: float, rate: float) -> None:
        points = self.points
        if points and (rate == points[-1][1] or now - points[-1][0] < self._spacing):
            return
        points.append((now, rate))
        if len(points) >= _LONGEST_TRACE:
            self._spacing = 2 * now / _LONGEST_TRACE
            del points[1::2]


def _array() -> array[float]:
    return array("d")


@dataclass(slots=True)
class Log:
    """When one client got which responses, in the order of time. ``unlucky`` is the
    number of refusals that were unrelated to the rate."""

    crawl: Crawl | None = None
    served_at: array[float] = field(default_factory=_array)
    refused_at: array[float] = field(default_factory=_array)
    unlucky: int = 0
    timed_out: int = 0
    failed: int = 0
    latencies: array[float] = field(default_factory=_array)
    trace: Trace = field(default_factory=Trace)

    @classmethod
    def merged(cls, logs: Sequence[Log]) -> Log:
        return cls(
            served_at=array("d", merge(*(log.served_at for log in logs))),
            refused_at=array("d", merge(*(log.refused_at for log in logs))),
            unlucky=sum(log.unlucky for log in logs),
            timed_out=sum(log.timed_out for log in logs),
            failed=sum(log.failed for log in logs),
            latencies=array("d", chain.from_iterable(log.latencies for log in logs)),
        )


@dataclass(frozen=True, slots=True)
class Recovery:
    """The limit changed ``at``, and was used again ``after`` seconds (None: never),
    with ``refused`` refusals until then."""

    at: float
    after: float | None
    refused: int


@dataclass(frozen=True, slots=True)
class Pages:
    """The outcome of a crawl of a fixed number of pages. ``served_99_at`` is when 99 %
    of the pages served had been, ``last_served_at`` when all had; ``share`` is relative
    to what the server allows until then."""

    served: int
    given_up: tuple[GivenUpPage, ...]
    served_99_at: float
    last_served_at: float
    share: float

    @classmethod
    def of(cls, crawl: Crawl, log: Log, server: Server) -> Pages:
        served_at = log.served_at or [0.0]
        last = served_at[-1]
        allowed = server.burst + server.allowed(0.0, last)
        return cls(
            served=crawl.served,
            given_up=tuple(crawl.given_up),
            served_99_at=served_at[math.ceil(0.99 * len(served_at)) - 1],
            last_served_at=last,
            share=crawl.served / allowed if allowed else 0.0,
        )


@dataclass(frozen=True, slots=True)
class Results:
    """Of one client, or of all of them together.

    ``allowed`` is what a perfect client would have got; for one of several clients, its
    fair share of that. ``unlucky`` is the part of ``refused`` that was unrelated to the
    limit; ``failed`` requests ended in an error. Latencies are those of served pages.
    ``trace`` has pairs of time and rate; the sum of several clients has none.

    ``reached_at`` is the end of the first window that served 90 % of what the limit
    allows in it, with ``refused_until_reached`` refusals until then. The window is ten
    seconds, the limit's own period, or the time of 20 requests, whichever is longest. A
    recovery is measured in the same way from the change on.
    """

    seconds: float
    served: int
    refused: int
    unlucky: int
    timed_out: int
    failed: int
    allowed: float
    reached_at: float | None
    refused_until_reached: int
    recoveries: tuple[Recovery, ...]
    median_latency: float
    unloaded_latency: float
    trace: tuple[tuple[float, float], ...]
    log: Log = field(repr=False, compare=False)
    clients: tuple[Results, ...] = ()
    pages: Pages | None = None

    @property
    def efficiency(self) -> float:
        return self.served / self.allowed

    @property
    def refusals_per_100(self) -> float:
        return 100 * self.refused / max(1, self.served)

    @property
    def over_limit_per_100(self) -> float:
        """Refusals on top of the bad luck."""
        return 100 * (self.refused - self.unlucky) / max(1, self.served)

    @property
    def timeouts_per_100(self) -> float:
        return 100 * self.timed_out / max(1, self.served)


def results_of(
    logs: Sequence[Log], server: Server, seconds: float, travel: float
) -> Results:
    if len(logs) == 1:
        return _results(logs[0], server, seconds, travel, share=1.0)
    share = 1 / len(logs)
    clients = tuple(_results(log, server, seconds, travel, share) for log in logs)
    return _results(Log.merged(logs), server, seconds, travel, 1.0, clients)


def _results(
    log: Log,
    server: Server,
    seconds: float,
    travel: float,
    share: float,
    clients: tuple[Results, ...] = (),
) -> Results:
    start = _recovery(log, server, 0.0, seconds, share)
    changes = [*server.changes(seconds), seconds]
    return Results(
        seconds=seconds,
        served=len(log.served_at),
        refused=len(log.refused_at),
        unlucky=log.unlucky,
        timed_out=log.timed_out,
        failed=log.failed,
        allowed=share * (server.burst + server.allowed(0.0, seconds)),
        reached_at=start.after,
        refused_until_reached=start.refused,
        recoveries=tuple(
            _recovery(log, server, at, until, share) for at, until in pairwise(changes)
        ),
        median_latency=median(log.latencies) if log.latencies else 0.0,
        unloaded_latency=travel + server.service,
        trace=tuple(log.trace.points),
        log=log,
        clients=clients,
        pages=None if log.crawl is None else Pages.of(log.crawl, log, server),
    )


def _recovery(
    log: Log, server: Server, at: float, until: float, share: float
) -> Recovery:
    used_at = _sustained_at(log.served_at, server, at, until, share)
    end = until if used_at is None else used_at
    refused = bisect_right(log.refused_at, end) - bisect_left(log.refused_at, at)
    return Recovery(at, None if used_at is None else used_at - at, refused)


def _sustained_at(
    served_at: Sequence[float], server: Server, after: float, until: float, share: float
) -> float | None:
    """Return when the first window between the two times ended that was well used."""
    rate = server.allowed(after, after + 1)
    if not rate:
        return None
    width = max(_SHORTEST_WINDOW, server.period, _FEWEST_ALLOWED / rate)
    oldest = bisect_left(served_at, after)
    newest_of_all = bisect_right(served_at, until)
    for newest in range(bisect_left(served_at, after + width), newest_of_all):
        end = served_at[newest]
        while served_at[oldest] <= end - width:
            oldest += 1
        wanted = _REACHED * share * server.allowed(end - width, end)
        if newest - oldest + 1 >= wanted:
            return end
    return None
