"""robots.txt: Crawl-delay and Request-rate, judged by the server's log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.crawl import REACTORS, Reactor, crawl
from tests.site import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.site import Site

FAST = {"POLITENESS_START_RATE": 1000, "POLITENESS_MAX_RATE": 1000}

DELAY = "User-agent: *\nCrawl-delay: 0.2\n"


def robots_requests(server: Site) -> int:
    return [arrival.path for arrival in server.arrivals].count("/robots.txt")


@pytest.mark.parametrize("reactor", REACTORS)
@pytest.mark.parametrize("obey", [True, False])
def test_crawl_delay_is_never_undercut(
    site: Callable[..., Site], obey: bool, reactor: Reactor
) -> None:
    server = site(12, robots=DELAY)
    settings = {**FAST, "ROBOTSTXT_OBEY": obey}
    result = crawl(urls=server.page_urls(), settings=settings, reactor=reactor)
    assert len(result.items) == 12
    assert server.arrivals[0].path == "/robots.txt"
    assert robots_requests(server) == 1
    assert min(server.gaps()) >= 0.2


@pytest.mark.parametrize(
    ("robots", "spacing"),
    [
        ("User-agent: *\nRequest-rate: 2/1\n", 0.5),
        ("User-agent: *\nRequest-rate: 120/1m\n", 0.5),
        ("User-agent: *\nRequest-rate: 10/1s\nCrawl-delay: 0.4\n", 0.4),
        (
            "User-agent: *\nCrawl-delay: 9\n\nUser-agent: tester\nCrawl-delay: 0.3\n",
            0.3,
        ),
        ("User-agent: tester\nCrawl-delay: 9\n\nUser-agent: *\nDisallow:\n", 1.0),
    ],
)
def test_the_rules_for_our_own_user_agent_count(
    site: Callable[..., Site], robots: str, spacing: float
) -> None:
    server = site(4, robots=robots)
    settings = {
        **FAST,
        "USER_AGENT": "tester/1.0 (+https://example.org)",
        "POLITENESS_ROBOTS_MAX_DELAY": 1.0,
    }
    crawl(urls=server.page_urls(), settings=settings)
    gaps = server.gaps()
    assert spacing <= min(gaps)
    assert max(gaps) < spacing + 0.3


@pytest.mark.parametrize(
    "line",
    [
        "Crawl-delay: nan",
        "Crawl-delay: inf",
        "Crawl-delay: -3",
        "Crawl-delay: soon",
        "Crawl-delay: 1e400",
        f"Request-rate: 1/{'9' * 400}s",
    ],
    ids=lambda line: line[:30],
)
def test_nonsense_is_ignored_with_a_warning(
    site: Callable[..., Site], line: str
) -> None:
    server = site(6, robots=f"User-agent: *\n{line}\n")
    result = crawl(urls=server.page_urls(), settings=FAST)
    assert len(result.items) == 6
    assert f"{line[:100]!r}, which makes no sense" in result.log
    assert "Traceback" not in result.log
    assert result.seconds < 3


@pytest.mark.parametrize("filling", ["\n" * 400_000, "Crawl-delay: 0.1\n" * 20_000])
def test_a_long_robots_txt_does_not_stop_the_crawl(
    site: Callable[..., Site], filling: str
) -> None:
    server = site(4, robots=f"User-agent: *\nCrawl-delay: 0.2\n{filling}")
    result = crawl(urls=server.page_urls(), settings=FAST)
    assert min(server.gaps()) >= 0.1
    assert result.cpu_seconds < 3


def test_a_very_long_delay_is_clamped_with_a_warning(site: Callable[..., Site]) -> None:
    server = site(2, robots="User-agent: *\nCrawl-delay: 86400\n")
    settings = {**FAST, "POLITENESS_ROBOTS_MAX_DELAY": 1}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(result.items) == 2
    assert "asks for 86400 s between requests" in result.log
    assert "POLITENESS_ROBOTS_MAX_DELAY makes it 1 s" in result.log


def test_learned_rates_stay_above_the_crawl_delay(site: Callable[..., Site]) -> None:
    server = site(40, robots="User-agent: *\nCrawl-delay: 0.1\n")
    settings = {"POLITENESS_START_RATE": 5, "POLITENESS_RAISE_AFTER": 2}
    crawl(urls=server.page_urls(), settings=settings)
    assert min(server.gaps()) >= 0.1


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("obey", [True, False])
def test_robots_txt_that_cannot_be_served_slows_us_down(
    site: Callable[..., Site], status: int, obey: bool
) -> None:
    server = site(4, robots=Answer(status))
    settings: dict[str, Any] = {
        "POLITENESS_START_RATE": 8,
        "POLITENESS_BACKOFF_BASE": 0.2,
        "ROBOTSTXT_OBEY": obey,
    }
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(result.items) == 4
    # Asked four times, with pauses of 0.2, 0.4, 0.8 and 1.6 s.
    assert [a.path for a in server.arrivals[:4]] == ["/robots.txt"] * 4
    assert robots_requests(server) == 4
    assert server.arrivals[4].at - server.arrivals[0].at > 2.5


def test_a_host_without_robots_txt_is_asked_once(site: Callable[..., Site]) -> None:
    server = site(20)
    result = crawl(urls=server.page_urls(), settings=FAST)
    assert len(result.items) == 20
    assert robots_requests(server) == 1


@pytest.mark.parametrize("reactor", REACTORS)
@pytest.mark.parametrize("obey", [True, False])
@pytest.mark.parametrize("location", ["/en/robots.txt", "/rules", "/page/0"])
def test_a_redirected_robots_txt_counts_for_the_host_that_redirects(
    site: Callable[..., Site], location: str, obey: bool, reactor: Reactor
) -> None:
    def judge(path: str, nth: int) -> Answer | None:
        if path == "/robots.txt":
            return Answer(301, {"Location": location})
        if path == location and nth == 1:
            return Answer(body=DELAY.encode())
        return None

    server = site(4, answer=judge)
    settings = {**FAST, "ROBOTSTXT_OBEY": obey}
    result = crawl(
        urls=server.page_urls(), settings=settings, reactor=reactor, timeout=15
    )
    assert len(result.items) == 4
    pages = [a.at for a in server.arrivals[2:]]
    assert pages[-1] - pages[0] >= 3 * 0.2


@pytest.mark.parametrize("obey", [True, False])
def test_a_robots_txt_that_redirects_in_circles_holds_nobody_up(
    site: Callable[..., Site], obey: bool
) -> None:
    server = site(4, robots=Answer(302, {"Location": "/robots.txt"}))
    requests = [
        {"url": url, "meta": {"dont_obey_robotstxt": number % 2 == 1}}
        for number, url in enumerate(server.page_urls())
    ]
    settings = {**FAST, "ROBOTSTXT_OBEY": obey, "REDIRECT_MAX_TIMES": 3}
    result = crawl(requests=requests, settings=settings, timeout=15)
    assert len(result.items) == 4
    assert robots_requests(server) == 4


def test_requests_that_need_not_obey_robots_txt_wait_for_its_delay(
    site: Callable[..., Site],
) -> None:
    """Scrapy's middleware has asked for it, for the first page, and lets others by."""
    slow = Answer(body=DELAY.encode(), delay=0.5)
    server = site(6, robots=slow)
    requests = [
        {"url": url, "meta": {"dont_obey_robotstxt": number > 0}}
        for number, url in enumerate(server.page_urls())
    ]
    crawl(requests=requests, settings={**FAST, "ROBOTSTXT_OBEY": True})
    assert robots_requests(server) == 1
    assert min(server.gaps()) >= 0.2


@pytest.mark.parametrize("meta", ["download_slot", "politeness_slot"])
def test_a_slot_of_ones_own_keeps_the_delay_of_its_hosts(
    site: Callable[..., Site], meta: str
) -> None:
    server = site(5, robots=DELAY)
    requests = [{"url": url, "meta": {meta: "mine"}} for url in server.page_urls()]
    crawl(requests=requests, settings=FAST)
    assert min(server.gaps()) >= 0.2


def test_the_delay_holds_for_slots_by_address(site: Callable[..., Site]) -> None:
    server = site(6, robots=DELAY)
    urls = [url.replace("127.0.0.1", "localhost") for url in server.page_urls()]
    settings = {**FAST, "CONCURRENT_REQUESTS_PER_IP": 4}
    # From Scrapy 2.14 on, that setting is deprecated.
    env = {"PYTHONWARNINGS": "default"}
    result = crawl(urls=urls, settings=settings, env=env)
    assert len(result.items) == 6
    assert min(server.gaps()) >= 0.2


def test_robots_may_be_switched_off(site: Callable[..., Site]) -> None:
    server = site(6, robots=DELAY)
    settings = {**FAST, "POLITENESS_ROBOTS": False}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert robots_requests(server) == 0
    assert result.seconds < 1
