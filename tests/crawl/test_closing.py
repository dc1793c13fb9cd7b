"""A crawl closes promptly whatever is held, and a later run fetches what was left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawl import REACTORS, Crawl, Reactor, crawl, start_crawl
from tests.support.settings import fixed
from tests.support.site import Answer
from tests.support.spiders import WithFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.site import Site

PAUSED = "pausing for 3600.0 s"


def refuse_for_an_hour(path: str, nth: int) -> Answer | None:
    if path == "/page/3" and nth == 1:
        return Answer(429, {"Retry-After": "3600"})
    return None


@pytest.mark.everywhere
@pytest.mark.parametrize("reactor", REACTORS)
@pytest.mark.parametrize("robots", [True, False])
def test_sigint_during_a_pause_of_an_hour_closes_within_seconds(
    site: Callable[..., Site], reactor: Reactor, robots: bool
) -> None:
    server = site(8, answer=refuse_for_an_hour)
    settings = {"POLITENESS_START_RATE": 10, "POLITENESS_ROBOTS": robots}
    with start_crawl(
        urls=server.page_urls(), settings=settings, reactor=reactor
    ) as running:
        running.wait_for_log(PAUSED)
        interrupted_at = time.monotonic()
        running.interrupt()
        result = running.wait(timeout=30)
        assert time.monotonic() - interrupted_at < 5 + server.lost
    assert result.stats["finish_reason"] == "shutdown"
    assert "Traceback" not in result.log


@pytest.mark.parametrize("obey", [True, False])
def test_sigint_while_robots_txt_itself_is_paused(
    site: Callable[..., Site], obey: bool
) -> None:
    server = site(3, robots=Answer(503, {"Retry-After": "3600"}))
    settings = {"ROBOTSTXT_OBEY": obey}
    with start_crawl(urls=server.page_urls(), settings=settings) as running:
        running.wait_for_log(PAUSED)
        running.interrupt()
        result = running.wait(timeout=10)
    assert result.stats["finish_reason"] == "shutdown"
    assert [arrival.path for arrival in server.arrivals] == ["/robots.txt"]


@pytest.mark.everywhere
def test_a_later_run_fetches_what_was_left_and_keeps_the_pause(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    def refuse_for_four_seconds(path: str, nth: int) -> Answer | None:
        if path == "/page/3" and nth == 1:
            return Answer(429, {"Retry-After": "4"})
        return None

    server = site(30, answer=refuse_for_four_seconds)
    job: dict[str, Any] = {
        "spider": "walk",
        "urls": server.page_urls(),
        "settings": {"JOBDIR": str(tmp_path / "job"), "POLITENESS_START_RATE": 10},
    }
    with start_crawl(**job) as running:
        running.wait_for_log("pausing for 4.0 s")
        running.interrupt()
        first = running.wait(timeout=20)
    second = crawl(**job)
    assert second.stats["finish_reason"] == "finished"
    urls = [item["url"] for item in first.items + second.items]
    assert sorted(urls) == sorted(server.page_urls())
    assert set(server.pages_served().values()) == {1}
    assert max(server.gaps()) > 4 - server.jitter


def test_the_spider_stays_open_while_anything_is_held(
    site: Callable[..., Site],
) -> None:
    server = site(1, answer=lambda path, nth: Answer(429) if nth == 1 else None)
    settings = {"POLITENESS_BACKOFF_BASE": 6, "POLITENESS_ROBOTS": False}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(result.items) == 1
    assert result.stats["finish_reason"] == "finished"


def test_nothing_is_given_up_any_more_when_the_spider_closes(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    """The refusal after which the host counts as dead comes while it closes."""

    def refuse(path: str, nth: int) -> Answer:
        last = nth == 5
        return Answer(429, {"Retry-After": "60" if last else "0"}, delay=2 * last)

    server = site(1, answer=refuse)
    settings = {
        **fixed(20),
        "POLITENESS_BACKOFF_BASE": 0.3,
        "POLITENESS_BACKOFF_MAX": 0.3,
        "POLITENESS_MIN_RATE": 5,
        "POLITENESS_GIVE_UP_AFTER": 0.5,
        "JOBDIR": str(tmp_path),
    }
    with start_crawl(urls=server.page_urls(), settings=settings) as running:
        server.wait_for_arrivals(5)
        running.interrupt()
        result = running.wait()
    assert "5 failures in a row" in result.log
    assert len(server.arrivals) == 5
    assert result.items == []
    assert "giving up <GET" not in result.log


def test_what_the_gate_hands_back_is_found_by_a_later_run(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    """Scrapy's own queue hands out everything at once: it all waits at the gate."""
    server = site(10)
    job: dict[str, Any] = {
        "urls": server.page_urls(),
        "settings": {
            **fixed(4),
            "JOBDIR": str(tmp_path / "job"),
            "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue",
        },
    }
    with start_crawl(**job) as running:
        server.wait_for_arrivals(3)
        running.interrupt()
        first = running.wait(timeout=20)
    assert first.stats["politeness/handed_back"] >= 4
    second = crawl(**job)
    assert second.stats["finish_reason"] == "finished"
    assert [item["status"] for item in first.items + second.items] == [200] * 10
    assert len(server.pages_served()) == len(server.arrivals) == 10


def close_with_files(server: Site, folder: Path) -> Crawl:
    settings = fixed(
        4,
        ITEM_PIPELINES={"scrapy.pipelines.files.FilesPipeline": 1},
        FILES_STORE=str(folder),
        CLOSESPIDER_PAGECOUNT=1,
    )
    return crawl(WithFiles, urls=server.page_urls(), settings=settings)


@pytest.mark.everywhere
def test_files_are_still_fetched_while_the_spider_closes(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    result = close_with_files(site(6), tmp_path)
    [item] = result.items
    assert len(item["files"]) == 5
    assert "politeness/dropped_on_closing" not in result.stats


def test_files_of_a_host_in_a_long_pause_are_dropped_with_one_warning(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    result = close_with_files(site(6, answer=refuse_for_an_hour), tmp_path)
    [item] = result.items
    assert len(item["files"]) == 2
    assert result.stats["politeness/dropped_on_closing"] == 3
    assert result.log.count("cannot go back to the scheduler") == 1
    assert result.seconds < 20  # its host is paused for an hour
