"""What each fault does to the rate and to the request, in real crawls; and that
docs/faults.md says the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import scrapy
from scrapy import Request, signals

from scrapy_politeness import PolitenessExtension
from tests.crawl import Crawl, Reactor, crawl
from tests.faulty import (
    FAILURE,
    FAULTS,
    NOT_THE_HOSTS,
    OVERLOAD,
    PASSED_ON,
    RESCHEDULED,
    SERVED,
    Fault,
    Trouble,
)
from tests.settings import NO_ROBOTS
from tests.spiders import Pages

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response

_DOCS = Path(__file__).parents[1] / "docs" / "faults.md"

REPORTED, SEEN = "reported", "seen"


class Reporter:
    """Notes what Scrapy says of each request, as often as it was sent."""

    def __init__(self, crawler: Crawler) -> None:
        assert crawler.stats is not None
        self._notes: dict[str, list[str]] = {}
        crawler.stats.set_value(REPORTED, self._notes)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Reporter:
        return cls(crawler)

    def process_response(self, request: Request, response: Response) -> Response:
        self._note(request, str(response.status))
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        self._note(request, type(exception).__name__)

    def _note(self, request: Request, report: str) -> None:
        self._notes.setdefault(request.meta["politeness_slot"], []).append(report)


class Visitor(Pages):
    """Leaves in the stats what became of each slot."""

    name = "visitor"

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **options: Any) -> Visitor:
        spider = super().from_crawler(crawler, *args, **options)
        crawler.signals.connect(spider.take_stock, signals.spider_closed)
        return spider

    def take_stock(self) -> None:
        politeness = self.crawler.get_extension(PolitenessExtension)
        assert politeness is not None
        assert self.crawler.stats is not None
        seen = {
            view.key: {
                SERVED: view.tally.served,
                FAILURE: view.tally.failed,
                OVERLOAD: view.tally.refused + view.tally.timed_out,
                RESCHEDULED: view.tally.rescheduled,
            }
            for view in politeness.census().slots
        }
        self.crawler.stats.set_value(SEEN, seen)


# A classic reactor has the same download handler as the asyncio one.
@pytest.fixture(scope="module", params=["asyncio", "none"])
def visit(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Reactor, Crawl]:
    reactor: Reactor = request.param
    settings = {
        **NO_ROBOTS,
        "POLITENESS_START_RATE": 8,
        "POLITENESS_BACKOFF_BASE": 0.1,
        "CONCURRENT_REQUESTS": 100,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 100,
        "RETRY_TIMES": 1,
        "DOWNLOADER_MIDDLEWARES": {Reporter: 960},
    }
    with Trouble(tmp_path_factory.mktemp("trouble")) as trouble:
        requests = [trouble.request(fault) for fault in FAULTS]
        found = crawl(Visitor, requests=requests, settings=settings, reactor=reactor)
    return reactor, found


def of_fault(found: Crawl, fault: Fault) -> tuple[list[str], dict[str, int]]:
    """What Scrapy has said of it, one by one, and what was counted."""
    return found.stats[REPORTED][fault.slot], found.stats[SEEN][fault.slot]


def item_of(found: Crawl, fault: Fault) -> dict[str, Any]:
    path = f"/{FAULTS.index(fault)}"
    [item] = [item for item in found.items if urlsplit(item["url"]).path == path]
    return item


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_taken_for_what_it_is(
    visit: tuple[Reactor, Crawl], fault: Fault
) -> None:
    reactor, found = visit
    reports, counts = of_fault(found, fault)
    item = item_of(found, fault)
    if scrapy.version_info >= (2, 15):  # before, it passed on what Twisted says
        assert fault.reported(reactor) in (reports[0], item.get("error"))
    told = {kind for kind in (FAILURE, OVERLOAD) if counts[kind]}
    assert told == {fault.counts_as} - {SERVED, NOT_THE_HOSTS}
    assert (f"{fault.slot}: rate 8/s → 4/s" in found.log) == (told == {OVERLOAD})
    silent = f"{fault.slot}: silent for 1.0 s because of" in found.log
    assert silent == fault.asks_for_silence
    assert len(reports) == (1 if fault.request == PASSED_ON else 2)
    assert bool(counts[RESCHEDULED]) == (fault.request == RESCHEDULED)


def test_every_fault_ends_and_nothing_crashes(visit: tuple[Reactor, Crawl]) -> None:
    _, found = visit
    assert found.stats["finish_reason"] == "finished"
    assert len(found.items) == len(FAULTS)
    assert "scrapy_politeness/" not in found.log


def test_the_docs_say_the_same() -> None:
    lines = _DOCS.read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    told = [[name, *rest] for names, *rest in rows[1:] for name in each(names)]
    assert told == [
        [
            fault.name,
            "the status" if fault.reports == fault.name else fault.reports,
            fault.counts_as,
            fault.rate,
            fault.request,
        ]
        for fault in FAULTS
    ]


def each(names: str) -> list[str]:
    """Statuses may stand together in one row."""
    parts = names.split(", ")
    return parts if all(part.isdigit() for part in parts) else [names]
