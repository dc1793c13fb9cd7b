"""Two crawlers in one process, the ways that Scrapy has for it.

python -m tests.support.several '["CrawlerProcess", [urls, urls], settings]'
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from scrapy.crawler import (
    AsyncCrawlerProcess,
    AsyncCrawlerRunner,
    CrawlerProcess,
    CrawlerRunner,
)
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.log import configure_logging
from scrapy.utils.reactor import install_reactor
from twisted.internet.defer import inlineCallbacks
from twisted.internet.task import react

from tests.support.spiders import Pages

if TYPE_CHECKING:
    from collections.abc import Generator

    from twisted.internet.defer import Deferred

Parts = list[list[str]]
Settings = dict[str, Any]


def at_once(
    process_class: type[CrawlerProcess | AsyncCrawlerProcess],
    parts: Parts,
    settings: Settings,
) -> None:
    process = process_class(settings)
    for part in parts:
        process.crawl(Pages, urls=part)
    process.start()


@inlineCallbacks
def in_turn(parts: Parts, settings: Settings) -> Generator[Deferred[None], Any, None]:
    runner = CrawlerRunner(settings)
    for part in parts:
        yield runner.crawl(Pages, urls=part)


async def await_in_turn(parts: Parts, settings: Settings) -> None:
    runner = AsyncCrawlerRunner(settings)
    for part in parts:
        await runner.crawl(Pages, urls=part)


def main(how: str, parts: Parts, settings: Settings) -> None:
    if how == "CrawlerProcess":
        at_once(CrawlerProcess, parts, settings)
    elif how == "AsyncCrawlerProcess":
        at_once(AsyncCrawlerProcess, parts, settings)
    else:
        configure_logging(settings)
        install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
        if how == "CrawlerRunner":
            react(lambda _: in_turn(parts, settings))
        else:
            react(lambda _: deferred_from_coro(await_in_turn(parts, settings)))


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
