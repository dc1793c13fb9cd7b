"""Model servers: each decides, as a request arrives, when and how to answer it.

Those in this file count requests and answer at once. ``queueing`` has servers that take
time to answer; ``responses`` and ``failures`` have wrappers that add headers, latencies
and failures. Requests must arrive in the order of time.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from itertools import accumulate, pairwise
from random import Random
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.core.outcome import TOO_MANY_REQUESTS
from scrapy_politeness.core.quota import Quota

if TYPE_CHECKING:
    from collections.abc import Sequence

# Sums of floats miss a whole number by a little: a token that is due, or a window
# that is over, must not be missed by it.
ROUNDING = 1e-9

# The reason of a refusal by a limit, and of one by a limit that does not say so. All
# other refusals are unrelated to the rate.
OVER_LIMIT = TOO_MANY_REQUESTS
OVER_UNNAMED_LIMIT = "over a limit that is not named"
OF_LIMITS = frozenset({OVER_LIMIT, OVER_UNNAMED_LIMIT})


class Reply(NamedTuple):
    """``at`` is when the server has answered; infinite if it never does. A ``broken``
    reply is a connection that was refused or cut, or the 502 of a gateway."""

    at: float
    served: bool
    retry_after: float | None = None
    quota: Quota | None = None
    reason: str = OVER_LIMIT
    broken: bool = False


class Server:
    """One that serves everything at once, without a limit of its own.

    ``rate`` is what the client may send, in requests per second, and so the most that
    it can get. ``burst`` is allowed once, in addition, after an idle time; ``period``
    is the length of the limit's window, and ``service`` how long an idle server takes
    to answer, in seconds.
    """

    burst = 0.0
    period = 0.0
    service = 0.0

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def arrive(self, now: float, page: int = 0) -> Reply:
        return Reply(now, served=True)

    def wait(self, now: float) -> float:
        """Return the seconds until it would serve one more, if none came before."""
        return 0.0

    def allowed(self, start: float, end: float) -> float:
        """Return how many requests the limit allows in that time, in the long run."""
        return (end - start) * self.rate

    def changes(self, end: float) -> list[float]:
        """Return when the limit changes, until ``end``."""
        return []


class Wrapper(Server):
    """Behaves like the server behind it, except for what a subclass overrides."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.burst = server.burst
        self.period = server.period
        self.service = server.service

    def arrive(self, now: float, page: int = 0) -> Reply:
        return self.server.arrive(now, page)

    def wait(self, now: float) -> float:
        return self.server.wait(now)

    def allowed(self, start: float, end: float) -> float:
        return self.server.allowed(start, end)

    def changes(self, end: float) -> list[float]:
        return self.server.changes(end)


class Steps:
    """A rate that changes over time: pairs of a start time and a rate. With ``every``,
    it repeats after that many seconds."""

    def __init__(self, *pieces: tuple[float, float], every: float = math.inf) -> None:
        self._starts = [start for start, _ in pieces]
        self._rates = [rate for _, rate in pieces]
        self._every = every
        parts = (
            (end - start) * rate
            for (start, end), rate in zip(
                pairwise([*self._starts, every]), self._rates, strict=True
            )
        )
        self._sums = [0.0, *accumulate(parts)]

    def rate(self, now: float) -> float:
        within = now % self._every if self._every < math.inf else now
        return self._rates[bisect_right(self._starts, within) - 1]

    def total(self, start: float, end: float) -> float:
        """The requests allowed between the two times."""
        if len(self._starts) == 1:
            return self._rates[0] * (end - start)
        return self._until(end) - self._until(start)

    def changes(self, end: float) -> list[float]:
        if self._every == math.inf:
            return [start for start in self._starts[1:] if start < end]
        rounds = range(math.ceil(end / self._every))
        times = [n * self._every + start for n in rounds for start in self._starts]
        return [time for time in times if 0 < time < end]

    def _until(self, now: float) -> float:
        before = 0.0
        if self._every < math.inf:
            rounds, now = divmod(now, self._every)
            before = rounds * self._sums[-1]
        piece = bisect_right(self._starts, now) - 1
        part = (now - self._starts[piece]) * self._rates[piece]
        return before + self._sums[piece] + part


