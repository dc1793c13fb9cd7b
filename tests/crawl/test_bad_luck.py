"""What goes wrong for no reason of ours: real crawls of hosts that have no limit and
could keep up with more than the settings allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.crawl import crawl
from tests.support.failures import UNAVAILABLE, Failures, runs
from tests.support.settings import UP_TO_20
from tests.support.site import STATIC_ROBOTS, Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.site import Site


@pytest.mark.parametrize(
    "failures",
    [
        Failures(errors=0.05, seed=164),
        Failures(events={2: UNAVAILABLE}),
        Failures(events={1: Answer(429, {"Retry-After": "5"})}),
        Failures(outages=[(4.0, 10.0)]),
        Failures(latency=runs(0.02, 0.4, length=20)),
    ],
    ids=[
        "one page in twenty",
        "a single 503",
        "a wait at the start",
        "an outage",
        "slow pages beside a static robots.txt",
    ],
)
def test_what_is_no_limit_is_not_taken_for_one(
    site: Callable[..., Site], failures: Failures
) -> None:
    server = site(200, failures=failures, robots=STATIC_ROBOTS)
    urls = server.page_urls()
    result = crawl(urls=urls, settings=UP_TO_20, timeout=120)
    assert {item["url"] for item in result.items} == set(urls)
    served = server.pages_served()
    assert all(served[f"/page/{number}"] == 1 for number in range(200))
    # The last page may have been refused, too.
    assert result.stats["politeness/slots/127.0.0.1/rate"] >= 20 / 2
    assert "politeness/slots/127.0.0.1/ceiling" not in result.stats
    assert "just under what the host allows" not in result.log
    assert "because of overload" not in result.log
