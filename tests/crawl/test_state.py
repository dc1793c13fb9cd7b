"""What a later run knows of an earlier one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Request

from scrapy_politeness import PolitenessExtension
from scrapy_politeness.core.learned import Learned
from scrapy_politeness.storage.state_file import Entry, StateFile
from tests.support.crawl import REACTORS, Crawl, Reactor, crawl, start_crawl
from tests.support.settings import NO_ROBOTS
from tests.support.spiders import Pages
from tests.support.state import learned, save

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy.http import Response

    from tests.support.site import Arrival, Site


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


HOST = "127.0.0.1"


def brisk(state: Path, **more: Any) -> dict[str, Any]:
    return {
        **NO_ROBOTS,
        "POLITENESS_STATE": str(state),
        "POLITENESS_START_RATE": 10,
        "POLITENESS_BACKOFF_BASE": 0.5,
        **more,
    }


def climbing(state: Path, start: float) -> dict[str, Any]:
    """Of a host that stands twice the start rate, that is known after two seconds."""
    return brisk(
        state,
        POLITENESS_START_RATE=start,
        POLITENESS_MAX_RATE=2 * start,
        POLITENESS_RAISE_AFTER=2,
    )


def seconds_for(pages: int, arrivals: list[Arrival]) -> float:
    return arrivals[pages - 1].at - arrivals[0].at


def test_a_run_starts_near_the_limit_that_one_before_had_found_when_it_was_killed(
    site: Callable[..., Site], path: Path
) -> None:
    server = site(60, limit="10/second")
    job: dict[str, Any] = {
        "urls": server.page_urls(),
        "settings": brisk(
            path,
            POLITENESS_START_RATE=1,
            POLITENESS_RAISE_AFTER=2,
            POLITENESS_MAX_RATE=100,
        ),
    }
    with start_crawl(**job) as running:
        running.wait_for_log("because of 429")
        server.wait_for_arrivals(len(server.arrivals) + 3)
        running.kill()
        running.wait()
    before = server.arrivals
    second = crawl(**{**job, "urls": server.page_urls()[:15]})
    after = server.arrivals[len(before) :]
    assert len(second.items) == 15
    assert second.stats["politeness/recalled"] == 1
    assert f"Keeping learned rates in {path}" in second.log
    assert seconds_for(10, before) > 3
    assert seconds_for(10, after) < 2.5 + server.lost
    # Where a killed run has just met the limit, it does not know it exactly yet.
    assert sum(arrival.status == 429 for arrival in after) <= 4


@pytest.mark.everywhere
@pytest.mark.parametrize("reactor", REACTORS)
def test_all_is_saved_when_the_crawl_ends(
    site: Callable[..., Site], path: Path, reactor: Reactor
) -> None:
    server = site(15)
    settings = climbing(path, 5)
    result = crawl(urls=server.page_urls(), settings=settings, reactor=reactor)
    assert len(result.items) == 15
    entry = learned(path, HOST)
    assert entry is not None
    assert entry.learned == Learned(10.0, None, None)
    assert not path.with_name("state.sqlite-wal").exists()


def test_two_processes_may_use_one_file(site: Callable[..., Site], path: Path) -> None:
    hosts = [f"127.0.0.{number}" for number in range(1, 6)]
    server = site(15, hosts=hosts)
    urls = [url for host in hosts for url in server.page_urls(host)]
    job: dict[str, Any] = {"urls": urls, "settings": climbing(path, 5)}
    with start_crawl(**job) as one, start_crawl(**job) as other:
        results: list[Crawl] = [one.wait(), other.wait()]
    for result in results:
        assert len(result.items) == len(urls)
        assert "Traceback" not in result.log
        assert "The state file" not in result.log
    with StateFile(path) as state:
        assert all(state.learned(host) for host in hosts)


def test_a_crawl_goes_on_without_what_a_damaged_file_knew(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    tmp_path.joinpath("politeness.sqlite").write_bytes(b"garbage" * 500)
    server = site(3)
    settings = {"JOBDIR": str(tmp_path), "POLITENESS_START_RATE": 10}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(result.items) == 3
    assert "politeness.sqlite is damaged" in result.log


def test_a_file_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "items.json"
    path.write_text("[1, 2, 3]")
    settings = {"POLITENESS_STATE": str(path)}
    result = crawl(urls=["http://127.0.0.1:9/"], settings=settings)
    assert result.returncode != 0
    assert "items.json is another kind of file" in result.log
    assert path.read_text() == "[1, 2, 3]"


def test_a_crawl_with_a_state_file_that_cannot_be_used_does_not_start() -> None:
    settings = {"POLITENESS_STATE": "/dev/null/state.sqlite"}
    result = crawl(urls=["http://127.0.0.1:9/"], settings=settings)
    assert result.returncode != 0
    assert "POLITENESS_STATE='/dev/null/state.sqlite': must lead to" in result.log
    assert "Spider opened" not in result.log


def test_what_is_recalled_keeps_to_the_limits_of_user_and_host(
    site: Callable[..., Site], path: Path
) -> None:
    fastest = Entry(Learned(1000.0, 0.1, None), time.time())
    slow = Entry(Learned(1.0, 0.1, None), time.time())
    known: dict[str, Entry | None] = {
        "127.0.0.1": fastest,
        "127.0.0.2": fastest,
        "127.0.0.3": fastest,
        "127.0.0.4": slow,
        "127.0.0.5": slow,
    }
    save(path, learned=known)
    settings = brisk(
        path,
        POLITENESS_ROBOTS=True,
        POLITENESS_LIMITS={
            "127.0.0.2": {"max_rate": 4},
            "127.0.0.4": {"adaptive": False},
        },
        DOWNLOAD_SLOTS={"127.0.0.3": {"delay": 0.3}},
    )
    told = site(3, robots="User-agent: *\nCrawl-delay: 0.4")
    server = site(3, hosts=list(known)[1:])
    urls = [url for host in list(known)[1:] for url in server.page_urls(host)]
    result = crawl(urls=told.page_urls() + urls, settings=settings)
    assert result.stats["politeness/recalled"] == 4
    for host, least, most in (
        ("127.0.0.1", 0.4, 0.8),
        ("127.0.0.2", 0.25, 0.5),
        ("127.0.0.3", 0.3, 0.6),
        ("127.0.0.4", 0.1, 0.3),
        ("127.0.0.5", 1.0, 1.5),
    ):
        arrivals = [
            arrival
            for arrival in told.arrivals + server.arrivals
            if arrival.host == host and arrival.path != "/robots.txt"
        ]
        seconds = seconds_for(3, arrivals)
        assert 2 * least - server.jitter < seconds < 2 * most + server.lost


class Chain(Pages):
    """One after the other; calls methods of the extension before the last."""

    name = "chain"
    calls: tuple[tuple[Any, ...], ...] = ()

    async def start(self) -> Any:
        yield self.visit(0)

    def visit(self, number: int) -> Request:
        return Request(self.urls[number], cb_kwargs={"number": number})

    def parse(self, response: Response, number: int = 0) -> Any:
        yield {"url": response.url}
        left = len(self.urls) - number - 1
        if left == 1:
            politeness = self.crawler.get_extension(PolitenessExtension)
            for name, *arguments in self.calls:
                getattr(politeness, name)(*arguments)
        if left:
            yield self.visit(number + 1)


def test_a_reset_is_for_good_and_a_rate_that_was_set_is_not(
    site: Callable[..., Site], path: Path
) -> None:
    hosts = [HOST, "127.0.0.2"]
    server = site(15, hosts=hosts)
    urls = server.page_urls(hosts[1]) + server.page_urls(HOST)
    calls = (("reset", HOST), ("set_rate", "127.0.0.2", 7))
    result = crawl(Chain, urls=urls, settings=climbing(path, 5), calls=calls)
    assert len(result.items) == 30
    assert learned(path, HOST) is None
    kept = learned(path, "127.0.0.2")
    assert kept is not None
    assert kept.learned.ceiling == 10


def test_a_slot_that_was_forgotten_is_recalled_when_it_returns(
    site: Callable[..., Site], path: Path
) -> None:
    hosts = [HOST, "127.0.0.2", "127.0.0.3"]
    server = site(10, hosts=hosts, latency=0.25)
    urls = server.page_urls()[1:]
    urls += [server.page_urls(host)[0] for host in (*hosts[1:], HOST)]
    settings = {**climbing(path, 1), "POLITENESS_MAX_SLOTS": 1}
    result = crawl(Chain, urls=urls, settings=settings)
    assert len(result.items) == 12
    assert result.stats["politeness/recalled"] == 1
