"""Every request gives its place back, whatever becomes of it on the way."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK

from tests.support.crawl import REACTORS, Reactor, crawl, start_crawl
from tests.support.settings import fixed
from tests.support.site import Answer
from tests.support.spiders import Pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.site import Site

BRISK = fixed(50, CONCURRENT_REQUESTS_PER_DOMAIN=3)
FOREIGN_QUEUE = {"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue"}


class Impatient(Pages):
    """Cancels downloads of the first page, then fetches all."""

    name = "impatient"
    times = 3

    async def start(self) -> AsyncIterator[Any]:
        await asyncio.gather(*(self.give_up() for _ in range(self.times)))
        async for request in super().start():
            yield request

    async def give_up(self) -> None:
        assert self.crawler.engine is not None
        download = self.crawler.engine.download_async(Request(self.urls[0]))
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(download, 0.3)


@pytest.mark.parametrize("queue", [{}, FOREIGN_QUEUE], ids=["own", "foreign"])
def test_downloads_that_are_cancelled_on_the_wire(
    site: Callable[..., Site], queue: dict[str, str]
) -> None:
    def slow_at_first(path: str, nth: int) -> Answer | None:
        return Answer(delay=1.0) if (path, nth <= 3) == ("/page/0", True) else None

    server = site(4, answer=slow_at_first)
    settings = {**BRISK, **queue}
    result = crawl(Impatient, urls=server.page_urls(), settings=settings, timeout=20)
    assert len(result.items) == 4
    # The cancelled ones were still on the wire, and counted as such.
    assert server.max_in_flight == 3


def test_downloads_that_are_cancelled_at_the_gate(site: Callable[..., Site]) -> None:
    server = site(3)
    settings = fixed(1, CONCURRENT_REQUESTS_PER_DOMAIN=2)
    result = crawl(
        Impatient, urls=server.page_urls(), settings=settings, times=6, timeout=20
    )
    assert len(result.items) == 3
    # Of the six, one was sent; the others took no permit with them.
    assert len(server.arrivals) == 4
    assert result.seconds < 4.5 + server.lost


class Replace:
    """Puts another request in the place of each, and keeps the first one."""

    def __init__(self) -> None:
        self.kept: list[Request] = []

    def process_request(self, request: Request) -> Request | None:
        return self.replace(request)

    def replace(self, request: Request) -> Request | None:
        if request.meta.get("replaced"):
            return None
        self.kept.append(request)
        meta = {**request.meta, "replaced": True}
        return request.replace(meta=meta, dont_filter=True)


class AskAgain(Replace):
    """Does so when the response is there."""

    def process_request(self, request: Request) -> None:
        pass

    def process_response(
        self, request: Request, response: Response
    ) -> Request | Response:
        return self.replace(request) or response


class Reject:
    """Drops every first response, and leaves no trace of it."""

    seen = 0

    def process_response(self, request: Request, response: Response) -> Response:
        self.seen += 1
        if self.seen <= 5:
            raise IgnoreRequest
        return response


class Invent:
    """Answers by itself, without the downloader."""

    def process_request(self, request: Request) -> Response:
        return Response(request.url)


@pytest.mark.parametrize("reactor", REACTORS)
@pytest.mark.parametrize(
    ("middleware", "order"),
    [(Replace, 500), (AskAgain, 1000), (Reject, 1000), (Invent, 1000)],
)
def test_middlewares_that_take_the_request_away(
    site: Callable[..., Site], middleware: type, order: int, reactor: Reactor
) -> None:
    server = site(12)
    settings = {**BRISK, "DOWNLOADER_MIDDLEWARES": {middleware: order}}
    result = crawl(urls=server.page_urls(), settings=settings, reactor=reactor)
    assert len(result.items) == 12
    assert "Traceback" not in result.log


def test_a_refusal_that_another_middleware_keeps_to_itself_still_counts(
    site: Callable[..., Site],
) -> None:
    def refuse_at_first(path: str, nth: int) -> Answer | None:
        return Answer(429, {"Retry-After": "1"}) if nth == 1 else None

    server = site(1, answer=refuse_at_first)
    settings = {**BRISK, "DOWNLOADER_MIDDLEWARES": {AskAgain: 1000}}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert [item["status"] for item in result.items] == [200]
    assert result.stats["politeness/refused"] == 1
    assert min(server.gaps()) > 1 - server.jitter


class Beside(Pages):
    """Half of the pages are fetched beside the scheduler, as media are."""

    name = "beside"

    async def start(self) -> AsyncIterator[Any]:
        assert self.crawler.engine is not None
        half = len(self.urls) // 2
        downloads = [
            asyncio.ensure_future(
                self.crawler.engine.download_async(Request(url, NO_CALLBACK))
            )
            for url in self.urls[:half]
        ]
        await asyncio.sleep(0.3)
        for url in self.urls[half:]:
            yield Request(url)
        await asyncio.gather(*downloads)


def test_who_waits_at_the_gate_keeps_the_queue_from_handing_out(
    site: Callable[..., Site],
) -> None:
    server = site(40)
    settings = fixed(10)
    with start_crawl(Beside, urls=server.page_urls(), settings=settings) as running:
        server.wait_for_arrivals(12)
        running.interrupt()
        result = running.wait(timeout=10)
    assert "scheduler/dequeued" not in result.stats
