"""Slots for parts of a site, and for whole domains, judged by the site's log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.crawl.test_shared_limits import most_in_any
from tests.support.crawl import crawl
from tests.support.settings import NO_ROBOTS, fixed
from tests.support.site import Answer, Limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.site import Arrival, Site

SEARCH: dict[str, Any] = {"POLITENESS_SLOTS": [(r"/page/\d+\?q=", "search")]}


def searches(server: Site) -> list[str]:
    return [f"{url}?q=1" for url in server.page_urls()]


def split(arrivals: list[Arrival]) -> tuple[list[Arrival], list[Arrival]]:
    """Searches, and the rest."""
    return (
        [a for a in arrivals if "?q=" in a.path],
        [a for a in arrivals if "?q=" not in a.path and a.path != "/robots.txt"],
    )


@pytest.mark.everywhere
def test_a_part_of_a_site_has_a_rate_of_its_own(site: Callable[..., Site]) -> None:
    """Each part has a limiter, and neither is ever above its limit."""
    parts = {True: Limit("2/1second", "moving"), False: Limit("12/1second", "moving")}

    def judge(path: str, nth: int) -> Answer | None:
        accepted = path == "/robots.txt" or parts["?q=" in path].accepts("")
        return None if accepted else Answer(429)

    server = site(20, answer=judge)
    settings = {
        **SEARCH,
        "POLITENESS_LIMITS": {
            "search": {"limit": "3/2s", "adaptive": False},
            "127.0.0.1": {"start_rate": 8, "max_rate": 8},
        },
    }
    urls = [*searches(server)[:6], *server.page_urls()]
    result = crawl(urls=urls, settings=settings)
    assert len(result.items) == 26
    assert server.refusals() == 0
    searched, others = split(server.arrivals)
    assert most_in_any(1 - server.jitter, searched) <= 2
    # Neither waits for the other.
    assert others[-1].at - others[0].at < 19 / 8 + 1 + server.lost
    assert searched[-1].at - searched[0].at < 5 / 1.5 + 1 + server.lost
    assert result.stats["politeness/slots/search/served"] == 6


def test_the_limit_of_the_host_holds_over_all_of_its_slots(
    site: Callable[..., Site],
) -> None:
    server = site(10)
    settings = {
        **NO_ROBOTS,
        **SEARCH,
        "POLITENESS_START_RATE": 10,
        "POLITENESS_LIMITS": {"127.0.0.1": {"limit": "6/s", "adaptive": False}},
    }
    urls = [*searches(server), *server.page_urls()]
    result = crawl(urls=urls, settings=settings)
    assert len(result.items) == 20
    assert most_in_any(1 - server.jitter, server.arrivals) <= 6
    # And it is used, by both.
    arrivals = server.arrivals
    assert arrivals[-1].at - arrivals[0].at < 19 / 6 * 1.2 + server.lost
    assert all(len(part) >= 3 for part in split(arrivals[:10]))


def test_the_concurrency_of_the_host_holds_over_all_of_its_slots(
    site: Callable[..., Site],
) -> None:
    server = site(12, latency=0.3)
    settings = {
        **NO_ROBOTS,
        **SEARCH,
        "POLITENESS_START_RATE": 50,
        "POLITENESS_MAX_RATE": 50,
        "POLITENESS_LIMITS": {"127.0.0.1": {"concurrency": 3}},
    }
    urls = [*searches(server), *server.page_urls()]
    result = crawl(urls=urls, settings=settings)
    assert len(result.items) == 24
    assert server.max_in_flight <= 3
    arrivals = server.arrivals
    assert arrivals[-1].at - arrivals[0].at < 24 / 3 * 0.4 + 2 + server.lost
    assert all(split(arrivals[:12]))


def test_robots_txt_holds_over_all_slots_of_its_host(
    site: Callable[..., Site],
) -> None:
    server = site(3, robots="User-agent: *\nCrawl-delay: 0.4\n")
    settings = {**SEARCH, "POLITENESS_START_RATE": 10}
    crawl(urls=[*searches(server), *server.page_urls()], settings=settings)
    assert len(server.arrivals) == 7
    assert min(server.gaps()) > 0.4 - server.jitter


def test_the_meta_of_a_request_wins(site: Callable[..., Site]) -> None:
    server = site(2)
    metas: list[dict[str, Any]] = [
        {"politeness_slot": "key 7"},
        {"download_slot": "key 8"},
        {"throttling_scopes": ["key 9"]},
        {},
    ]
    requests = [{"url": f"{server.url}/page/0?q=1", "meta": meta} for meta in metas]
    settings = fixed(1, **SEARCH, DUPEFILTER_CLASS="scrapy.dupefilters.BaseDupeFilter")
    result = crawl(requests=requests, settings=settings)
    # Four slots, so all at once.
    assert sum(server.gaps()) < 0.8 + server.lost
    for slot in ("key 7", "key 8", "key 9", "search"):
        assert result.stats[f"politeness/slots/{slot}/served"] == 1


def test_all_hosts_of_a_domain_are_one_slot(site: Callable[..., Site]) -> None:
    server = site(1)
    blogs = [f"blog{number}.example.co.uk" for number in range(60)]
    others = [f"shop{number}.co.uk" for number in range(10)]
    requests = [
        {"url": f"http://{host}/page/0", "meta": {"proxy": server.url}}
        for host in blogs + others
    ]
    settings = fixed(20, POLITENESS_GROUP_BY="domain")
    result = crawl(requests=requests, settings=settings)
    assert len(result.items) == 70
    together = [a.at for a in server.arrivals if a.host.startswith("blog")]
    apart = [a.at for a in server.arrivals if a.host.startswith("shop")]
    assert len(together) == 60
    assert together[-1] - together[0] > 59 / 20 - server.jitter
    assert apart[-1] - together[0] < 1 + server.lost
    assert result.stats["politeness/slots/example.co.uk/served"] == 60


def test_a_limit_for_one_host_of_a_domain_holds_within_its_slot(
    site: Callable[..., Site],
) -> None:
    server = site(4)
    requests = [
        {"url": f"http://{host}.example.org/page/{n}", "meta": {"proxy": server.url}}
        for n in range(4)
        for host in ("slow", "quick")
    ]
    settings = fixed(
        20,
        POLITENESS_GROUP_BY="domain",
        POLITENESS_LIMITS={"slow.example.org": {"limit": "2/s"}},
    )
    crawl(requests=requests, settings=settings)
    assert min(server.gaps("slow.example.org")) > 0.5 - server.jitter
    quick = [a.at for a in server.arrivals if a.host == "quick.example.org"]
    assert quick[-1] - quick[0] < 1 + server.lost


QUICK = {
    **NO_ROBOTS,
    "POLITENESS_START_RATE": 40,
    "POLITENESS_MAX_RATE": 40,
    "POLITENESS_MIN_RATE": 25,
    "POLITENESS_BACKOFF_BASE": 0.1,
    "LOG_LEVEL": "INFO",
}
SPLIT = "a slot of its own"


def mixed(server: Site, count: int) -> list[str]:
    """Every eighth page is a search."""
    paths = (f"/search/{n}" if n % 8 == 7 else f"/wiki/{n}" for n in range(count))
    return [server.url + path for path in paths]


def test_a_part_that_is_refused_alone_becomes_a_slot(
    site: Callable[..., Site],
) -> None:
    def judge(path: str, nth: int) -> Answer:
        is_refused = path in refused and nth == 1
        return Answer(429) if is_refused else Answer()

    # The first ones, and some when there is enough to compare with.
    refused = {f"/search/{7 + 8 * n}" for n in (0, 1, 2, 3, 4, 5, 12, 13, 14)}
    server = site(answer=judge)
    result = crawl(urls=mixed(server, 160), settings=QUICK)
    assert len(result.items) == 160
    assert "127.0.0.1 search" in result.log
    assert result.log.count(SPLIT) == 1
    assert r'(r"^https?://127\.0\.0\.1(:\d+)?/search([/?#]|$)"' in result.log
    assert result.stats["politeness/slots/127.0.0.1 search/served"] > 5
    assert result.stats["politeness/slots/127.0.0.1/served"] >= 140


@pytest.mark.parametrize("switch", [True, False])
def test_what_is_not_split(site: Callable[..., Site], switch: bool) -> None:
    """Pages of every part with a split allowed, and one part where it is not."""

    def judge(path: str, nth: int) -> Answer:
        number = int(path.rpartition("/")[2])
        is_bad = number % 13 == 3 if switch else path.startswith("/search")
        return Answer(429) if nth == 1 and is_bad else Answer()

    server = site(answer=judge)
    settings = {**QUICK, "POLITENESS_SPLIT": switch, "CLOSESPIDER_ITEMCOUNT": 80}
    result = crawl(urls=mixed(server, 120), settings=settings)
    assert server.refusals() > 3
    assert SPLIT not in result.log
