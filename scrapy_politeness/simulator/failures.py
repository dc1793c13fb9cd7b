"""Wrappers for what fails whatever the rate: a share of the requests, everything for a
while, or single pages. ``allowed`` is what can still be served.

::

    RandomFailures(TokenBucket(rate=8, burst=10), 0.01, refused(), seed=1)
    Downtime(Server(10), 0.0, 600.0, unanswered)
"""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

from scrapy_politeness.simulator.servers import Reply, Server, Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    # Makes the reply that a request gets at that time, instead of a page.
    Failure = Callable[[float], Reply]


def refused(reason: str = "503", retry_after: float | None = None) -> Failure:
    return lambda at: Reply(at, False, retry_after, None, reason)


def error(reason: str = "ConnectionLost") -> Failure:
    """For a connection that is reset, or the 502 of a gateway."""
    return lambda at: Reply(at, False, None, None, reason, broken=True)


def unanswered(_at: float) -> Reply:
    """The client waits until its timeout."""
    return Reply(math.inf, served=False)


class _Temporary(Wrapper):
    def __init__(self, server: Server, start: float, end: float) -> None:
        super().__init__(server)
        self._start = start
        self._end = end

    def _applies(self, now: float) -> bool:
        return self._start <= now < self._end

    def _allowed_meanwhile(self, start: float, end: float) -> float:
        """Return what the server alone would allow in that part of the time."""
        start, end = max(start, self._start), min(end, self._end)
        return self.server.allowed(start, end) if start < end else 0.0

    def changes(self, end: float) -> list[float]:
        """Only its end counts, since there is nothing to gain from its beginning."""
        ends = {self._end} if self._end < end else set()
        return sorted(ends.union(self.server.changes(end)))


class RandomFailures(_Temporary):
    """A random ``share`` of what the server would serve fails. These requests count for
    the server's limit."""

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
        if not reply.served or not self._applies(now):
            return reply
        return self._failure(reply.at) if self._random.random() < self._share else reply

    def allowed(self, start: float, end: float) -> float:
        lost = self._share * self._allowed_meanwhile(start, end)
        return self.server.allowed(start, end) - lost


class Downtime(_Temporary):
    """From ``start`` to ``end`` all requests fail, and do not reach the server."""

    def __init__(
        self, server: Server, start: float, end: float, failure: Failure
    ) -> None:
        super().__init__(server, start, end)
        self._failure = failure

    def arrive(self, now: float, page: int = 0) -> Reply:
        if self._applies(now):
            return self._failure(now)
        return self.server.arrive(now, page)

    def allowed(self, start: float, end: float) -> float:
        return self.server.allowed(start, end) - self._allowed_meanwhile(start, end)


class BrokenPages(Wrapper):
    """These pages always fail; as many of the others are allowed."""

    def __init__(self, server: Server, pages: Container[int], failure: Failure) -> None:
        super().__init__(server)
        self._pages = pages
        self._failure = failure

    def arrive(self, now: float, page: int = 0) -> Reply:
        reply = self.server.arrive(now, page)
        broken = reply.served and page in self._pages
        return self._failure(reply.at) if broken else reply


class FewConnections(Wrapper):
    """For a client with so few connections that these limit what it can get if a
    ``share`` of its requests is never answered: a page that is served in the end takes
    up a connection for all of its attempts."""

    def __init__(
        self,
        server: Server,
        connections: int,
        latency: float,
        share: float,
        timeout: float,
    ) -> None:
        super().__init__(server)
        self.rate = connections / (latency + share / (1 - share) * timeout)

    def allowed(self, start: float, end: float) -> float:
        return min((end - start) * self.rate, self.server.allowed(start, end))


class ClosingPort(Wrapper):
    """Does not refuse a request above its limit, but closes its port for that many
    ``seconds``; ``closed_at`` has the moments."""

    def __init__(self, server: Server, seconds: float) -> None:
        super().__init__(server)
        self._seconds = seconds
        self._shut = error("ConnectionRefused")
        self.closed_at: list[float] = []

    def arrive(self, now: float, page: int = 0) -> Reply:
        if self.closed_at and now < self.closed_at[-1] + self._seconds:
            return self._shut(now)
        reply = self.server.arrive(now, page)
        if reply.served:
            return reply
        self.closed_at.append(now)
        return self._shut(now)
