"""Spiders that the test crawls run, in a process of their own."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider, signals
from scrapy.exceptions import CloseSpider
from scrapy.http import Response, TextResponse
from scrapy.spidermiddlewares.httperror import HttpError

from scrapy_politeness import PolitenessExtension
from scrapy_politeness.storage import redis_requests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from twisted.python.failure import Failure


class Pages(Spider):
    """Fetches ``urls``, or ``requests``: dicts of arguments of ``Request``."""

    name = "pages"
    urls: list[str]
    requests: list[dict[str, Any]] | None = None

    async def start(self) -> AsyncIterator[Request]:
        for arguments in self.requests or [{"url": url} for url in self.urls]:
            yield Request(**arguments, callback=self.parse, errback=self.failed)

    def parse(self, response: Response) -> Iterator[Any]:
        yield {
            "url": response.url,
            "status": response.status,
            "time": time.monotonic(),
        }

    def failed(self, failure: Failure) -> Iterator[Any]:
        request: Request = failure.request  # type: ignore[attr-defined]
        item: dict[str, Any] = {
            "url": request.url,
            "error": type(failure.value).__name__,
            "time": time.monotonic(),
        }
        if isinstance(failure.value, HttpError):
            item["status"] = failure.value.response.status
        yield item


class Walk(Pages):
    """Starts at the first of ``urls`` and follows every link."""

    name = "walk"

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.urls[0], callback=self.parse, errback=self.failed)

    def parse(self, response: Response) -> Iterator[Any]:
        yield from super().parse(response)
        assert isinstance(response, TextResponse)
        yield from response.follow_all(
            css="a", callback=self.parse, errback=self.failed
        )


class WithFiles(Pages):
    """One page, all others are files of it."""

    name = "with_files"

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.urls[0])

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"file_urls": self.urls[1:]}


class MetaCopier(Spider):
    """Hands ``response.meta`` on, as many spiders do."""

    name = "meta_copier"
    urls: list[str]
    requests: Any = None

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.urls[0])

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"status": response.status}
        left = self.urls[self.urls.index(response.url) + 1 :]
        if left:
            yield Request(left[0], meta=response.meta, callback=self.parse)


class Watchful(Pages):
    """Measures for how long the event loop was held up at most."""

    name = "watchful"

    async def start(self) -> AsyncIterator[Request]:
        self._watch = asyncio.ensure_future(self._look())
        self.crawler.signals.connect(self._closed, signals.spider_closed)
        async for request in super().start():
            yield request

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        stats = self.crawler.stats
        assert stats is not None
        while True:
            began_at = loop.time()
            await asyncio.sleep(0.005)
            stats.max_value("longest_stall", loop.time() - began_at - 0.005)

    def _closed(self) -> None:
        self._watch.cancel()


AT_ONCE = 32


class Broad(Pages):
    """Goes from host to host, a few at once, through a ``proxy`` that answers for
    all; tells what that took after a tenth of them, and at the end."""

    name = "broad"
    hosts: int
    proxy: str

    async def start(self) -> AsyncIterator[Request]:
        for number in range(AT_ONCE):
            yield self.visit(number)

    def visit(self, number: int) -> Request:
        return Request(
            f"http://host{number}.example/page/0",
            callback=self.parse,
            cb_kwargs={"number": number},
            meta={"proxy": self.proxy},
        )

    def parse(self, response: Response, number: int = 0) -> Iterator[Any]:
        if number in (self.hosts // 10, self.hosts - 1):
            yield {"memory": resident_megabytes(), "slots": self.slots()}
        if number + AT_ONCE < self.hosts:
            yield self.visit(number + AT_ONCE)

    def slots(self) -> int:
        politeness = self.crawler.get_extension(PolitenessExtension)
        return 0 if politeness is None else len(politeness.parts.registry)


class Batch(Pages):
    """Yields a ``batch`` of requests from one callback; tells what that took."""

    name = "batch"
    batch: int

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.urls[0], callback=self.parse_batch)

    def parse_batch(self, response: Response) -> Iterator[Any]:
        memory, began_at = resident_megabytes(), time.process_time()
        for number in range(self.batch):
            yield Request(f"{response.url}?{number}", callback=self.parse)
        stats = self.crawler.stats
        assert stats is not None
        stats.set_value("cpu_seconds", time.process_time() - began_at)
        stats.set_value("memory", resident_megabytes() - memory)
        raise CloseSpider("measured")


def resident_megabytes(pid: int | str = "self") -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


class Links(Walk):
    """Writes each page whose callback has ended into the file ``done``, and how many
    requests were in progress."""

    name = "links"
    done: str

    def parse(self, response: Response) -> Iterator[Any]:
        assert isinstance(response, TextResponse)
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, callback=self.parse, errback=self.failed)
        engine = self.crawler.engine
        assert engine is not None
        assert engine._slot is not None
        with Path(self.done).open("a", encoding="utf-8") as file:
            file.write(f"{response.url} {len(engine._slot.inprogress)}\n")


class Later(Pages):
    """Yields each of ``times`` (by the wall clock) with its URL."""

    name = "later"
    times: dict[str, float]

    async def start(self) -> AsyncIterator[Request]:
        for number, (url, at) in enumerate(self.times.items()):
            value: Any = at - time.time()
            if number % 2:
                value = datetime.fromtimestamp(at, timezone.utc)
            yield Request(url, self.parse, meta={"politeness_not_before": value})


class ShortLived(Links):
    """Follows every link; a process of a shared queue that is not heard of for two
    seconds is dead."""

    name = "short_lived"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        redis_requests._AT_WORK_MS = 2000
