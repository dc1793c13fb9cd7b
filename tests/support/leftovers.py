"""Three crawls in one process, one after the other, and what each leaves behind.

    python -m tests.support.leftovers <reactor> <file>

The file has the settings and the spider's arguments, pickled. Prints, as a line of
JSON for each crawl, what is still there when it is over.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import sys
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.crawler import AsyncCrawlerRunner, CrawlerRunner
from scrapy.utils.asyncio import call_later, is_asyncio_available
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.log import configure_logging
from scrapy.utils.reactor import install_reactor, is_reactor_installed
from twisted.internet.defer import Deferred
from twisted.internet.task import react

from scrapy_politeness import PolitenessExtension, PolitenessMiddleware
from tests.benchmarks.long_run_crawl import (
    LongRun,
    delayed_calls,
    our_names,
    our_objects,
    timers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.crawler import Crawler

_DEFAULT_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"

# Seconds for the connections of Scrapy's own pool to close.
_A_MOMENT = 0.3


async def crawl_thrice(settings: dict[str, Any], arguments: dict[str, Any]) -> None:
    before = our_objects()
    for number in range(3):
        refs: list[weakref.ref[object]] = []
        stats: dict[str, Any] = {}
        # A function of its own: nothing of the crawl is referred to from here.
        own = {**settings, "JOBDIR": f"job{number}"}
        await _crawl(own, arguments, refs, stats)
        await _moment()
        print(json.dumps(_left(refs, before) | {"stats": stats}), flush=True)


async def _crawl(
    settings: dict[str, Any],
    arguments: dict[str, Any],
    refs: list[weakref.ref[object]],
    stats: dict[str, Any],
) -> None:
    is_async = is_asyncio_available()
    runner = (AsyncCrawlerRunner if is_async else CrawlerRunner)(settings)
    crawler = runner.create_crawler(LongRun)

    def opened() -> None:
        refs.extend(map(weakref.ref, _parts(crawler)))

    crawler.signals.connect(opened, signals.spider_opened)
    await runner.crawl(crawler, **arguments)
    assert crawler.stats is not None
    numbers = crawler.stats.get_stats().items()
    stats.update({name: n for name, n in numbers if isinstance(n, int | str)})


def _parts(crawler: Crawler) -> Iterator[object]:
    yield crawler
    middleware = crawler.get_downloader_middleware(PolitenessMiddleware)
    extension = crawler.get_extension(PolitenessExtension)
    assert middleware is not None
    assert extension is not None
    parts = extension.parts
    yield from (extension, middleware, parts, parts.gate, parts.robots)
    yield from (parts.registry, parts.records, *parts.queues)


async def _moment() -> None:
    over: Deferred[None] = Deferred()
    call_later(_A_MOMENT, over.callback, None)
    await maybe_deferred_to_future(over)


def _left(refs: list[weakref.ref[object]], before: dict[str, int]) -> dict[str, Any]:
    gc.collect()
    alive = [type(thing).__name__ for ref in refs if (thing := ref()) is not None]
    objects = our_objects()
    tasks = asyncio.all_tasks() if is_asyncio_available() else ()
    pending = [*(delayed_calls() if is_reactor_installed() else ())]
    pending += timers() if is_asyncio_available() else ()
    return {
        "parts": len(refs),
        "alive": alive,
        "objects": {n: k for n, k in objects.items() if k > before.get(n, 0)},
        "tasks": our_names(tasks),
        "timers": our_names(pending),
        "threads": [t.name for t in threading.enumerate() if "politeness" in t.name],
        "files": sorted(_files()),
    }


def _files() -> Iterator[str]:
    """Where sockets and pipes go to says nothing: only that they are there."""
    for name in os.listdir("/proc/self/fd"):
        path = Path("/proc/self/fd", name)
        if path.is_symlink():  # that of the listing itself is gone
            yield os.readlink(path).partition(":[")[0]


def main(reactor: str, job: str) -> None:
    settings, arguments = pickle.loads(Path(job).read_bytes())
    configure_logging(settings)
    if reactor == "none":
        asyncio.run(crawl_thrice(settings, arguments))
        return
    install_reactor(settings.get("TWISTED_REACTOR", _DEFAULT_REACTOR))
    react(lambda _: deferred_from_coro(crawl_thrice(settings, arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
