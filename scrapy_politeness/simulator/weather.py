"""What goes wrong whatever the rate is: wrappers around a server.

A share of the requests fails, for good or for a time; a host is away; some pages are
broken. Weather has no limit: a law that takes it for one slows down for nothing. What
is said to be allowed is what could really be had in it.

::

    Noise(TokenBucket(rate=8, burst=10), 0.01, refused(), seed=1)
    Downtime(Healthy(10), 0.0, 600.0, unanswered)
"""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

from scrapy_politeness.simulator.servers import Reply, Server, Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    # Makes the answer that a request gets instead of the one at that time.
    Failure = Callable[[float], Reply]


def refused(reason: str = "503", retry_after: float | None = None) -> Failure:
    return lambda at: Reply(at, False, retry_after, None, reason)


def error(reason: str = "ConnectionLost") -> Failure:
    """For a connection that is reset, or an answer such as 500."""
    return lambda at: Reply(at, False, None, None, reason, broken=True)


def unanswered(_at: float) -> Reply:
    """The client waits until its timeout."""
    return Reply(math.inf, served=False)


class Healthy:
    """Serves everything at once. It has no limit of its own: ``rate`` is the most that
    the client is allowed to send by its user, and so the most that it can get."""

    burst = 0.0
    period = 0.0
    service = 0.0

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def arrive(self, now: float, page: int = 0) -> Reply:
        return Reply(now, served=True)

    def wait(self, now: float) -> float:
        return 0.0

    def allowed(self, start: float, end: float) -> float:
        return (end - start) * self._rate

    def changes(self, end: float) -> list[float]:
        return []


class Slots(Wrapper[Server]):
    """A client with so few places for requests under way that these, and not a limit,
    decide what it can get: one of ``slots`` is taken for ``seconds`` on average by
    each page that is served in the end."""

    def __init__(self, server: Server, slots: int, seconds: float) -> None:
        super().__init__(server)
        self._rate = slots / seconds

    @classmethod
    def under_timeouts(
        cls, server: Server, slots: int, latency: float, share: float, timeout: float
    ) -> Slots:
        """``share`` of the requests are never answered."""
        return cls(server, slots, latency + share / (1 - share) * timeout)

    def allowed(self, start: float, end: float) -> float:
        return min((end - start) * self._rate, self.server.allowed(start, end))


class _Spell(Wrapper[Server]):
    """Weather between two times."""

    def __init__(self, server: Server, start: float, end: float) -> None:
        super().__init__(server)
        self._start = start
        self._end = end

    def _allowed_within(self, start: float, end: float) -> float:
        """What the server alone would allow in that part of the time."""
        start, end = max(start, self._start), min(end, self._end)
        return self.server.allowed(start, end) if start < end else 0.0

    def changes(self, end: float) -> list[float]:
        """Only its end is a change that a client has to find: when it begins, there
        is nothing to be gained."""
        ends = {self._end} if self._end < end else set()
        return sorted(ends.union(self.server.changes(end)))


class Noise(_Spell):
    """A ``share`` of what the server would serve fails, each by chance. A request
    that fails has counted for the server's limit."""

    def __init__(
        self,
        server: Server,
        share: float,
        failure: Failure,
        *,
        start: float = 0.0,
        end: float = math.inf,
        seed: int = 0,
    ) -> None:
        super().__init__(server, start, end)
        self._share = share
        self._failure = failure
        # Not the numbers that the network draws from the same seed.
        self._random = Random(f"noise {seed}")

    def arrive(self, now: float, page: int = 0) -> Reply:
        reply = self.server.arrive(now, page)
        if not reply.served or not self._start <= now < self._end:
            return reply
        return self._failure(reply.at) if self._random.random() < self._share else reply

    def allowed(self, start: float, end: float) -> float:
        lost = self._share * self._allowed_within(start, end)
        return self.server.allowed(start, end) - lost


class Downtime(_Spell):
    """From ``start`` to ``end`` every request fails, and does not reach the server."""

    def __init__(
        self, server: Server, start: float, end: float, failure: Failure
    ) -> None:
        super().__init__(server, start, end)
        self._failure = failure

    def arrive(self, now: float, page: int = 0) -> Reply:
        if self._start <= now < self._end:
            return self._failure(now)
        return self.server.arrive(now, page)

    def allowed(self, start: float, end: float) -> float:
        return self.server.allowed(start, end) - self._allowed_within(start, end)


class BrokenPages(Wrapper[Server]):
    """These pages always fail, and the server allows as much of the others."""

    def __init__(self, server: Server, pages: Container[int], failure: Failure) -> None:
        super().__init__(server)
        self._pages = pages
        self._failure = failure

    def arrive(self, now: float, page: int = 0) -> Reply:
        reply = self.server.arrive(now, page)
        broken = reply.served and page in self._pages
        return self._failure(reply.at) if broken else reply
