"""Real crawls behind real limiters: the limit is found, and kept to."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.crawl import crawl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.site import Quota, Site

BRISK = {
    "POLITENESS_START_RATE": 5,
    "POLITENESS_MAX_RATE": 100,
    "POLITENESS_BACKOFF_BASE": 1,
    "POLITENESS_ROBOTS": False,
    "LOG_LEVEL": "INFO",
}

PAGES = 600


def draft(quota: Quota) -> Mapping[str, str]:
    reset = int(quota.reset_after) + 1
    return {
        "RateLimit": f'"default";r={quota.remaining};t={reset}',
        "RateLimit-Policy": f'"default";q={quota.limit};w=2',
    }


def legacy(quota: Quota) -> Mapping[str, str]:
    return {
        "X-RateLimit-Limit": str(quota.limit),
        "X-RateLimit-Remaining": str(quota.remaining),
        "X-RateLimit-Reset": str(int(quota.reset_after) + 1),
    }


@pytest.mark.parametrize(
    "options",
    [
        {"limit": "20/second"},
        {"limit": "20/second", "retry_after": lambda wait: str(int(wait) + 1)},
        {"limit": "40/2 seconds", "window": "fixed", "quota_headers": draft},
        {"limit": "40/2 seconds", "window": "fixed", "quota_headers": legacy},
    ],
    ids=["silent", "Retry-After", "RateLimit", "X-RateLimit"],
)
def test_the_limit_is_found_and_kept_to(
    site: Callable[..., Site], options: dict[str, Any]
) -> None:
    server = site(PAGES, **options)
    result = crawl(urls=server.page_urls(), settings=BRISK, timeout=120)
    served = server.pages_served()
    assert len(served) == PAGES
    assert set(served.values()) == {1}
    assert server.refusals() <= PAGES / 50
    # The fastest possible crawl takes 30 s; most of ours is at nearly that speed.
    times = [a.at for a in server.arrivals if a.status == 200]
    assert times[-1] - times[PAGES // 2] < 1.35 * PAGES / 2 / 20
    assert "Traceback" not in result.log


def test_a_host_that_limits_connections_is_found_out(
    site: Callable[..., Site],
) -> None:
    server = site(PAGES, limit_in_flight=3, latency=0.15)
    result = crawl(urls=server.page_urls(), settings=BRISK, timeout=120)
    assert len(result.items) == PAGES
    assert server.refusals() <= PAGES / 50
    late = [a for a in server.arrivals if a.path.startswith("/page")][PAGES // 2 :]
    assert sum(a.in_flight > 3 for a in late) <= 3


def test_a_host_that_gets_slow_is_relieved(site: Callable[..., Site]) -> None:
    """One worker, 40 ms a page: what comes faster than 25/s waits."""
    server = site(PAGES, workers=1, latency=0.04)
    result = crawl(urls=server.page_urls(), settings=BRISK, timeout=120)
    assert len(result.items) == PAGES
    arrivals = [a for a in server.arrivals if a.path.startswith("/page")]
    late = arrivals[PAGES // 2 :]
    crowded = sum(a.in_flight >= 4 for a in late) / len(late)
    assert crowded < 0.2
    gaps = [b.at - a.at for a, b in pairwise(late)]
    assert sum(gaps) / len(gaps) < 1.25 / 25 * 1.25
