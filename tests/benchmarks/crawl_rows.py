"""The hosts of ``tests/benchmarks/crawls.py``, and how fast each could be crawled."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider

from tests.support.failures import (
    UNAVAILABLE,
    Failures,
    constant,
    from_time,
    mixed,
    runs,
)
from tests.support.settings import SEARCHING, UP_TO_20
from tests.support.site import STATIC_ROBOTS, Answer, Site
from tests.support.spiders import Pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

    from scrapy.http import Response

    from tests.support.site import Quota

LIMITS = "limits"
FAILURES = "failures"
DEFAULTS = "defaults"
TABLES = (LIMITS, FAILURES, DEFAULTS)

# Seconds between two pages of a slow spider.
LEISURE = 2.0

# What the rise from 1/s to 10/s costs, in seconds of a crawl at 10/s.
_CAREFUL_START = 15.0

# Within twice of what could be.
_HALF = 0.5

# With this one, shares of 1,000 pages come out as they are named: 9 failures at 1 %,
# 53 at 5 %, 5 at 0.5 %; and 21 of 400 pages at 5 %.
_SEED = 164


class Index(Pages):
    """The first page has links to all others: they are asked for from the last one on,
    since Scrapy's queue is a stack."""

    name = "index"

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.urls[0], callback=self.parse_index, errback=self.failed)

    def parse_index(self, response: Response) -> Iterator[Any]:
        yield from self.parse(response)
        for url in self.urls[1:]:
            yield Request(url, callback=self.parse, errback=self.failed)


class Leisurely(Pages):
    """Has work of its own to do between any two pages."""

    name = "leisurely"

    async def start(self) -> AsyncIterator[Request]:
        async for request in super().start():
            yield request
            await asyncio.sleep(LEISURE)


@dataclass(frozen=True)
class Row:
    """The fastest possible crawl has ``rate`` pages per second, and takes ``extra``
    seconds besides. Where ``to_the_end``, the crawl is measured until it is over, else
    until the last page was got."""

    table: str
    name: str
    site: Mapping[str, Any]
    rate: float
    least_share: float = 0.85
    settings: Mapping[str, Any] = field(default_factory=dict)
    pages: int = 1000
    extra: float = 0.0
    spider: type[Spider] = Pages
    urls: Callable[[Site], list[str]] = Site.page_urls
    to_the_end: bool = True
    # Whether any cut is one too many.
    no_cuts: bool = False

    def fastest(self, pages: int) -> float:
        return self.extra + pages / self.rate

    def lost(self, paths: Iterable[str]) -> int:
        """Return how many of the pages nobody can get."""
        failures: Failures = self.site.get("failures") or Failures()
        return sum(path in failures.broken for path in paths)

    def with_seed(self, seed: int) -> Row:
        failures = replace(self.site.get("failures") or Failures(), seed=seed)
        return replace(self, site={**self.site, "failures": failures})


def _two_second_window(quota: Quota) -> Mapping[str, str]:
    return {
        "RateLimit": f'"default";r={quota.remaining};t={math.ceil(quota.reset_after)}',
        "RateLimit-Policy": f'"default";q={quota.limit};w=2',
    }


def _limited(name: str, rate: float, **site: Any) -> Row:
    return Row(LIMITS, name, site, rate, settings=SEARCHING)


def _failing(
    name: str,
    least_share: float,
    failures: Failures | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    to_the_end: bool = True,
    **site: Any,
) -> Row:
    failures = failures or Failures()
    return Row(
        FAILURES,
        name,
        {"robots": STATIC_ROBOTS, "failures": failures, **site},
        rate=20.0 * (1 - failures.share),
        least_share=least_share,
        settings={**UP_TO_20, **(settings or {})},
        to_the_end=to_the_end,
    )


