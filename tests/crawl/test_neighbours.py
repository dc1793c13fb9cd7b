"""Scrapy's own components keep working beside the add-on, and stay truthful."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Request

from tests.support.crawl import crawl
from tests.support.site import Answer, refuse
from tests.support.spiders import MetaCopier, Pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from scrapy.http import Response

    from tests.support.site import Site

BRISK = {
    "POLITENESS_START_RATE": 20,
    "POLITENESS_MIN_RATE": 4,
    "POLITENESS_BACKOFF_BASE": 0.3,
    "POLITENESS_BACKOFF_MAX": 0.3,
    "POLITENESS_ROBOTS": False,
}


class Whole(Pages):
    """Tells all that a rescheduled request must keep."""

    name = "whole"

    async def start(self) -> AsyncIterator[Request]:
        yield Request(
            self.urls[0],
            method="POST",
            body="payload",
            headers={"X-Token": "7"},
            cookies={"choice": "tea"},
            meta={"mine": [1, 2], "cookiejar": "a"},
            cb_kwargs={"extra": "kept"},
            priority=42,
            flags=["flagged"],
            callback=self.parse_whole,
            errback=self.failed,
        )

    def parse_whole(self, response: Response, extra: str) -> Iterator[Any]:
        request = response.request
        assert request is not None
        yield {
            "extra": extra,
            "priority": request.priority,
            "mine": request.meta["mine"],
            "flags": request.flags,
            "reschedules": request.meta["politeness_reschedules"],
        }


@pytest.mark.everywhere
def test_a_rescheduled_request_keeps_all_that_it_had(site: Callable[..., Site]) -> None:
    def judge(path: str, nth: int) -> Answer | None:
        if nth <= 2:
            return Answer(429, {"Set-Cookie": f"seen{nth}=yes"})
        return None

    server = site(1, answer=judge)
    result = crawl(Whole, urls=server.page_urls(), settings=BRISK)
    assert result.items == [
        {
            "extra": "kept",
            "priority": 42,
            "mine": [1, 2],
            "flags": ["flagged"],
            "reschedules": 2,
        }
    ]
    last = server.arrivals[-1].headers
    assert last["X-Token"] == "7"
    assert last["Content-Length"] == str(len("payload"))
    cookies = set(last["Cookie"].split("; "))
    assert cookies == {"choice=tea", "seen1=yes", "seen2=yes"}


@pytest.mark.everywhere
def test_scrapys_stats_count_the_refused_response(site: Callable[..., Site]) -> None:
    server = site(3, answer=refuse(1))
    result = crawl(urls=server.page_urls(), settings=BRISK)
    assert (
        result.stats["downloader/response_status_count/429"] == server.refusals() == 3
    )
    assert result.stats["downloader/response_status_count/200"] == 3
    assert "retry/count" not in result.stats


def test_http_cache_never_stores_a_refusal_and_costs_no_waiting(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = site(6, answer=refuse(1))
    settings = {
        **BRISK,
        "HTTPCACHE_ENABLED": True,
        "HTTPCACHE_DIR": str(tmp_path / "cache"),
    }
    first = crawl(urls=server.page_urls(), settings=settings)
    assert [item["status"] for item in first.items] == [200] * 6
    assert first.stats["httpcache/store"] == 6
    settings["POLITENESS_START_RATE"] = 1
    asked = len(server.arrivals)
    second = crawl(urls=server.page_urls(), settings=settings)
    assert [item["status"] for item in second.items] == [200] * 6
    assert len(server.arrivals) == asked
    assert second.seconds < 5 + server.lost  # at 1/s


def test_two_keys_on_one_host_have_a_budget_each(site: Callable[..., Site]) -> None:
    def refuse_first_key(path: str, nth: int) -> Answer | None:
        refused = path == "/page/0?key=a" and nth == 1
        return Answer(429, {"Retry-After": "2"}) if refused else None

    server = site(8, answer=refuse_first_key)
    requests = [
        {"url": f"{url}?key={key}", "meta": {"politeness_slot": f"key {key}"}}
        for url in server.page_urls()
        for key in "ab"
    ]
    settings = {**BRISK, "POLITENESS_START_RATE": 10, "POLITENESS_MAX_RATE": 10}
    result = crawl(requests=requests, settings=settings)
    assert len(result.items) == 16
    times = {
        key: [a.at for a in server.arrivals if a.path.endswith(f"key={key}")]
        for key in "ab"
    }
    # While one key waits, the other goes on at its own rate.
    assert max(later - at for at, later in pairwise(times["a"])) > 1.9
    assert times["b"][-1] - times["b"][0] < 1.5 + server.lost
    assert times["b"][-1] - times["b"][0] > 7 * 0.1 - server.jitter


def test_copied_response_meta_does_no_harm(site: Callable[..., Site]) -> None:
    hosts = ["127.0.0.1", "127.0.0.2"]
    server = site(
        3,
        hosts=hosts,
        answer=refuse(2),
    )
    urls = [
        server.page_urls(hosts[0])[0],
        server.page_urls(hosts[1])[1],
        server.page_urls(hosts[0])[2],
    ]
    settings = {
        **BRISK,
        "POLITENESS_MAX_RESCHEDULES": 2,
        "RETRY_ENABLED": False,
    }
    result = crawl(MetaCopier, urls=urls, settings=settings)
    assert [item["status"] for item in result.items] == [200] * 3
    assert "127.0.0.2: rate" in result.log


class Downloads(Pages):
    """Fetches beside the scheduler, as media pipelines do."""

    name = "downloads"

    async def start(self) -> AsyncIterator[Any]:
        assert self.crawler.engine is not None
        for url in self.urls:
            response = await self.crawler.engine.download_async(Request(url))
            yield {"url": response.url, "status": response.status}


def test_what_is_not_scheduled_is_limited_and_rescheduled_too(
    site: Callable[..., Site],
) -> None:
    server = site(
        6,
        answer=refuse(1, "/page/3"),
    )
    settings = {**BRISK, "POLITENESS_START_RATE": 4}
    result = crawl(Downloads, urls=server.page_urls(), settings=settings)
    assert [item["status"] for item in result.items] == [200] * 6
    assert min(server.gaps()) > 0.25 - server.jitter


def test_a_users_own_slot_is_one_budget_for_several_hosts(
    site: Callable[..., Site],
) -> None:
    hosts = ["127.0.0.1", "127.0.0.2"]
    server = site(4, hosts=hosts)
    requests = [
        {"url": url, "meta": {"download_slot": "both"}}
        for host in hosts
        for url in server.page_urls(host)
    ]
    settings = {**BRISK, "POLITENESS_START_RATE": 5, "POLITENESS_MAX_RATE": 5}
    crawl(requests=requests, settings=settings)
    assert min(server.gaps()) > 0.2 - server.jitter


def test_middleware_without_the_extension_says_what_is_missing() -> None:
    settings = {
        "ADDONS": {},
        "DOWNLOADER_MIDDLEWARES": {"scrapy_politeness.PolitenessMiddleware": 950},
    }
    result = crawl(urls=["http://127.0.0.1:9/"], settings=settings)
    assert result.returncode != 0
    assert "scrapy_politeness.PolitenessExtension in EXTENSIONS" in result.log


def test_components_may_be_enabled_by_hand(site: Callable[..., Site]) -> None:
    prefix = "scrapy_politeness."
    server = site(4, answer=refuse(1))
    settings = {
        **BRISK,
        "ADDONS": {},
        "EXTENSIONS": {prefix + "PolitenessExtension": 0},
        "DOWNLOADER_MIDDLEWARES": {
            prefix + "PolitenessMiddleware": 950,
            prefix + "RescheduleMiddleware": 690,
        },
    }
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(result.items) == 4
    assert result.stats["politeness/rescheduled"] == 4
