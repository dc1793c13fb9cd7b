"""What waits for one host holds up no other, whatever way it came."""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Request
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from tests.support.crawl import REACTORS, Reactor, crawl, start_crawl
from tests.support.settings import fixed
from tests.support.site import Answer
from tests.support.spiders import Pages, WithFiles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from scrapy.http import Response

    from tests.support.redis_server import RedisServer
    from tests.support.site import Site

SILENT, OTHER = "127.0.1.1", "127.0.2.1"

# Of the pages of the other host: so many, one every 0.1 s.
PAGES = 20
RATE = 10

# What the silent host asks for, in seconds: longer than all of that takes.
SILENCE = 5


def refuse_once(path: str) -> Callable[[str, int], Answer | None]:
    """Refuse a path the first time."""

    def judge(asked: str, nth: int) -> Answer | None:
        refused = asked == path and nth == 1
        return Answer(429, {"Retry-After": str(SILENCE)}) if refused else None

    return judge


def assert_undisturbed(server: Site, neighbour: Site) -> None:
    """All pages came at the pace of their host, during the neighbour's silence."""
    pages = [a for a in server.arrivals if a.path != "/robots.txt"]
    assert len(pages) == PAGES
    # It takes two seconds, from one second after the neighbour's first request.
    assert pages[-1].at - neighbour.arrivals[0].at < SILENCE - 1 + server.lost
    gaps = [later.at - earlier.at for earlier, later in pairwise(pages)]
    assert median(gaps) == pytest.approx(1 / RATE, abs=server.jitter)


class Gallery(Pages):
    """The first of ``files`` is a page with all others; then the pages."""

    name = "gallery"
    files: list[str]

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.files[0], callback=self.show)
        await _sleep(1.0)
        async for request in super().start():
            yield request

    def show(self, response: Response) -> Iterator[Any]:
        yield {"file_urls": self.files[1:]}


async def _sleep(seconds: float) -> None:
    over: Deferred[None] = Deferred()
    call_later(seconds, over.callback, None)
    await maybe_deferred_to_future(over)


@pytest.mark.everywhere
@pytest.mark.parametrize("reactor", REACTORS)
def test_media_files_that_wait_hold_up_no_other_host(
    site: Callable[..., Site], tmp_path: Path, reactor: Reactor
) -> None:
    silent = site(21, hosts=[SILENT], answer=refuse_once("/page/1"))
    other = site(PAGES, hosts=[OTHER])
    settings = fixed(
        RATE,
        CONCURRENT_REQUESTS=8,
        ITEM_PIPELINES={"scrapy.pipelines.files.FilesPipeline": 1},
        FILES_STORE=str(tmp_path),
    )
    result = crawl(
        Gallery,
        urls=other.page_urls(OTHER),
        files=silent.page_urls(SILENT),
        settings=settings,
        reactor=reactor,
    )
    assert_undisturbed(other, silent)
    assert max(silent.gaps()) > SILENCE - silent.jitter
    [item] = [item for item in result.items if "file_urls" in item]
    assert len(item["files"]) == 20


class Inline(Pages):
    """Asks the silent host for ``inline`` beside the scheduler."""

    name = "inline"
    inline: list[str]

    async def start(self) -> AsyncIterator[Any]:
        asked = [deferred_from_coro(self._ask(url)) for url in self.inline]
        await _sleep(0.5)
        async for request in super().start():
            yield request
        for one in asked:
            yield await maybe_deferred_to_future(one)

    async def _ask(self, url: str) -> dict[str, Any]:
        assert self.crawler.engine is not None
        response = await self.crawler.engine.download_async(Request(url))
        return {"url": response.url, "status": response.status}


def test_inline_requests_that_wait_hold_up_no_other_host(
    site: Callable[..., Site],
) -> None:
    silent = site(20, hosts=[SILENT], answer=refuse_once("/page/0"))
    other = site(PAGES, hosts=[OTHER])
    result = crawl(
        Inline,
        urls=other.page_urls(OTHER),
        inline=silent.page_urls(SILENT),
        settings=fixed(RATE, CONCURRENT_REQUESTS=8),
    )
    assert_undisturbed(other, silent)
    assert max(silent.gaps()) > SILENCE - silent.jitter
    assert [item["status"] for item in result.items] == [200] * (20 + PAGES)