def _by_default(
    name: str,
    pages: int,
    site: Mapping[str, Any],
    *,
    rate: float = 10.0,
    extra: float = _CAREFUL_START,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> Row:
    return Row(
        DEFAULTS,
        name,
        {"robots": STATIC_ROBOTS, **site},
        rate,
        least_share=_HALF,
        settings={"LOG_LEVEL": "INFO", **(settings or {})},
        pages=pages,
        extra=extra,
        **options,
    )


def _one_broken(name: str, spider: type[Spider]) -> Row:
    # The broken page is asked for again a few times.
    return _by_default(
        f"one page of 200 always 503, {name}",
        200,
        {"failures": Failures(broken=["/page/100"])},
        extra=40.0,
        spider=spider,
    )


def _with_login(site: Site) -> list[str]:
    pages = site.page_urls()
    early = len(pages) // 3
    return [*pages[:early], f"{site.url}/login", *pages[early:]]


_LOGIN = Answer(headers={"RateLimit-Remaining": "4", "RateLimit-Reset": "60"})

ROWS = (
    _limited("sliding window 20/s, silent", 20.0, limit="20/second"),
    _limited(
        "fixed window 40/2 s, RateLimit headers",
        20.0,
        limit="40/2 seconds",
        window="fixed",
        quota_headers=_two_second_window,
    ),
    _limited("4 connections, 150 ms a page", 4 / 0.15, limit_in_flight=4, latency=0.15),
    _limited("queue of 1 worker, 40 ms a page", 25.0, workers=1, latency=0.04),
    _limited("queue of 4 workers, 160 ms a page", 25.0, workers=4, latency=0.16),
    _failing("1 % random 503s", 0.85, Failures(errors=0.01, seed=_SEED)),
    _failing("5 % random 503s", 0.75, Failures(errors=0.05, seed=_SEED)),
    _failing(
        "1 % random 503s and a limit of 20/s",
        0.8,
        Failures(errors=0.01, seed=_SEED),
        limit="20/second",
    ),
    _failing(
        "0.5 % hanging, DOWNLOAD_TIMEOUT 5",
        0.85,
        Failures(hangs=0.005, seed=_SEED),
        settings={"DOWNLOAD_TIMEOUT": 5},
    ),
    _failing("mixed latencies, 50 and 500 ms", 0.9, Failures(latency=mixed(0.05, 0.5))),
    _failing(
        "one broken page",
        0.88,
        Failures(broken=["/page/100"]),
        to_the_end=False,
    ),
    _failing("queue of 20/s", 0.85, Failures(latency=constant(0.05)), workers=1),
    _failing(
        "4 connections, 150 ms a page, static robots.txt",
        0.85,
        Failures(latency=constant(0.15)),
        limit_in_flight=4,
    ),
    _by_default(
        "150 ms a page, static robots.txt",
        400,
        {"failures": Failures(latency=constant(0.15))},
    ),
    _by_default(
        "runs of 50 fast and 50 slow pages",
        1000,
        {"failures": Failures(latency=runs(0.05, 0.5, 50))},
    ),
    _by_default(
        "5 % random 503s",
        400,
        {"failures": Failures(errors=0.05, seed=_SEED)},
        rate=9.5,
        extra=3.0,
    ),
    _one_broken("start URLs", Pages),
    _one_broken("links of one page", Index),
    _by_default(
        "a single 503 in the first second, at most 20/s",
        1000,
        {"failures": Failures(events={2: UNAVAILABLE})},
        rate=20.0,
        settings={"POLITENESS_MAX_RATE": 20},
    ),
    _by_default("robots.txt answers 500", 300, {"robots": Answer(500)}),
    _by_default(
        "first page 429 with Retry-After 30",
        300,
        {"failures": Failures(events={1: Answer(429, {"Retry-After": "30"})})},
        extra=_CAREFUL_START + 30,
    ),
    _by_default(
        "/login alone has 4 left for 60 s",
        300,
        {"named": {"/login": _LOGIN}},
        urls=_with_login,
    ),
    _by_default(
        "slow spider, 50 ms a page, then 300 ms",
        40,
        {"failures": Failures(latency=from_time({0.0: 0.05, 40.0: 0.3}))},
        rate=1 / LEISURE,
        extra=0.0,
        spider=Leisurely,
        no_cuts=True,
    ),
)
