"""What a model server says besides serving or refusing: wrappers around it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from scrapy_politeness.simulator.servers import (
    CountingServer,
    Reply,
    Server,
    Wrapper,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from scrapy_politeness.core.quota import Quota


def true_wait(wait: float) -> float:
    """In whole seconds, rounded up, as the header has it."""
    return math.ceil(wait)


def always(seconds: float) -> Callable[[float], float]:
    """For a server whose Retry-After is a constant, whatever the true wait is."""
    return lambda _wait: seconds


class RetryAfter(Wrapper[Server]):
    """Refusals say how long to wait: ``says`` makes it out of the true wait."""

    def __init__(
        self, server: Server, says: Callable[[float], float] = true_wait
    ) -> None:
        super().__init__(server)
        self._says = says

    def arrive(self, now: float, page: int = 0) -> Reply:
        reply = self.server.arrive(now, page)
        if reply.served:
            return reply
        return reply._replace(retry_after=self._says(self.server.wait(now)))


class QuotaHeaders(Wrapper[CountingServer]):
    """Every reply says what is left, the reset in whole seconds, rounded up.

    Without ``policy`` the length of the window is not told: so did X-RateLimit-* and
    the older drafts.
    """

    def __init__(self, server: CountingServer, *, policy: bool = True) -> None:
        super().__init__(server)
        self._policy = policy

    def arrive(self, now: float, page: int = 0) -> Reply:
        reply = self.server.arrive(now, page)
        quota = self.server.quota(now)
        told = replace(
            quota,
            reset=math.ceil(quota.reset),
            window=quota.window if self._policy else None,
        )
        return reply._replace(quota=told)


class QuotaOnPages(Wrapper[Server]):
    """These pages, such as a login, say what is left of a quota of their own."""

    def __init__(self, server: Server, pages: Container[int], quota: Quota) -> None:
        super().__init__(server)
        self._pages = pages
        self._quota = quota

    def arrive(self, now: float, page: int = 0) -> Reply:
        reply = self.server.arrive(now, page)
        return reply._replace(quota=self._quota) if page in self._pages else reply
