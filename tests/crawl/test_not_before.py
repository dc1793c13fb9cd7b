"""Requests with a time of their own wait for it, and hold up nothing else."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from tests.benchmarks.not_before import crawl_later, settings_for
from tests.crawl.test_scrapy_redis import ENV, shared
from tests.support.crawl import crawl, start_crawl
from tests.support.settings import fixed
from tests.support.site import Answer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.redis_server import RedisServer
    from tests.support.site import Site

# Not more, by the machine's two clocks and the timers of an event loop.
EARLY = 0.05


def requests_for(urls: list[str], *times: Any) -> list[dict[str, Any]]:
    metas = [{} if at is None else {"politeness_not_before": at} for at in times]
    return [{"url": url, "meta": meta} for url, meta in zip(urls, metas, strict=True)]


def arrivals(server: Site) -> dict[str, float]:
    first = server.arrivals[0].at
    return {arrival.path: arrival.at - first for arrival in server.arrivals}


@pytest.mark.everywhere
def test_a_request_waits_for_its_time_outside_the_downloader(
    site: Callable[..., Site],
) -> None:
    server = site(4)
    soon = datetime.now(timezone.utc) + timedelta(seconds=3)
    result = crawl(
        requests=requests_for(server.page_urls(), 2.0, soon, None, None),
        settings=fixed(1000, CONCURRENT_REQUESTS=1),
    )
    assert len(result.items) == 4
    at = arrivals(server)
    assert max(at["/page/2"], at["/page/3"]) < at["/page/0"]
    # From when it was scheduled, which was just before the others were sent.
    assert at["/page/0"] > 2.0 - 1.0
    [second] = [a for a in server.arrivals if a.path == "/page/1"]
    assert second.at + time.time() - time.monotonic() > soon.timestamp() - EARLY


def test_what_is_no_time_is_ignored_with_a_warning(site: Callable[..., Site]) -> None:
    server = site(5)
    values = ("tomorrow", float("nan"), datetime(2100, 1, 1), -5, 10**400)
    result = crawl(
        requests=requests_for(server.page_urls(), *values), settings=fixed(1000)
    )
    assert len(result.items) == 5
    warnings = [line for line in result.log.splitlines() if "WARNING" in line]
    [warning] = [line for line in warnings if "politeness_not_before" in line]
    assert f"<GET {server.page_urls()[0]}>: ignored" in warning
    assert "'tomorrow': must be a number of seconds" in warning
    assert "Traceback" not in result.log


def test_a_retry_does_not_wait_again(site: Callable[..., Site]) -> None:
    server = site(
        1, answer=lambda path, nth: Answer(500, body=b"") if nth == 1 else None
    )
    requests = [{"url": server.page_urls()[0], "meta": {"delay": 1.0}}]
    result = crawl(requests=requests, settings=fixed(1000))
    assert [item["status"] for item in result.items] == [200]
    assert result.seconds > 1.0
    [gap] = server.gaps()
    assert gap < 1.0 + server.lost


def test_no_kill_makes_a_request_early_or_loses_it(tmp_path: Path) -> None:
    found = crawl_later(200, 2.0, 3.0, 2, settings_for(str(tmp_path)))
    assert found.lost == 0
    assert found.earliest > -EARLY
    assert found.last_run.stats["finish_reason"] == "finished"


def test_processes_with_one_queue_wait_too(
    site: Callable[..., Site], redis_server: RedisServer
) -> None:
    server = site(6)
    settings = shared(redis_server, POLITENESS_LIMITS={})
    requests = requests_for(server.page_urls(), 2.0, None, 1.5, None, 1.0, None)
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                start_crawl(requests=requests, settings=settings, env=ENV)
            )
            for _ in range(2)
        ]
        results = [crawl.wait() for crawl in running]
    assert sum(len(result.items) for result in results) == 6
    at = arrivals(server)
    assert sorted(at, key=at.__getitem__)[3:] == ["/page/4", "/page/2", "/page/0"]
    assert set(server.pages_served().values()) == {1}
