"""Scrapy's scheduling features, unharmed by the queue and the gate."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from scrapy import Request, signals
from scrapy.exceptions import DontCloseSpider
from scrapy.utils import misc
from scrapy.utils.asyncio import call_later

from tests.support.crawl import STOCK, crawl, start_crawl
from tests.support.settings import fixed
from tests.support.site import Answer
from tests.support.spiders import Pages, Walk, WithFiles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self

    from tests.support.site import Site

BRISK = {
    "POLITENESS_ROBOTS": False,
    "POLITENESS_START_RATE": 50,
    "POLITENESS_MAX_RATE": 50,
}
ONE_BY_ONE = {**BRISK, "CONCURRENT_REQUESTS": 1}
BREADTH_FIRST = {
    "DEPTH_PRIORITY": 1,
    "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
    "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
}


def order(server: Site) -> list[int]:
    return [int(arrival.path.rpartition("/")[2]) for arrival in server.arrivals]


def test_start_requests_go_in_the_order_of_the_spider(
    site: Callable[..., Site],
) -> None:
    server = site(12)
    crawl(urls=server.page_urls(), settings=ONE_BY_ONE)
    assert order(server) == list(range(12))


@pytest.mark.parametrize("on_disk", [True, False])
def test_breadth_first(
    site: Callable[..., Site], tmp_path: Path, on_disk: bool
) -> None:
    server = site(40)
    jobdir = {"JOBDIR": str(tmp_path)} if on_disk else {}
    settings = {**ONE_BY_ONE, **BREADTH_FIRST, **jobdir}
    crawl("walk", urls=server.page_urls(), settings=settings)
    assert order(server) == list(range(40))


@pytest.mark.parametrize("on_disk", [True, False])
def test_depth_first(site: Callable[..., Site], tmp_path: Path, on_disk: bool) -> None:
    server = site(24)
    jobdir = {"JOBDIR": str(tmp_path)} if on_disk else {}
    # Slowly, so that the links of a page are in the queue before the next one goes:
    # Scrapy 2.14 waits 0.1 s before it hands a page to the spider.
    settings = {**ONE_BY_ONE, **fixed(4), **jobdir}
    crawl("walk", urls=server.page_urls(), settings=settings)
    # The link found last goes first, and the children of a page before its siblings.
    below_2, below_1 = range(23, 20, -1), range(20, 10, -1)
    assert order(server) == [
        *(0, 10, 9, 8, 7, 6, 5, 4, 3),
        *(2, *below_2, 1, *below_1),
    ]


@pytest.mark.everywhere
def test_what_goes_back_unsent_goes_to_the_front(
    site: Callable[..., Site],
) -> None:
    """The first page goes back, until its robots.txt is there."""
    server = site(6, robots=Answer(delay=1.0))
    settings = fixed(20, POLITENESS_ROBOTS=True)
    result = crawl(urls=server.page_urls(), settings=settings)
    assert result.stats["politeness/handed_back"] == 1
    paths = [f"/page/{number}" for number in range(6)]
    assert [a.path for a in server.arrivals] == ["/robots.txt", *paths]


def test_priorities_are_respected(site: Callable[..., Site]) -> None:
    server = site(8)
    requests = [
        {"url": url, "priority": number}
        for number, url in enumerate(server.page_urls())
    ]
    settings = {**ONE_BY_ONE, "POLITENESS_START_RATE": 5, "POLITENESS_MAX_RATE": 5}
    crawl(requests=requests, settings=settings)
    assert order(server)[1:] == sorted(order(server)[1:], reverse=True)


class Refill(Pages):
    """Adds a last request when the spider is idle, and asks not to be closed."""

    name = "refill"

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.left = spider.urls[2:]
        crawler.signals.connect(spider.refill, signals.spider_idle)
        return spider

    left: list[str]

    async def start(self) -> AsyncIterator[Request]:
        for url in self.urls[:2]:
            yield Request(url)

    def refill(self) -> None:
        if self.left:
            assert self.crawler.engine is not None
            self.crawler.engine.crawl(Request(self.left.pop(0)))
            raise DontCloseSpider


def test_spider_idle_and_dont_close_spider(site: Callable[..., Site]) -> None:
    server = site(4)
    result = crawl(Refill, urls=server.page_urls(), settings=BRISK)
    assert len(result.items) == 4
    assert result.stats["finish_reason"] == "finished"


def test_closespider_closes_at_once_although_much_is_held(
    site: Callable[..., Site],
) -> None:
    server = site(200)
    settings = {
        **BRISK,
        "POLITENESS_START_RATE": 10,
        "POLITENESS_MAX_RATE": 10,
        "CLOSESPIDER_ITEMCOUNT": 5,
    }
    result = crawl(urls=server.page_urls(), settings=settings)
    assert result.stats["finish_reason"] == "closespider_itemcount"
    assert len(server.arrivals) < 30 + 10 * server.lost
    assert result.seconds < 10 + server.lost


class Pausing(Pages):
    """Pauses the engine at the third page for two seconds."""

    name = "pausing"
    seen = 0

    def parse(self, response: Response) -> Iterator[Any]:
        yield from super().parse(response)
        self.seen += 1
        if self.seen == 3:
            assert self.crawler.engine is not None
            self.crawler.engine.pause()
            call_later(2, self.crawler.engine.unpause)


def test_the_engine_can_be_paused(site: Callable[..., Site]) -> None:
    server = site(10)
    settings = {**BRISK, "POLITENESS_START_RATE": 10, "POLITENESS_MAX_RATE": 10}
    result = crawl(Pausing, urls=server.page_urls(), settings=settings)
    assert len(result.items) == 10
    assert max(server.gaps()) > 2 - server.jitter


class Slowly(Pages):
    """Has little to do, and long pauses between; its requests come as in the days
    before ``start``."""

    name = "slowly"

    async def start(self) -> AsyncIterator[Any]:
        for request in self.start_requests():
            yield request
            await asyncio.sleep(0.4)

    def start_requests(self) -> Iterator[Request]:
        return map(Request, self.urls)


def test_a_spider_that_yields_slowly(site: Callable[..., Site]) -> None:
    server = site(5)
    result = crawl(Slowly, urls=server.page_urls(), settings=BRISK)
    assert len(result.items) == 5
    assert max(server.gaps()) < 4  # the heartbeat comes every 5 s
    # It sleeps meanwhile, and does not look again and again.
    assert result.cpu_seconds < result.seconds / 2


def test_files_pipeline_waits_its_turn_too(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = site(12)
    settings = {
        **BRISK,
        "POLITENESS_START_RATE": 5,
        "POLITENESS_MAX_RATE": 5,
        "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
        "FILES_STORE": str(tmp_path),
    }
    result = crawl(WithFiles, urls=server.page_urls(), settings=settings)
    [item] = result.items
    assert len(item["files"]) == 11
    assert min(server.gaps()) > 0.2 - server.jitter


def test_a_users_own_priority_queue_wins_and_is_told_what_it_costs(
    site: Callable[..., Site],
) -> None:
    server = site(4)
    own = "scrapy.pqueues.ScrapyPriorityQueue"
    settings = {**BRISK, "SCHEDULER_PRIORITY_QUEUE": own}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(result.items) == 4
    assert "The scheduler does not use" in result.log


@pytest.mark.parametrize(
    ("begun_with", "resumed_with", "told"),
    [
        (
            STOCK,
            {},
            "JOBDIR={!r}: this job was started with a SCHEDULER_PRIORITY_QUEUE other",
        ),
        (
            {},
            {"POLITENESS_ENABLED": False},
            "POLITENESS_ENABLED=False: the job in JOBDIR={!r} was started with",
        ),
    ],
    ids=["begun without the add-on", "begun with it"],
)
def test_a_job_of_another_queue_is_left_as_it_is(
    site: Callable[..., Site],
    tmp_path: Path,
    begun_with: dict[str, Any],
    resumed_with: dict[str, Any],
    told: str,
) -> None:
    server = site(60)
    settings = {**ONE_BY_ONE, **fixed(4), "DOWNLOAD_DELAY": 0.2}
    settings["JOBDIR"] = str(tmp_path)
    with start_crawl(
        urls=server.page_urls(), settings={**settings, **begun_with}
    ) as running:
        server.wait_for_arrivals(3)
        running.interrupt()
        running.wait(timeout=10)
    before = contents(tmp_path)
    assert tmp_path / "spider.state" in before
    result = crawl(urls=server.page_urls(), settings={**settings, **resumed_with})
    assert result.returncode != 0
    message = "CRITICAL: Cannot start the crawl: " + told.format(str(tmp_path))
    assert result.log.count(message) == 1
    assert "Spider opened" not in result.log
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Chain(Walk):
    """One page leads to the next: an idle slot must not wait for a heartbeat."""

    name = "chain"

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        following = self.urls[self.urls.index(response.url) + 1 :]
        if following:
            yield Request(following[0])


def test_one_page_leads_to_the_next_without_waiting_for_a_heartbeat(
    site: Callable[..., Site],
) -> None:
    server = site(10)
    settings = {**BRISK, "POLITENESS_START_RATE": 5, "POLITENESS_MAX_RATE": 5}
    result = crawl(Chain, urls=server.page_urls(), settings=settings)
    assert len(result.items) == 10
    assert max(server.gaps()) < 4  # the heartbeat comes every 5 s


class Watched(Pages):
    """Counts how often Scrapy looks into a callback."""

    async def start(self) -> AsyncIterator[Request]:
        misc.inspect = Mock(wraps=inspect)  # type: ignore[attr-defined]
        async for request in super().start():
            yield request

    def closed(self, reason: str) -> None:
        assert self.crawler.stats is not None
        count = misc.inspect.isgeneratorfunction.call_count  # type: ignore[attr-defined]
        self.crawler.stats.set_value("looked_into", count)


def test_scrapy_looks_into_a_callback_only_once(site: Callable[..., Site]) -> None:
    result = crawl(Watched, urls=site(30).page_urls(), settings=fixed(100))
    assert len(result.items) == 30
    assert result.stats["looked_into"] == 1
