"""What a model server says besides serving or refusing: wrappers around it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from scrapy_politeness.simulator.servers import CountingServer, Reply, Server

if TYPE_CHECKING:
    from collections.abc import Callable

S = TypeVar("S", bound=Server)


def true_wait(wait: float) -> float:
    """In whole seconds, rounded up, as the header has it."""
    return math.ceil(wait)


def always(seconds: float) -> Callable[[float], float]:
    """For a server whose Retry-After is a constant, whatever the true wait is."""
    return lambda _wait: seconds


class _Voice(Generic[S]):
    def __init__(self, server: S) -> None:
        self._server = server
        self.burst = server.burst
        self.period = server.period
        self.service = server.service
        self.wait = server.wait
        self.allowed = server.allowed
        self.changes = server.changes


class RetryAfter(_Voice[Server]):
    """Refusals say how long to wait: ``says`` makes it out of the true wait."""

    def __init__(
        self, server: Server, says: Callable[[float], float] = true_wait
    ) -> None:
        super().__init__(server)
        self._says = says

    def arrive(self, now: float) -> Reply:
        reply = self._server.arrive(now)
        if reply.served:
            return reply
        return reply._replace(retry_after=self._says(self._server.wait(now)))


class QuotaHeaders(_Voice[CountingServer]):
    """Every reply says what is left, the reset in whole seconds, rounded up.

    Without ``policy`` the length of the window is not told: so did X-RateLimit-* and
    the older drafts.
    """

    def __init__(self, server: CountingServer, *, policy: bool = True) -> None:
        super().__init__(server)
        self._policy = policy

    def arrive(self, now: float) -> Reply:
        reply = self._server.arrive(now)
        quota = self._server.quota(now)
        told = replace(
            quota,
            reset=math.ceil(quota.reset),
            window=quota.window if self._policy else None,
        )
        return reply._replace(quota=told)
