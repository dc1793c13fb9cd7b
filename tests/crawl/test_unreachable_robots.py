"""robots.txt that cannot be fetched, or changes, judged by the server's log."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_politeness.robots import fetching
from tests.support.crawl import DEFAULT_REACTOR, REACTORS, Reactor, crawl, start_crawl
from tests.support.failures import HANGING, RESET
from tests.support.site import Answer
from tests.support.spiders import Pages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.site import Site

RULES = "User-agent: *\nDisallow: /page/1\n"

# Requests wait for 2.4 s, which is 120 times the base.
OBEYING: dict[str, Any] = {
    "ROBOTSTXT_OBEY": True,
    "POLITENESS_START_RATE": 20,
    "POLITENESS_MIN_RATE": 4,
    "POLITENESS_BACKOFF_BASE": 0.02,
    "DOWNLOAD_TIMEOUT": 0.5,
    "LOG_LEVEL": "INFO",
}


def unreachable(times: int, how: Answer) -> Callable[[str, int], Answer | None]:
    def judge(path: str, nth: int) -> Answer | None:
        return how if path == "/robots.txt" and nth <= times else None

    return judge


def asked_first(server: Site) -> int:
    """Return how often robots.txt was requested before the first page."""
    paths = [arrival.path for arrival in server.arrivals]
    pages = (place for place, path in enumerate(paths) if path != "/robots.txt")
    return next(pages, len(paths))


@pytest.mark.everywhere
@pytest.mark.parametrize(
    ("how", "reactor"),
    [
        *((Answer(503), reactor) for reactor in REACTORS),
        *((how, DEFAULT_REACTOR) for how in (Answer(500), RESET, HANGING)),
    ],
    ids=[*REACTORS, "500", "reset", "hung"],
)
def test_pages_wait_for_a_robots_txt_that_is_unreachable_for_a_while(
    site: Callable[..., Site], how: Answer, reactor: Reactor
) -> None:
    server = site(10, robots=RULES, answer=unreachable(4, how))
    settings = {**OBEYING, "POLITENESS_BACKOFF_BASE": 0.1}
    result = crawl(urls=server.page_urls(), settings=settings, reactor=reactor)
    # Twisted repeats what was reset by itself.
    assert asked_first(server) >= 5
    assert server.pages_served().keys() == {"/robots.txt"} | {
        f"/page/{number}" for number in range(10) if number != 1
    }
    assert len(result.items) == 10
    assert "requests to that host wait while it is requested again" in result.log
    assert "Traceback" not in result.log


@pytest.mark.parametrize(
    "how", [Answer(503), Answer(429), RESET], ids=["503", "429", "reset"]
)
def test_nothing_is_fetched_if_it_stays_unreachable(
    site: Callable[..., Site], how: Answer
) -> None:
    server = site(60, answer=unreachable(1000, how))
    result = crawl(urls=server.page_urls(), settings=OBEYING, timeout=60)
    assert {arrival.path for arrival in server.arrivals} == {"/robots.txt"}
    assert {item["error"] for item in result.items} == {"IgnoreRequest"}
    assert len(result.items) == 60
    assert result.stats["finish_reason"] == "finished"
    assert result.stats["robotstxt/forbidden"] == 60
    assert "which means that nothing may be crawled: dropping" in result.log


def test_unless_the_user_decides_otherwise(site: Callable[..., Site]) -> None:
    server = site(10, answer=unreachable(1000, Answer(503)))
    settings = {**OBEYING, "POLITENESS_ROBOTS_UNREACHABLE": "allow"}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(server.pages_served()) == 10
    assert asked_first(server) == 2
    assert "since POLITENESS_ROBOTS_UNREACHABLE is 'allow'" in result.log


@pytest.mark.parametrize("status", [429, 500, 503])
def test_where_only_delays_are_read_it_slows_the_crawl_down_but_stops_nothing(
    site: Callable[..., Site], status: int
) -> None:
    server = site(8, answer=unreachable(1000, Answer(status)))
    settings = {
        **OBEYING,
        "ROBOTSTXT_OBEY": False,
        "POLITENESS_BACKOFF_BASE": 0.5,
    }
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(server.pages_served()) == 8
    assert asked_first(server) == 2
    assert server.gaps()[0] > 0.5 - server.jitter
    assert result.stats["politeness/slowdowns"] >= 1
    assert "crawling without its rules, since ROBOTSTXT_OBEY is off" in result.log


def test_what_waits_for_robots_txt_is_fetched_by_a_later_run(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = site(6, answer=unreachable(1000, Answer(503)))
    settings = {**OBEYING, "POLITENESS_BACKOFF_BASE": 2, "JOBDIR": str(tmp_path)}
    with start_crawl(urls=server.page_urls(), settings=settings) as running:
        running.wait_for_log("requests to that host wait")
        running.interrupt()
        result = running.wait(timeout=10)
    assert result.stats["finish_reason"] == "shutdown"
    assert asked_first(server) == len(server.arrivals)
    server.answer, server.robots = None, RULES
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(server.pages_served()) == 6  # five pages and robots.txt
    assert len(result.items) == 6


def test_the_rules_of_an_offsite_host_are_obeyed(site: Callable[..., Site]) -> None:
    server = site(4, robots=RULES)
    requests = [{"url": url, "dont_filter": True} for url in server.page_urls()]
    crawl(requests=requests, settings=OBEYING, allowed_domains=["example.org"])
    assert "/page/1" not in server.pages_served()
    assert len(server.pages_served()) == 4


def test_the_pages_of_an_unknown_host_fail_as_without_robots_txt() -> None:
    settings = {**OBEYING, "RETRY_TIMES": 1}
    urls = [f"http://unknown.invalid/{number}" for number in range(5)]
    result = crawl(urls=urls, settings=settings, timeout=60)
    errors = {item["error"] for item in result.items}
    assert errors <= {"CannotResolveHostError", "DNSLookupError"}
    assert len(result.items) == 5


class ShortDays(Pages):
    """A robots.txt is out of date after a second."""

    name = "short_days"

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        vars(fetching)["USE_FOR"] = 1.0


@pytest.mark.parametrize("obey", [True, False])
def test_a_change_is_noticed_when_it_is_read_again(
    site: Callable[..., Site], obey: bool
) -> None:
    began_at = time.monotonic()

    def judge(path: str, nth: int) -> Answer | None:
        if path != "/robots.txt" or nth == 1:
            return None
        return Answer(body=b"User-agent: *\nCrawl-delay: 0.4\nDisallow: /page/4\n")

    server = site(50, answer=judge)
    settings = {
        **OBEYING,
        "ROBOTSTXT_OBEY": obey,
        "POLITENESS_MAX_RATE": 10,
        "CLOSESPIDER_TIMEOUT": 4,
    }
    crawl(ShortDays, urls=server.page_urls(), settings=settings)
    again = [a.at for a in server.arrivals if a.path == "/robots.txt"][1]
    late = [a for a in server.arrivals if a.at > again and a.path != "/robots.txt"]
    gaps = [b.at - a.at for a, b in pairwise(late[2:])]
    assert min(gaps) > 0.4 - server.jitter
    assert began_at < again
    forbidden = [a.path for a in late[2:] if a.path.startswith("/page/4")]
    assert not (obey and forbidden)
