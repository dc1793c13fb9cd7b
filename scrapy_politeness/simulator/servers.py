"""Model servers: each says of a request, as it arrives, when and how it is answered.

Those in this file count requests and answer at once; those that take time to answer
are in ``busy``. What a server says besides (Retry-After, quota headers) is in
``voices``, what goes wrong whatever the rate is in ``weather``. Requests must arrive
in the order of time.
"""

from __future__ import annotations

import math
from collections import deque
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from scrapy_politeness.core.outcome import TOO_MANY_REQUESTS
from scrapy_politeness.core.quota import Quota
from scrapy_politeness.simulator.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Sequence

# Sums of floats miss a whole number by a little: a token that is due, or a window
# that is over, must not be missed by it.
ROUNDING = 1e-9


# What a refusal by a limit is called; all others have nothing to do with the rate.
OVER_LIMIT = TOO_MANY_REQUESTS


class Reply(NamedTuple):
    """``at`` is when the server has answered, which may be never: infinite. A refusal
    may say how long to wait. What is ``broken`` is an error, not a refusal: a
    connection that was reset, a 500."""

    at: float
    served: bool
    retry_after: float | None = None
    quota: Quota | None = None
    reason: str = OVER_LIMIT
    broken: bool = False


class Server(Protocol):
    @property
    def burst(self) -> float:
        """What is allowed once, on top, to a client that was idle before."""

    @property
    def period(self) -> float:
        """Seconds over which the limit is counted."""

    @property
    def service(self) -> float:
        """Seconds that an answer takes while nobody else is asking."""

    def arrive(self, now: float, page: int = 0) -> Reply:
        """Answer a request for the page of that number."""

    def wait(self, now: float) -> float:
        """Seconds until it would serve one more, if none came before."""

    def allowed(self, start: float, end: float) -> float:
        """How many the limit allows in that time, in the long run."""

    def changes(self, end: float) -> list[float]:
        """When the limit changes, until ``end``."""


class CountingServer(Server, Protocol):
    """One that can tell what is left."""

    def quota(self, now: float) -> Quota: ...


S = TypeVar("S", bound=Server)


class Wrapper(Generic[S]):
    """A server in front of another one: what it does not change is that one's."""

    def __init__(self, server: S) -> None:
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


class TokenBucket:
    period = 0.0
    service = 0.0

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
        """The window is one that the bucket fills in, in whole seconds."""
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


class _Steady:
    """A limit that stays, of ``limit`` in ``period`` seconds."""

    burst = 0.0
    service = 0.0

    def __init__(self, limit: int, period: float) -> None:
        self._limit = limit
        self.period = period

    def allowed(self, start: float, end: float) -> float:
        return (end - start) * self._limit / self.period

    def changes(self, end: float) -> list[float]:
        return []


class FixedWindow(_Steady):
    """Counts anew at every full ``period``; ``phase`` is when the first one ends."""

    def __init__(self, limit: int, period: float, *, phase: float = 0.0) -> None:
        super().__init__(limit, period)
        self._ends = phase
        self._count = 0

    def arrive(self, now: float, page: int = 0) -> Reply:
        self._turn(now)
        served = self._count < self._limit
        if served:
            self._count += 1
        return Reply(now, served)

    def wait(self, now: float) -> float:
        self._turn(now)
        return 0.0 if self._count < self._limit else self._ends - now

    def quota(self, now: float) -> Quota:
        self._turn(now)
        left = self._limit - self._count
        return Quota(left, self._ends - now, self._limit, self.period)

    def _turn(self, now: float) -> None:
        if now >= self._ends - ROUNDING:
            passed = math.floor((now - self._ends + ROUNDING) / self.period) + 1
            self._ends += passed * self.period
            self._count = 0


class SlidingWindow(_Steady):
    """Serves ``limit`` in any ``period``. Where ``counts_refused``, every request
    takes its place in the window, so who knocks on is never let in."""

    def __init__(
        self, limit: int, period: float, *, counts_refused: bool = False
    ) -> None:
        super().__init__(limit, period)
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
        """The reset is when the oldest one leaves the window, as `limits` says it."""
        self._forget(now)
        left = max(0, self._limit - len(self._counted))
        oldest = self._counted[0] if self._counted else now
        return Quota(left, oldest + self.period - now, self._limit, self.period)

    def _forget(self, now: float) -> None:
        counted, before = self._counted, now - self.period + ROUNDING
        while counted and counted[0] <= before:
            counted.popleft()


class Balancer:
    """Hands requests to one of several servers: to each in turn, or by chance where
    ``seed`` is given."""

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