@pytest.mark.parametrize("obey", [True, False])
def test_slots_of_a_host_whose_robots_txt_is_refused_hold_up_no_other_host(
    site: Callable[..., Site], obey: bool
) -> None:
    silent = site(20, hosts=[SILENT], answer=refuse_once("/robots.txt"))
    other = site(PAGES, hosts=[OTHER])
    requests: list[dict[str, Any]] = [
        {"url": url, "meta": {"download_slot": f"slot {number}"}, "priority": 1}
        for number, url in enumerate(silent.page_urls(SILENT))
    ]
    requests += [{"url": url} for url in other.page_urls(OTHER)]
    settings = fixed(
        RATE, POLITENESS_ROBOTS=True, ROBOTSTXT_OBEY=obey, CONCURRENT_REQUESTS=8
    )
    result = crawl(requests=requests, settings=settings)
    assert_undisturbed(other, silent)
    assert silent.arrivals[1].at - silent.arrivals[0].at > SILENCE - silent.jitter
    assert [item["status"] for item in result.items] == [200] * (20 + PAGES)


def test_pages_that_wait_for_robots_txt_in_scrapys_middleware_hold_up_no_other_host(
    site: Callable[..., Site],
) -> None:
    hosts = [f"127.0.1.{number}" for number in range(1, 9)]
    slow = site(1, hosts=hosts, answer=refuse_each(len(hosts)))
    other = site(PAGES, hosts=[OTHER])
    requests: list[dict[str, Any]] = [
        {"url": slow.page_urls(host)[0], "priority": 1} for host in hosts
    ]
    requests += [{"url": url} for url in other.page_urls(OTHER)]
    settings = fixed(
        RATE, POLITENESS_ROBOTS=True, ROBOTSTXT_OBEY=True, CONCURRENT_REQUESTS=4
    )
    result = crawl(requests=requests, settings=settings)
    assert_undisturbed(other, slow)
    assert [item["status"] for item in result.items] == [200] * (len(hosts) + PAGES)


def refuse_each(hosts: int) -> Callable[[str, int], Answer | None]:
    def judge(asked: str, nth: int) -> Answer | None:
        refused = asked == "/robots.txt" and nth <= hosts
        return Answer(429, {"Retry-After": str(SILENCE)}) if refused else None

    return judge


class Rotating:
    """A proxy of its own for each request, which has a slot of its own, as in
    scrapy-rotating-proxies."""

    def __init__(self) -> None:
        self._passed = 0

    def process_request(self, request: Request) -> None:
        request.meta["download_slot"] = f"proxy {self._passed % 10}"
        self._passed += 1


class OneIsSilent(Pages):
    name = "one_is_silent"

    async def start(self) -> AsyncIterator[Any]:
        from scrapy_politeness import PolitenessExtension

        politeness = self.crawler.get_extension(PolitenessExtension)
        assert politeness is not None
        politeness.hold("proxy 3", 5)
        async for request in super().start():
            yield request


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_slot_that_a_middleware_chooses_holds_up_no_other(
    site: Callable[..., Site], tmp_path: Path, on_disk: bool
) -> None:
    server = site(60)
    jobdir = {"JOBDIR": str(tmp_path)} if on_disk else {}
    settings = fixed(2, DOWNLOADER_MIDDLEWARES={Rotating: 600}, **jobdir)
    result = crawl(OneIsSilent, urls=server.page_urls(), settings=settings)
    assert len(result.items) == 60
    assert set(server.pages_served().values()) == {1}
    # Nine of them send two a second each.
    early = [
        a for a in server.arrivals if a.at < server.arrivals[0].at + 3 + server.lost
    ]
    assert len(early) > 40
    assert max(server.gaps()[:50]) < 1 + server.lost


class SlowToPass:
    async def process_request(self, request: Request) -> None:
        await _sleep(0.5)


@pytest.mark.everywhere
@pytest.mark.parametrize("reactor", REACTORS)
def test_as_many_are_on_their_way_through_slow_middlewares_as_that_takes(
    site: Callable[..., Site], reactor: Reactor
) -> None:
    server = site(25)
    settings = fixed(10, DOWNLOADER_MIDDLEWARES={SlowToPass: 500})
    result = crawl(urls=server.page_urls(), settings=settings, reactor=reactor)
    assert len(result.items) == 25
    # One after the other, they would take 12.5 s.
    assert result.seconds < 4.5 + server.lost
    # Never more than the rate allows; the first may be late.
    assert server.arrivals[-1].at - server.arrivals[4].at > 1.9 - server.jitter
    assert min(server.gaps()[4:]) > 0.1 - server.jitter


