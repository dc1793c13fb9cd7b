"""robots.txt: Crawl-delay, Request-rate, Visit-time, judged by the server's log."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawl import REACTORS, Reactor, crawl, start_crawl
from tests.support.settings import fixed
from tests.support.site import Answer
from tests.support.spiders import Pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scrapy.http import Response

    from tests.support.site import Site

FAST = {"POLITENESS_START_RATE": 1000, "POLITENESS_MAX_RATE": 1000}

DELAY = "User-agent: *\nCrawl-delay: 0.2\n"


def robots_requests(server: Site) -> int:
    return [arrival.path for arrival in server.arrivals].count("/robots.txt")


@pytest.mark.everywhere
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
    assert min(server.gaps()) > 0.2 - server.jitter
    assert sum(server.gaps()) > 12 * 0.2 - server.jitter


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
    assert min(gaps) > spacing - server.jitter
    assert sum(gaps) < 4 * spacing + 0.3 + server.lost


@pytest.mark.parametrize(
    "line",
    [
        "Crawl-delay: nan",
        "Crawl-delay: inf",
        "Crawl-delay: -3",
        "Crawl-delay: soon",
        "Crawl-delay: 1e400",
        f"Request-rate: 1/{'9' * 400}s",
        "Visit-time: 0600",
        "Visit-time: 2500-2600",
        "Visit-time: at night",
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
    assert result.seconds < 5 + server.lost


@pytest.mark.parametrize(
    "filling",
    ["\n" * 400_000, "Crawl-delay: 0.1\n" * 20_000],
    ids=["empty lines", "delays"],  # pytest hands them to the crawl's environment
)
def test_a_long_robots_txt_does_not_stop_the_crawl(
    site: Callable[..., Site], filling: str
) -> None:
    server = site(4, robots=f"User-agent: *\nCrawl-delay: 0.2\n{filling}")
    result = crawl(urls=server.page_urls(), settings=FAST)
    assert min(server.gaps()) > 0.1 - server.jitter
    assert result.cpu_seconds < 3


@pytest.mark.parametrize(
    "first",
    [
        None,
        Answer(301, {"Location": "/rules"}),
        Answer(503, {"Retry-After": "0"}),
    ],
    ids=["at once", "after a redirect", "after a refusal"],
)
def test_a_huge_robots_txt_is_obeyed_as_far_as_it_is_read(
    site: Callable[..., Site], first: Answer | None
) -> None:
    rules = b"User-agent: *\nDisallow: /page/1\n" + b"# filling\n" * 1_100_000

    def judge(path: str, nth: int) -> Answer | None:
        if path == "/robots.txt" and first is not None and nth == 1:
            return first
        return Answer(body=rules) if path in ("/robots.txt", "/rules") else None

    server = site(3, answer=judge)
    settings = {**FAST, "ROBOTSTXT_OBEY": True, "POLITENESS_BACKOFF_BASE": 0.1}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert sorted(item.get("status", 0) for item in result.items) == [0, 200, 200]
    assert "/page/1" not in server.pages_served()


def test_a_very_long_delay_is_clamped_with_a_warning(site: Callable[..., Site]) -> None:
    server = site(2, robots="User-agent: *\nCrawl-delay: 86400\n")
    settings = {**FAST, "POLITENESS_ROBOTS_MAX_DELAY": 1}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(result.items) == 2
    assert "asks for 86400 s between requests" in result.log
    assert "POLITENESS_ROBOTS_MAX_DELAY makes it 1 s" in result.log


def test_any_delay_is_obeyed_where_no_maximum_is_set(
    site: Callable[..., Site],
) -> None:
    server = site(2, robots="User-agent: *\nCrawl-delay: 900\n")
    with start_crawl(urls=server.page_urls(), settings=FAST) as running:
        running.wait_for_log("asks for 900 s between requests, so 1,000 pages will")
        time.sleep(2)
        running.interrupt()
        running.wait()
    assert [arrival.path for arrival in server.arrivals] == ["/robots.txt"]


@pytest.mark.parametrize("obey", [False, True])
def test_the_crawl_delay_of_an_offsite_host_is_kept(
    site: Callable[..., Site], obey: bool
) -> None:
    """As Scrapy does not filter start URLs, such a host is crawled."""
    server = site(4, robots="User-agent: *\nCrawl-delay: 0.5\n")
    settings = {**FAST, "ROBOTSTXT_OBEY": obey}
    requests = [{"url": url, "dont_filter": True} for url in server.page_urls()]
    result = crawl(
        requests=requests, settings=settings, allowed_domains=["example.org"]
    )
    assert len(result.items) == 4
    assert min(server.gaps()[1:]) > 0.5 - server.jitter


def test_learned_rates_stay_above_the_crawl_delay(site: Callable[..., Site]) -> None:
    server = site(40, robots="User-agent: *\nCrawl-delay: 0.1\n")
    settings = {"POLITENESS_START_RATE": 5, "POLITENESS_RAISE_AFTER": 2}
    crawl(urls=server.page_urls(), settings=settings)
    assert min(server.gaps()) > 0.1 - server.jitter


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
    result = crawl(urls=server.page_urls(), settings=settings, reactor=reactor)
    assert len(result.items) == 4
    pages = [a.at for a in server.arrivals[2:]]
    assert pages[-1] - pages[0] > 3 * 0.2 - server.jitter


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
    assert min(server.gaps()) > 0.2 - server.jitter


@pytest.mark.parametrize("meta", ["download_slot", "politeness_slot"])
def test_a_slot_of_ones_own_keeps_the_delay_of_its_hosts(
    site: Callable[..., Site], meta: str
) -> None:
    server = site(5, robots=DELAY)
    requests = [{"url": url, "meta": {meta: "mine"}} for url in server.page_urls()]
    crawl(requests=requests, settings=FAST)
    assert min(server.gaps()) > 0.2 - server.jitter


def test_the_delay_holds_for_slots_by_address(site: Callable[..., Site]) -> None:
    server = site(6, robots=DELAY)
    urls = [url.replace("127.0.0.1", "localhost") for url in server.page_urls()]
    settings = {**FAST, "CONCURRENT_REQUESTS_PER_IP": 4}
    # From Scrapy 2.14 on, that setting is deprecated.
    env = {"PYTHONWARNINGS": "default"}
    result = crawl(urls=urls, settings=settings, env=env)
    assert len(result.items) == 6
    assert min(server.gaps()) > 0.2 - server.jitter


def test_robots_may_be_switched_off(site: Callable[..., Site]) -> None:
    server = site(6, robots=DELAY)
    settings = {**FAST, "POLITENESS_ROBOTS": False}
    crawl(urls=server.page_urls(), settings=settings)
    assert robots_requests(server) == 0
    assert sum(server.gaps()) < 5 * 0.2 + server.lost


CLOSED = "robots.txt allows visits from"


def visit_time(begin: int, end: int) -> str:
    """Return a robots.txt with hours that begin and end so many hours from now."""
    now = datetime.now(timezone.utc)
    times = [f"{now + timedelta(hours=hours):%H%M}" for hours in (begin, end)]
    return f"User-agent: *\nVisit-time: {times[0]}-{times[1]}\n"


@pytest.mark.parametrize("reactor", REACTORS)
@pytest.mark.parametrize("obey", [True, False])
def test_nothing_is_fetched_outside_the_visit_time(
    site: Callable[..., Site], obey: bool, reactor: Reactor
) -> None:
    server = site(20, robots=visit_time(4, 8))
    settings = {**FAST, "ROBOTSTXT_OBEY": obey}
    with start_crawl(
        urls=server.page_urls(), settings=settings, reactor=reactor
    ) as running:
        running.wait_for_log(CLOSED)
        running.interrupt()
        result = running.wait(timeout=10)
    assert [arrival.path for arrival in server.arrivals] == ["/robots.txt"]
    assert result.stats["finish_reason"] == "shutdown"
    assert result.log.count(CLOSED) == 1
    assert "UTC; pausing for 4 h" in result.log
    assert "Traceback" not in result.log


def test_a_closed_host_holds_up_no_other_and_is_told_once(
    site: Callable[..., Site],
) -> None:
    closed = site(20, hosts=["127.0.1.1"], robots=visit_time(4, 8))
    open_ = site(40, hosts=["127.0.1.2"], robots=visit_time(-4, 8))
    urls = closed.page_urls("127.0.1.1") + open_.page_urls("127.0.1.2")
    settings = {**FAST, "CONCURRENT_REQUESTS": 4, "CLOSESPIDER_TIMEOUT": 3}
    result = crawl(urls=urls, settings=settings, timeout=20)
    assert result.stats["finish_reason"] == "closespider_timeout"
    assert [arrival.path for arrival in closed.arrivals] == ["/robots.txt"]
    assert sum(open_.pages_served().values()) == 41
    assert result.log.count(CLOSED) == 1
    # Those that the queue handed out before robots.txt came, and no more.
    assert result.stats.get("politeness/handed_back", 0) <= 4


@pytest.mark.parametrize(
    "robots",
    [visit_time(-4, 4), visit_time(-20, 2), visit_time(5, 5)],
    ids=["now", "nearly always", "always"],
)
def test_within_the_visit_time_all_is_fetched(
    site: Callable[..., Site], robots: str
) -> None:
    server = site(10, robots=robots)
    result = crawl(urls=server.page_urls(), settings=FAST)
    assert len(result.items) == 10
    assert CLOSED not in result.log
    assert result.stats["finish_reason"] == "finished"


def test_the_visit_time_of_our_own_user_agent_counts(
    site: Callable[..., Site],
) -> None:
    ours = visit_time(-4, 4).replace("*", "tester")
    server = site(5, robots=f"{visit_time(4, 8)}\n{ours}")
    result = crawl(urls=server.page_urls(), settings={**FAST, "USER_AGENT": "tester"})
    assert len(result.items) == 5


def test_hours_and_delay_are_kept_together(site: Callable[..., Site]) -> None:
    server = site(4, robots=visit_time(-4, 4) + "Crawl-delay: 0.2\n")
    crawl(urls=server.page_urls(), settings=FAST)
    assert min(server.gaps()) > 0.2 - server.jitter


def test_what_was_held_outside_the_visit_time_is_fetched_by_a_later_run(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = site(10, robots=visit_time(4, 8))
    settings = {**FAST, "JOBDIR": str(tmp_path)}
    with start_crawl(urls=server.page_urls(), settings=settings) as running:
        running.wait_for_log(CLOSED)
        running.interrupt()
        running.wait(timeout=10)
    server.robots = visit_time(-4, 4)
    result = crawl(urls=server.page_urls(), settings=settings, timeout=20)
    assert len(result.items) == 10
    pages = [a.path for a in server.arrivals if a.path != "/robots.txt"]
    assert len(pages) == len(set(pages)) == 10


class AtTime(Pages):
    """The clock on the wall of its process shows ``wall_now`` when it starts."""

    name = "at_time"
    wall_now: float

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        wall_clock = time.time
        shift = self.wall_now - wall_clock()
        time.time = lambda: wall_clock() + shift

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"wall_time": time.time()}


MORNING = "User-agent: *\nVisit-time: 0600-0845\n"
BEGIN = datetime(2030, 5, 17, 6, 0, tzinfo=timezone.utc).timestamp()
END = datetime(2030, 5, 17, 8, 45, tzinfo=timezone.utc).timestamp()


def test_the_crawl_goes_on_when_the_visit_time_begins(
    site: Callable[..., Site],
) -> None:
    server = site(10, robots=MORNING)
    urls = server.page_urls()
    result = crawl(AtTime, urls=urls, settings=FAST, wall_now=BEGIN - 4)
    assert len(result.items) == 10
    assert min(item["wall_time"] for item in result.items) >= BEGIN
    assert result.log.count("from 06:00 to 08:45 UTC; pausing for 0.0") == 1
    assert result.log.count(CLOSED) == 1


def test_the_crawl_falls_silent_when_the_visit_time_ends(
    site: Callable[..., Site],
) -> None:
    server = site(100, robots=MORNING)
    settings = fixed(5, POLITENESS_ROBOTS=True, CLOSESPIDER_TIMEOUT=8)
    urls = server.page_urls()
    result = crawl(AtTime, urls=urls, settings=settings, wall_now=END - 4)
    assert result.stats["finish_reason"] == "closespider_timeout"
    # The last one was sent in time, and answered a little later.
    latest = max(item["wall_time"] for item in result.items)
    assert END - 4 < latest < END + 1 + server.lost
    assert result.log.count("from 06:00 to 08:45 UTC; pausing for 21 h") == 1
    assert result.log.count(CLOSED) == 1
