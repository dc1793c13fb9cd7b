"""A later run goes on with what an earlier one left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import Request

from tests.support.crawl import crawl, start_crawl
from tests.support.spiders import Pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from scrapy.http import Response

    from tests.support.site import Site


class BeforeRename(Pages):
    """Half of its pages go to a callback that the next version does not have."""

    name = "renamed"

    async def start(self) -> AsyncIterator[Request]:
        for number, url in enumerate(self.urls):
            yield Request(url, self.parse_old if number % 2 else self.parse)

    def parse_old(self, response: Response) -> Iterator[Any]:
        yield from self.parse(response)


class AfterRename(Pages):
    name = "renamed"

    async def start(self) -> AsyncIterator[Request]:
        return
        yield


def test_a_crawl_is_resumed_after_a_callback_was_renamed(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = site(12)
    job: dict[str, Any] = {
        "urls": server.page_urls(),
        "settings": {
            "JOBDIR": str(tmp_path),
            "POLITENESS_START_RATE": 5,
            "POLITENESS_ROBOTS": False,
        },
    }
    with start_crawl(BeforeRename, **job) as running:
        server.wait_for_arrivals(3)
        running.interrupt()
        first = running.wait(timeout=10)
    second = crawl(AfterRename, **job, timeout=20)
    assert second.stats["finish_reason"] == "finished"
    assert "Traceback" not in second.log
    fetched = {item["url"] for item in first.items + second.items}
    assert fetched.issuperset(server.page_urls()[::2])
    lost = len(server.page_urls()) - len(fetched)
    assert lost > 0
    assert second.log.count("'parse_old' not found") == lost
