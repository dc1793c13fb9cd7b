"""Crawlers that are ready to crawl, and do not, for tests of queues alone."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from scrapy_politeness import PolitenessExtension, PolitePriorityQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.crawler import Crawler

    from scrapy_politeness.components.parts import Parts
    from scrapy_politeness.scheduling.slot_queue import SlotQueue


class Quiet(Spider):
    name = "quiet"

    def parse(self, response: Any) -> None:
        pass


class Everything(set[Request]):
    """The downloader still has all that was handed out."""

    def __contains__(self, request: object) -> bool:
        return True


@contextmanager
def ready_crawlers() -> Iterator[Callable[..., Crawler]]:
    """Makes crawlers that are ready to crawl, and do not."""
    made: list[Crawler] = []

    def make(**settings: Any) -> Crawler:
        crawler = get_crawler(
            Quiet,
            {
                "ADDONS": {"scrapy_politeness.Addon": 500},
                "TELNETCONSOLE_ENABLED": False,
                "POLITENESS_START_RATE": 1e6,
                "POLITENESS_MAX_RATE": 1e6,
                "CONCURRENT_REQUESTS_PER_DOMAIN": 1000,
                **settings,
            },
        )
        crawler.spider = crawler._create_spider()
        crawler.engine = crawler._create_engine()
        crawler.engine._slot = SimpleNamespace(  # type: ignore[assignment]
            inprogress=set(), closing=None, nextcall=Mock(), remove_request=Mock()
        )
        crawler.engine.downloader.active = Everything()
        made.append(crawler)
        return crawler

    yield make
    for crawler in made:
        assert crawler.engine is not None
        crawler.engine.downloader.close()
        for queue in parts_of(crawler).queues:
            if isinstance(queue, PolitePriorityQueue):
                with suppress(sqlite3.ProgrammingError):  # the test has closed it
                    queue.close()
        parts_of(crawler).stop()
        records = parts_of(crawler).records
        if records is not None:
            records.close()


def as_if_killed(folder: Path) -> Path:
    """Return a copy of the folder of a crawl that still runs."""
    return Path(shutil.copytree(folder, f"{folder}-killed"))


def parts_of(crawler: Crawler) -> Parts:
    extension = crawler.get_extension(PolitenessExtension)
    assert extension is not None
    return extension.parts


def urls(queue: SlotQueue) -> list[str]:
    """Pop all that may go, and keep hold of it, as the engine does."""
    popped = []
    while (request := queue.pop()) is not None:
        popped.append(request)
    return [request.url.removeprefix("http://") for request in popped]


def page(path: str, **options: Any) -> Request:
    return Request(f"http://{path}", **options)
