"""Quotas that a host states in its headers, and for what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.crawl import crawl
from tests.support.quota_dialects import CALENDAR, DIALECTS, StatingLimiter
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


def test_every_dialect_is_understood(site: Callable[..., Site]) -> None:
    """Each host allows few more requests until the reset: those who do not see that are
    refused. One crawl for all, since each would take as long."""
    servers = {}
    for nth, dialect in enumerate(DIALECTS, 2):
        by_rate = dialect in (CALENDAR, "X-Rate-Limit-Interval")  # one each second
        limit, window = (15, 15) if by_rate else (100, 12)
        limiter = StatingLimiter(dialect, limit, window, used=0 if by_rate else 94)
        servers[dialect] = site(10, hosts=[f"127.0.0.{nth}"], answer=limiter)
    urls = [url for server in servers.values() for url in server.page_urls()]
    settings = {**fixed(2), "CONCURRENT_REQUESTS": 100, "LOG_LEVEL": "INFO"}
    result = crawl(urls=urls, settings=settings)
    assert len(result.items) == len(urls)
    # On a busy machine, one may be sent at the end of a window and arrive in the next.
    refused = {name: server.refusals() for name, server in servers.items()}
    assert {name: count for name, count in refused.items() if count > 1} == {}
    for name, server in servers.items():
        times = [arrival.at for arrival in server.arrivals]
        assert times[-1] - times[0] > 8 - server.jitter, name
