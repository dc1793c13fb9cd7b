"""Real crawls behind real limiters: the limit is found, and kept to."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawl import crawl
from tests.support.settings import SEARCHING, fixed
from tests.support.site import Answer
from tests.support.spiders import Pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scrapy.http import Response

    from tests.support.site import Quota, Site

PAGES = 200


def draft(quota: Quota) -> Mapping[str, str]:
    reset = int(quota.reset_after) + 1
    return {
        "RateLimit": f'"size";r=1;t=1, "default";r={quota.remaining};t={reset}',
        "RateLimit-Policy": f'"size";q=9;w=9;qu="content-bytes", '
        f'"default";q={quota.limit};w=2',
    }


def older_draft(quota: Quota) -> Mapping[str, str]:
    return {
        "RateLimit-Limit": str(quota.limit),
        "RateLimit-Policy": f"{quota.limit};w=2",
        "RateLimit-Remaining": str(quota.remaining),
        "RateLimit-Reset": str(int(quota.reset_after) + 1),
    }


def crossref(quota: Quota) -> Mapping[str, str]:
    return {"X-Rate-Limit-Limit": str(quota.limit), "X-Rate-Limit-Interval": "2s"}


@pytest.mark.parametrize("dialect", [draft, older_draft, crossref])
def test_a_limit_that_is_stated_is_kept_to_from_the_start(
    dialect: Callable[[Quota], Mapping[str, str]], site: Callable[..., Site]
) -> None:
    server = site(PAGES, limit="80/2 seconds", window="fixed", quota_headers=dialect)
    result = crawl(urls=server.page_urls(), settings=SEARCHING)
    assert len(result.items) == PAGES
    assert set(server.pages_served().values()) == {1}
    # One or two for each time that the machine delayed a few requests into one window.
    assert server.refusals() <= PAGES / 50
    # The fastest possible crawl sends 40 a second.
    times = [arrival.at for arrival in server.arrivals]
    assert times[-1] - times[0] < 1.15 * PAGES / 40 + server.lost


def test_a_host_that_limits_connections_is_found_out(
    site: Callable[..., Site],
) -> None:
    server = site(PAGES, limit_in_flight=3, latency=0.15)
    result = crawl(urls=server.page_urls(), settings=SEARCHING, timeout=120)
    assert len(result.items) == PAGES
    # Chance decides how often the search meets the limit.
    assert server.refusals() <= PAGES / 10
    late = [a for a in server.arrivals if a.path.startswith("/page")][PAGES // 2 :]
    assert sum(a.in_flight > 3 for a in late) <= len(late) / 5


def test_a_host_that_gets_slow_is_relieved(site: Callable[..., Site]) -> None:
    """One worker, 40 ms a page: what comes faster than 25/s waits."""
    server = site(PAGES, workers=1, latency=0.04)
    result = crawl(urls=server.page_urls(), settings=SEARCHING, timeout=120)
    assert len(result.items) == PAGES
    arrivals = [a for a in server.arrivals if a.path.startswith("/page")]
    late = arrivals[PAGES // 2 :]
    crowded = sum(a.in_flight >= 4 for a in late) / len(late)
    assert crowded < 0.2
    gaps = [b.at - a.at for a, b in pairwise(late)]
    assert sum(gaps) < len(gaps) * 2 / 25 + server.lost


def test_a_page_that_is_forbidden_because_the_quota_is_spent_is_fetched_later(
    site: Callable[..., Site],
) -> None:
    """So GitHub says it."""
    spent = Answer(403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "3"})
    server = site(2, answer=lambda path, nth: spent if nth == 1 else None)
    result = crawl(urls=server.page_urls(), settings=SEARCHING)
    assert [item["status"] for item in result.items] == [200, 200]
    assert max(server.gaps()) > 3 - server.jitter
    assert "because of 403 Forbidden, the quota is spent" in result.log


class Busy(Pages):
    """Has other work to do after a while, which leaves the event loop little time."""

    name = "busy"
    seen = 0

    def parse(self, response: Response) -> Iterator[Any]:
        self.seen += 1
        if self.seen == 100:
            self._work = asyncio.ensure_future(self._keep_busy())
        yield from super().parse(response)

    async def _keep_busy(self) -> None:
        while True:
            time.sleep(0.04)
            await asyncio.sleep(0)

    def closed(self, reason: str) -> None:
        self._work.cancel()


def test_a_crawler_that_is_too_busy_does_not_blame_the_host(
    site: Callable[..., Site],
) -> None:
    server = site(130)
    result = crawl(Busy, urls=server.page_urls(), settings=fixed(50))
    assert len(result.items) == 130
    assert "politeness/slowdowns" not in result.stats
