"""Quotas that a host states in its headers, and for what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.crawl import crawl
from tests.support.settings import SEARCHING, fixed
from tests.support.site import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.site import Site

SPENT = {"RateLimit": '"logins";r=0;t=6', "RateLimit-Policy": '"logins";q=1;w=6'}
SPLIT = "a slot of its own"


def wiki_with_logins(server: Site) -> list[str]:
    """Pages, the 20th and the 40th of which are logins."""
    paths = [f"/wiki/{n}" for n in range(100)]
    paths[20:20], paths[40:40] = ["/login/1"], ["/login/2"]
    return [server.url + path for path in paths]


def pages_between(server: Site, first: float, second: float) -> int:
    return sum(first < arrival.at < second for arrival in server.arrivals)


def test_the_quota_of_a_part_holds_up_nothing_else(site: Callable[..., Site]) -> None:
    def judge(path: str, nth: int) -> Answer:
        return Answer(headers=SPENT if path.startswith("/login") else {})

    server = site(answer=judge)
    settings = {**SEARCHING, "POLITENESS_START_RATE": 20}
    result = crawl(urls=wiki_with_logins(server), settings=settings)
    assert len(result.items) == 102
    assert result.log.count(SPLIT) == 1
    assert "/login states a quota that other pages do not" in result.log
    first, second = (a.at for a in server.arrivals if a.path.startswith("/login"))
    assert second - first > 6 - server.jitter
    assert pages_between(server, first, second) > 20
    assert result.stats["politeness/slots/127.0.0.1 login/served"] == 2


def test_a_quota_with_the_name_of_a_resource_is_that_of_its_part(
    site: Callable[..., Site],
) -> None:
    """As at GitHub, where all pages state some quota."""

    def judge(path: str, nth: int) -> Answer:
        is_login = path.startswith("/login")
        return Answer(
            headers={
                "X-RateLimit-Limit": "5000",
                "X-RateLimit-Remaining": "0" if is_login else "4000",
                "X-RateLimit-Reset": "6",
                "X-RateLimit-Resource": "login" if is_login else "core",
            }
        )

    server = site(answer=judge)
    settings = {**SEARCHING, "POLITENESS_START_RATE": 20}
    result = crawl(urls=wiki_with_logins(server), settings=settings)
    assert result.log.count(SPLIT) == 1
    first, second = (a.at for a in server.arrivals if a.path.startswith("/login"))
    assert second - first > 6 - server.jitter
    assert pages_between(server, first, second) > 20


def test_a_quota_that_all_pages_state_is_the_hosts(site: Callable[..., Site]) -> None:
    def judge(path: str, nth: int) -> Answer:
        left = "0" if path.startswith("/login") else "1000"
        headers = {"RateLimit": f'"all";r={left};t=4'}
        return Answer(headers=headers)

    server = site(answer=judge)
    urls = wiki_with_logins(server)[:30]
    result = crawl(urls=urls, settings=fixed(20, LOG_LEVEL="INFO"))
    assert len(result.items) == 30
    assert SPLIT not in result.log
    assert max(server.gaps()) > 4 - server.jitter