class TokenBucket(Server):
    def __init__(self, rate: float | Steps, burst: float) -> None:
        self._steps = rate if isinstance(rate, Steps) else Steps((0.0, rate))
        self.burst = burst
        self._tokens = burst
        self._filled_at = 0.0

    def arrive(self, now: float, page: int = 0) -> Reply:
        self._fill(now)
        served = self._tokens >= 1 - ROUNDING
        if served:
            self._tokens -= 1
        return Reply(now, served)

    def wait(self, now: float) -> float:
        self._fill(now)
        return max(0.0, 1 - self._tokens) / self._steps.rate(now)

    def quota(self, now: float) -> Quota:
        """The window is the time in which the bucket fills, in whole seconds."""
        self._fill(now)
        rate = self._steps.rate(now)
        window = math.ceil(self.burst / rate)
        left = max(0, int(self._tokens + ROUNDING))
        full_in = (self.burst - self._tokens) / rate
        return Quota(left, full_in, round(rate * window), window)

    def allowed(self, start: float, end: float) -> float:
        return self._steps.total(start, end)

    def changes(self, end: float) -> list[float]:
        return self._steps.changes(end)

    def _fill(self, now: float) -> None:
        filled = self._tokens + self._steps.total(self._filled_at, now)
        self._tokens = min(self.burst, filled)
        self._filled_at = now


class FixedWindow(Server):
    """Counts from zero in each ``period``; the first one ends at ``phase``."""

    def __init__(self, limit: int, period: float, *, phase: float = 0.0) -> None:
        super().__init__(limit / period)
        self.period = period
        self._limit = limit
        self._ends = phase
        self._count = 0

    def arrive(self, now: float, page: int = 0) -> Reply:
        self._advance(now)
        served = self._count < self._limit
        if served:
            self._count += 1
        return Reply(now, served)

    def wait(self, now: float) -> float:
        self._advance(now)
        return 0.0 if self._count < self._limit else self._ends - now

    def quota(self, now: float) -> Quota:
        self._advance(now)
        left = self._limit - self._count
        return Quota(left, self._ends - now, self._limit, self.period)

    def _advance(self, now: float) -> None:
        if now >= self._ends - ROUNDING:
            passed = math.floor((now - self._ends + ROUNDING) / self.period) + 1
            self._ends += passed * self.period
            self._count = 0


class SlidingWindow(Server):
    """Serves ``limit`` in any ``period``. With ``counts_refused``, refused requests
    count, too, so a client that does not pause is never served again."""

    def __init__(
        self, limit: int, period: float, *, counts_refused: bool = False
    ) -> None:
        super().__init__(limit / period)
        self.period = period
        self._limit = limit
        self._counts_refused = counts_refused
        self._counted: deque[float] = deque()

    def arrive(self, now: float, page: int = 0) -> Reply:
        self._forget(now)
        served = len(self._counted) < self._limit
        if served or self._counts_refused:
            self._counted.append(now)
        return Reply(now, served)

    def wait(self, now: float) -> float:
        self._forget(now)
        excess = len(self._counted) - self._limit
        return 0.0 if excess < 0 else self._counted[excess] + self.period - now

    def quota(self, now: float) -> Quota:
        """The reset is when the oldest request leaves the window, as in ``limits``."""
        self._forget(now)
        left = max(0, self._limit - len(self._counted))
        oldest = self._counted[0] if self._counted else now
        return Quota(left, oldest + self.period - now, self._limit, self.period)

    def _forget(self, now: float) -> None:
        counted, before = self._counted, now - self.period + ROUNDING
        while counted and counted[0] <= before:
            counted.popleft()


CountingServer = TokenBucket | FixedWindow | SlidingWindow


class Balancer(Server):
    """Distributes requests to several servers in turn, or at random with a ``seed``."""

    def __init__(self, servers: Sequence[Server], *, seed: int | None = None) -> None:
        self._servers = servers
        self._random = None if seed is None else Random(f"balancer {seed}")
        self._next = 0
        self.burst = sum(server.burst for server in servers)
        self.period = max(server.period for server in servers)
        self.service = median(server.service for server in servers)

    def arrive(self, now: float, page: int = 0) -> Reply:
        server = self._servers[self._next]
        if self._random is None:
            self._next = (self._next + 1) % len(self._servers)
        else:
            self._next = self._random.randrange(len(self._servers))
        return server.arrive(now, page)

    def wait(self, now: float) -> float:
        return self._servers[self._next].wait(now)

    def allowed(self, start: float, end: float) -> float:
        return sum(server.allowed(start, end) for server in self._servers)

    def changes(self, end: float) -> list[float]:
        return sorted({at for server in self._servers for at in server.changes(end)})
