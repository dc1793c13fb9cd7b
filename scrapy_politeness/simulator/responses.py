"""Wrappers that add headers to the responses of a model server, or latency."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from statistics import median
from typing import TYPE_CHECKING

from scrapy_politeness.simulator.servers import Reply, Server, Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from scrapy_politeness.core.quota import Quota
    from scrapy_politeness.simulator.servers import CountingServer

# How many pages have a random latency of their own. A prime, so that it is in step with
# nothing else.
_PAGES = 4999


def always(seconds: float) -> Callable[[float], float]:
    """For a server whose Retry-After is a constant, whatever the true wait is."""
    return lambda _wait: seconds


class RetryAfter(Wrapper):
    """Refusals say how long to wait: by default the true wait in whole seconds, rounded
    up."""

    def __init__(
        self, server: Server, header: Callable[[float], float] = math.ceil
    ) -> None:
        super().__init__(server)
        self._header = header

    def arrive(self, now: float, page: int = 0) -> Reply:
        reply = self.server.arrive(now, page)
        if reply.served:
            return reply
        return reply._replace(retry_after=self._header(self.server.wait(now)))


class QuotaHeaders(Wrapper):
    """Every reply says what is left, with the reset in whole seconds, rounded up.

    Without ``policy``, the length of the window is not included, as in X-RateLimit-*
    and in older drafts of RateLimit.
    """

    server: CountingServer

    def __init__(self, server: CountingServer, *, policy: bool = True) -> None:
        super().__init__(server)
        self._policy = policy

    def arrive(self, now: float, page: int = 0) -> Reply:
        reply = self.server.arrive(now, page)
        quota = self.server.quota(now)
        window = quota.window if self._policy else None
        quota = replace(quota, reset=math.ceil(quota.reset), window=window)
        return reply._replace(quota=quota)


class QuotaOnPages(Wrapper):
    """Some pages, such as a login, have a quota of their own and send it."""

    def __init__(self, server: Server, pages: Container[int], quota: Quota) -> None:
        super().__init__(server)
        self._pages = pages
        self._quota = quota

    def arrive(self, now: float, page: int = 0) -> Reply:
        reply = self.server.arrive(now, page)
        return reply._replace(quota=self._quota) if page in self._pages else reply


class Latencies(Wrapper):
    """Page n takes the n-th of these times, which repeat. ``first`` is for a static
    file such as robots.txt, which is what a crawl requests first."""

    def __init__(
        self, server: Server, times: Sequence[float], *, first: float | None = None
    ) -> None:
        super().__init__(server)
        self.service = server.service + median(times)
        self._times = times
        self._first = first

    def arrive(self, now: float, page: int = 0) -> Reply:
        reply = self.server.arrive(now, page)
        if page == 0 and self._first is not None:
            return reply._replace(at=reply.at + self._first)
        return reply._replace(at=reply.at + self._times[page % len(self._times)])


def runs(*kinds: float, length: int) -> list[float]:
    """``length`` pages in a row of each kind."""
    return [seconds for seconds in kinds for _ in range(length)]


def mixed(*kinds: float, seed: int = 0) -> list[float]:
    return Random(f"mixed {seed}").choices(kinds, k=_PAGES)


def lognormal(median: float, sigma: float, seed: int = 0) -> list[float]:
    draw = Random(f"lognormal {seed}").lognormvariate
    return [draw(math.log(median), sigma) for _ in range(_PAGES)]
