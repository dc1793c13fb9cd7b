"""Bandwidth limits, judged by the site's log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawl import REACTORS, Reactor, crawl
from tests.support.settings import fixed
from tests.support.site import Answer
from tests.support.spiders import WithFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.site import Site

MB = 1_000_000

SIZES = [3, 1, 2, 4, 1, 1, 3, 1]


def files(sizes: list[float]) -> dict[str, Answer]:
    return {
        f"/file/{number}": Answer(body=b"x" * int(size * MB))
        for number, size in enumerate(sizes)
    }


@pytest.mark.parametrize("reactor", REACTORS)
def test_files_arrive_no_faster_than_allowed(
    site: Callable[..., Site], reactor: Reactor
) -> None:
    server = site(named=files(list(SIZES)))
    urls = [server.url + path for path in server.named]
    settings = fixed(100, POLITENESS_LIMITS={"127.0.0.1": {"bandwidth": "4MB/s"}})
    result = crawl(urls=urls, settings=settings, reactor=reactor)
    assert len(result.items) == len(SIZES)
    arrivals = server.arrivals
    # When one is asked for, all before it are paid for, but for half a second's worth.
    for nth, arrival in enumerate(arrivals):
        before = sum(SIZES[int(a.path.rpartition("/")[2])] for a in arrivals[:nth])
        assert before <= 4 * (arrival.at - arrivals[0].at + 0.5 + server.jitter)
    took = arrivals[-1].at - arrivals[0].at
    assert took < sum(SIZES) / (0.9 * 4) + 0.5 + server.lost


def test_the_whole_crawl_has_one_bandwidth_media_included(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    server = site(1, hosts=hosts, named=files([0.5] * 3))
    urls = [
        f"{server.url}/page/0",
        *(server.url_for(host) + path for host in hosts for path in server.named),
    ]
    settings: dict[str, Any] = fixed(
        100,
        POLITENESS_GLOBAL_BANDWIDTH="1500kB/s",
        FILES_STORE=str(tmp_path),
        ITEM_PIPELINES={"scrapy.pipelines.files.FilesPipeline": 1},
    )
    result = crawl(WithFiles, urls=urls, settings=settings)
    assert result.stats["file_count"] == 9
    arrivals = [a.at for a in server.arrivals if a.path.startswith("/file")]
    assert arrivals[-1] - arrivals[0] > 8 * 0.5 / 1.5 - 0.6
    assert arrivals[-1] - arrivals[0] < 9 * 0.5 / 1.5 + 1 + server.lost