def test_slow_middlewares_cost_a_shared_budget_nothing(
    site: Callable[..., Site], redis_server: RedisServer
) -> None:
    server = site(25)
    settings = fixed(
        10,
        DOWNLOADER_MIDDLEWARES={SlowToPass: 500},
        POLITENESS_REDIS_URL=redis_server.url,
    )
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(result.items) == 25
    assert result.seconds < 6.5 + server.lost
    assert server.arrivals[-1].at - server.arrivals[4].at > 1.9 - server.jitter


def test_many_files_that_wait_do_not_keep_the_spider_from_closing(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = site(91)
    settings = fixed(
        1,
        ITEM_PIPELINES={"scrapy.pipelines.files.FilesPipeline": 1},
        FILES_STORE=str(tmp_path),
    )
    with start_crawl(WithFiles, urls=server.page_urls(), settings=settings) as running:
        server.wait_for_arrivals(3)
        interrupted_at = time.monotonic()
        running.interrupt()
        result = running.wait(timeout=30)
        assert time.monotonic() - interrupted_at < 5 + server.lost
    [item] = result.items
    dropped = result.stats["politeness/dropped_on_closing"]
    assert len(item["files"]) == len(server.arrivals) - 1 == 90 - dropped
    # What can still go in that time does.
    assert len(server.arrivals) >= 5


class Impatient(Pages):
    """Gives up waiting for the second answer, and sends the same request once more.
    (Scrapy never gets over it if robots.txt is still under way then.)"""

    name = "impatient"

    async def start(self) -> AsyncIterator[Any]:
        assert self.crawler.engine is not None
        for number, url in enumerate(self.urls):
            request = Request(url)
            try:
                asked = self.crawler.engine.download_async(request)
                response = await asyncio.wait_for(asked, 0.5 if number == 1 else None)
            except asyncio.TimeoutError:
                response = await self.crawler.engine.download_async(request)
            yield {"url": response.url, "status": response.status}


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="Scrapy itself then fails with a KeyError"
)
@pytest.mark.parametrize("obey", [True, False])
def test_who_does_not_wait_for_an_answer_may_ask_again(
    site: Callable[..., Site], obey: bool
) -> None:
    def hang(path: str, nth: int) -> Answer | None:
        return Answer(delay=2.0) if path == "/page/1" and nth == 1 else None

    server = site(4, answer=hang)
    settings = fixed(5, CONCURRENT_REQUESTS_PER_DOMAIN=1, ROBOTSTXT_OBEY=obey)
    result = crawl(Impatient, urls=server.page_urls(), settings=settings)
    assert [item["status"] for item in result.items] == [200] * 4
    assert [a.path for a in server.arrivals].count("/page/1") == 2
    assert "Traceback" not in result.log


class Follow(Pages):
    """All others are links of the first page."""

    name = "follow"

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.urls[0], callback=self.first)

    def first(self, response: Response) -> Iterator[Any]:
        yield from map(Request, self.urls[1:])


@pytest.mark.parametrize(
    ("spider", "obey", "on_disk"),
    [("pages", False, False), ("pages", True, True), (Follow, False, True)],
)
def test_a_slow_robots_txt_keeps_the_order(
    site: Callable[..., Site],
    tmp_path: Path,
    obey: bool,
    on_disk: bool,
    spider: Any,
) -> None:
    server = site(8, robots=Answer(delay=1.0), hosts=[SILENT])
    jobdir = {"JOBDIR": str(tmp_path)} if on_disk else {}
    settings = fixed(5, POLITENESS_ROBOTS=True, ROBOTSTXT_OBEY=obey, **jobdir)
    pages = server.page_urls(SILENT)
    if spider is Follow:
        first = site(1, hosts=[OTHER])
        pages = [*first.page_urls(OTHER), *pages]
    result = crawl(spider, urls=pages, settings=settings)
    assert len(result.items) == 8
    robots, *paths = (a.path for a in server.arrivals)
    assert robots == "/robots.txt"
    order = [int(path.removeprefix("/page/")) for path in paths]
    if spider is Follow:
        order.reverse()
    # On a busy machine, two that were sent after each other may change places.
    assert sorted(order) == list(range(8))
    assert all(abs(number - place) <= 1 for place, number in enumerate(order))
