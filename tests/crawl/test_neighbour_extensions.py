"""Extensions, pipelines and settings of Scrapy, each beside the add-on in a crawl."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import scrapy
from scrapy import Request

from tests.support.crawl import crawl
from tests.support.settings import fixed
from tests.support.site import Answer, refuse
from tests.support.spiders import Pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from scrapy.http import Response

    from tests.support.site import Site


class Album(Pages):
    """A page of ``urls`` each, with pictures, which are fetched through a proxy."""

    name = "album"
    allowed_domains = ("album.example",)
    pictures: int

    async def start(self) -> AsyncIterator[Request]:
        yield Request("http://album.example/page/0")

    def parse(self, response: Response) -> Iterator[Any]:
        pictures = [response.urljoin(f"/picture/{n}") for n in range(self.pictures)]
        for url in pictures:
            yield {
                "file_urls": [url],
                "latency": response.meta["download_latency"],
            }
        yield Request("http://elsewhere.example/")
        yield response.follow("/page/1", self.parse_other)

    def parse_other(self, response: Response) -> Iterator[Any]:
        yield {"latency": response.meta["download_latency"]}


def test_all_that_comes_with_scrapy_goes_on_as_ever_but_slowly(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    def judge(path: str, nth: int) -> Answer | None:
        refused = refuse(1, "/picture/3")(path, nth)
        return refused or (Answer() if path.startswith("/picture/") else None)

    server = site(2, answer=judge)
    feed = tmp_path / "items-%(batch_id)d.jsonl"
    settings = fixed(
        4,
        ITEM_PIPELINES={"scrapy.pipelines.files.FilesPipeline": 1},
        FILES_STORE=str(tmp_path / "files"),
        FEEDS={str(feed): {"format": "jsonlines"}},
        FEED_EXPORT_BATCH_ITEM_COUNT=3,
        # Far shorter than what the last of the pictures waits.
        DOWNLOAD_TIMEOUT=1.5,
        DEFAULT_REQUEST_HEADERS={"X-Default": "yes"},
        MEMUSAGE_WARNING_MB=1,
        LOGSTATS_INTERVAL=1,
    )
    env = {"http_proxy": server.url, "no_proxy": ""}
    result = crawl(Album, settings=settings, pictures=8, env=env)
    assert result.stats["finish_reason"] == "finished"
    paths = [arrival.path for arrival in server.arrivals]
    assert sorted(paths) == sorted(
        ["/page/0", "/page/1", "/picture/3"] + [f"/picture/{n}" for n in range(8)]
    )
    assert min(server.gaps()) > 0.25 - server.jitter
    assert all(a.headers["X-Default"] == "yes" for a in server.arrivals)
    assert result.stats["offsite/filtered"] == 1
    assert "downloader/exception_count" not in result.stats
    batches = [
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(tmp_path.glob("items-*.jsonl"))
    ]
    assert [len(batch) for batch in batches] == [3, 3, 3]
    items = [item for batch in batches for item in batch]
    assert sum(len(item.get("files", ())) for item in items) == 8
    # What a request waited for its turn was no fault of the host's.
    assert max(item["latency"] for item in items) < 1 + server.lost
    assert "[scrapy.extensions.logstats] INFO: Crawled " in result.log
    assert "Memory usage reached 1MiB" in result.log


def test_a_crawl_that_is_paused_for_an_hour_is_closed_in_time(
    site: Callable[..., Site],
) -> None:
    server = site(4, answer=lambda path, nth: Answer(429, {"Retry-After": "3600"}))
    settings = fixed(10, CLOSESPIDER_TIMEOUT=1)
    result = crawl(urls=server.page_urls(), settings=settings, timeout=30)
    assert result.stats["finish_reason"] == "closespider_timeout"
    assert len(server.arrivals) < 4
    assert result.seconds < 10 + server.lost


def test_no_limit_of_all_requests_is_no_lack_of_limits(
    site: Callable[..., Site],
) -> None:
    server = site(4)
    settings = fixed(4, CONCURRENT_REQUESTS=0)
    result = crawl(urls=server.page_urls(), settings=settings, timeout=30)
    if scrapy.version_info < (2, 18):
        assert "CONCURRENT_REQUESTS=0: must be a whole number, 1" in result.log
        return
    assert len(result.items) == 4
    assert sum(server.gaps()) > 3 * 0.25 - server.jitter
