"""What each fault does to the rate and to the request, in real crawls; and that
docs/faults.md says the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from scrapy import Request, signals

from scrapy_politeness import PolitenessExtension
from tests.support.crawl import Crawl, Reactor, crawl
from tests.support.faulty import (
    AS_ASKED,
    BUSY,
    FAILURE,
    FAULTS,
    FOLLOWED,
    GIVEN_UP,
    NOT_THE_HOSTS,
    OVERLOAD,
    PASSED_ON,
    RATES,
    RESCHEDULED,
    RETRIED,
    RULES,
    SERVED,
    UNWELCOME,
    WRAPS_ERRORS,
    Fault,
    Trouble,
)
from tests.support.settings import NO_ROBOTS
from tests.support.spiders import Pages

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response

_DOCS = Path(__file__).parents[2] / "docs" / "faults.md"

REPORTED, SEEN = "reported", "seen"

# Scrapy 2.14 makes pyOpenSSL warn of what it does with TLS.
ENV = {} if WRAPS_ERRORS else {"PYTHONWARNINGS": "default"}


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
                UNWELCOME: bool(view.tally.blocked_because),
            }
            for view in politeness.census().slots
        }
        self.crawler.stats.set_value(SEEN, seen)


# A classic reactor has the same download handler as the asyncio one. One test for all
# faults, since a crawl for each would take minutes.
@pytest.mark.parametrize("reactor", ["asyncio", "none"])
def test_each_fault_is_taken_for_what_it_is(reactor: Reactor, tmp_path: Path) -> None:
    settings = {
        **NO_ROBOTS,
        "POLITENESS_START_RATE": 8,
        "POLITENESS_BACKOFF_BASE": 0.1,
        "CONCURRENT_REQUESTS": 100,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 100,
        "RETRY_TIMES": 1,
        "POLITENESS_REFUSALS": RULES,
        "DOWNLOADER_MIDDLEWARES": {Reporter: 960},
    }
    with Trouble(tmp_path) as trouble:
        requests = [trouble.request(fault) for fault in FAULTS]
        found = crawl(
            Visitor, requests=requests, settings=settings, reactor=reactor, env=ENV
        )
    seen = [Seen(found, fault) for fault in FAULTS]
    assert [(s.fault.name, s.counts_as, s.rate, s.request) for s in seen] == [
        (fault.name, fault.counts_as, fault.rate, fault.request) for fault in FAULTS
    ]
    if WRAPS_ERRORS:
        unlike = [s.reports for s in seen if s.fault.reported(reactor) not in s.reports]
        assert unlike == []
    assert found.stats["finish_reason"] == "politeness_blocked"
    assert "scrapy_politeness/" not in found.log


class Seen:
    """What a crawl shows of a fault, in the words of the table."""

    def __init__(self, found: Crawl, fault: Fault) -> None:
        self.fault = fault
        self._log = found.log
        self._sent = found.stats[REPORTED][fault.slot]
        self._counts = found.stats[SEEN][fault.slot]
        path = f"/{FAULTS.index(fault)}"
        [item] = [item for item in found.items if urlsplit(item["url"]).path == path]
        # What is found out after the download is told to the spider alone.
        self.reports = (self._sent[0], item.get("error"))

    @property
    def counts_as(self) -> str:
        kinds = (UNWELCOME, OVERLOAD, FAILURE, SERVED)
        kind = next((kind for kind in kinds if self._counts[kind]), NOT_THE_HOSTS)
        return BUSY if kind == OVERLOAD and not self._is_halved else kind

    @property
    def _is_halved(self) -> bool:
        return f"{self.fault.slot}: rate 8/s → 4/s because of" in self._log

    @property
    def rate(self) -> str:
        name = self.fault.slot
        asked = f"{name}: pausing for 1.0 s because of" in self._log
        how = RATES[OVERLOAD if self._is_halved else self.counts_as]
        return how + (AS_ASKED if asked else "")

    @property
    def request(self) -> str:
        if self._counts[RESCHEDULED]:
            return RESCHEDULED
        if len(self._sent) == 1:
            is_given_up = self.reports[1] == "NotWelcome"
            return GIVEN_UP if is_given_up else PASSED_ON
        return FOLLOWED if self._sent[0].startswith("3") else RETRIED


def test_the_docs_say_the_same() -> None:
    lines = _DOCS.read_text().partition('\n\n- "Rescheduled"')[0].splitlines()
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
