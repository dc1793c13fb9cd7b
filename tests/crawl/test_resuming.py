"""A later run goes on with what an earlier one left."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Request

from tests.support.crawl import crawl, start_crawl
from tests.support.kills import kill_and_resume
from tests.support.settings import fixed
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


@pytest.mark.everywhere
def test_after_kills_nothing_is_lost_and_only_what_was_in_progress_is_repeated(
    tmp_path: Path,
) -> None:
    damage = kill_and_resume(tmp_path, Random(3), links=500, in_hub=3, later=2)
    assert damage.lost == 0
    assert max(damage.again) <= damage.in_progress


def test_a_job_directory_that_is_in_use_is_left_alone(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = site(10)
    urls = server.page_urls()
    slow = fixed(1000, JOBDIR=str(tmp_path), DOWNLOAD_DELAY=100)
    with start_crawl(urls=urls, settings=slow) as running:
        server.wait_for_arrivals(1)
        second = crawl(urls=urls, settings=slow)
        running.interrupt()
        first = running.wait()
    assert second.returncode != 0
    assert not second.items
    [line] = [line for line in second.log.splitlines() if "CRITICAL" in line]
    assert "Cannot start the crawl: JOBDIR=" in line
    assert "another crawl is using this job directory" in line
    third = crawl(urls=urls, settings=fixed(1000, JOBDIR=str(tmp_path)))
    assert len(first.items) + len(third.items) == 10
    assert set(server.pages_served().values()) == {1}


def test_a_job_whose_requests_were_deleted_does_not_pass_for_finished(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = site(10)
    job: dict[str, Any] = {
        "urls": server.page_urls(),
        "settings": fixed(5, JOBDIR=str(tmp_path)),
    }
    with start_crawl(**job) as running:
        server.wait_for_arrivals(2)
        running.interrupt()
        running.wait()
    (tmp_path / "requests.queue" / "requests.sqlite").unlink()
    second = crawl(**job)
    assert second.returncode != 0
    assert "the file was deleted or emptied" in second.log
    assert "finish_reason" not in second.stats
