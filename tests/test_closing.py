"""A crawl closes promptly whatever is held, and a later run fetches what was left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.crawl import REACTORS, Reactor, crawl, start_crawl
from tests.site import Answer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.site import Site

PAUSED = "silent for 3600.0 s"


def refuse_for_an_hour(path: str, nth: int) -> Answer | None:
    if path == "/page/3" and nth == 1:
        return Answer(429, {"Retry-After": "3600"})
    return None


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
        result = running.wait(timeout=10)
        assert time.monotonic() - interrupted_at < 5
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
        result = running.wait(timeout=5)
    assert result.stats["finish_reason"] == "shutdown"
    assert [arrival.path for arrival in server.arrivals] == ["/robots.txt"]


def test_a_later_run_fetches_what_was_left_and_keeps_the_pause(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    def refuse_for_eight_seconds(path: str, nth: int) -> Answer | None:
        if path == "/page/3" and nth == 1:
            return Answer(429, {"Retry-After": "8"})
        return None

    server = site(30, answer=refuse_for_eight_seconds)
    job: dict[str, Any] = {
        "spider": "walk",
        "urls": server.page_urls(),
        "settings": {"JOBDIR": str(tmp_path / "job"), "POLITENESS_START_RATE": 10},
    }
    with start_crawl(**job) as running:
        running.wait_for_log("silent for 8.0 s")
        running.interrupt()
        first = running.wait(timeout=5)
    second = crawl(**job)
    assert second.stats["finish_reason"] == "finished"
    urls = [item["url"] for item in first.items + second.items]
    assert sorted(urls) == sorted(server.page_urls())
    assert set(server.pages_served().values()) == {1}
    assert max(server.gaps()) > 7.9


def test_the_spider_stays_open_while_anything_is_held(
    site: Callable[..., Site],
) -> None:
    server = site(1, answer=lambda path, nth: Answer(429) if nth == 1 else None)
    settings = {"POLITENESS_BACKOFF_BASE": 6, "POLITENESS_ROBOTS": False}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(result.items) == 1
    assert result.stats["finish_reason"] == "finished"
