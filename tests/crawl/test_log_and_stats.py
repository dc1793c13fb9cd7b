"""What the log, the stats and the census of a crawl say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_politeness import PolitenessExtension
from scrapy_politeness.core.cause import Cause
from scrapy_politeness.observe.events import MOST_IN_STATS
from tests.support.crawl import crawl
from tests.support.settings import HOSTILE, NO_ROBOTS, fixed
from tests.support.site import Answer
from tests.support.spiders import Pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.http import Response

    from scrapy_politeness.observe.census import Census
    from tests.support.site import Site


def test_speedups_and_waits_can_be_read_in_the_log(site: Callable[..., Site]) -> None:
    server = site(30, hosts=["127.0.1.1"])
    settings = {
        **NO_ROBOTS,
        "POLITENESS_START_RATE": 5,
        "POLITENESS_MAX_RATE": 10,
    }
    result = crawl(urls=server.page_urls(), settings=settings)
    waits = re.findall(
        r"DEBUG: 127.0.1.1: next request in 0.\d\d s, (\d+) waiting",
        result.log,
    )
    # On a busy machine, some need not wait any more.
    assert len({int(depth) for depth in waits}) > 10
    assert (
        "INFO: 127.0.1.1: settled at 10/s, the maximum that your settings allow"
        in result.log
    )
    assert result.stats["politeness/slots"] == 1
    assert result.stats["politeness/slots/127.0.1.1/served"] == 30
    held = result.stats["politeness/slots/127.0.1.1/held_seconds"]
    assert 2.5 < held <= result.seconds
    assert result.stats["politeness/held_seconds"] == held


def test_stats_name_a_bounded_number_of_slots(site: Callable[..., Site]) -> None:
    hosts = [f"127.0.1.{number}" for number in range(1, 41)]
    server = site(1, hosts=hosts)
    urls = [url for host in hosts for url in server.page_urls(host)]
    result = crawl(urls=urls, settings=fixed(20))
    named = {key.split("/")[2] for key in result.stats if "politeness/slots/" in key}
    assert len(named) == MOST_IN_STATS
    assert result.stats["politeness/slots"] == 40


def test_a_hostile_name_of_a_slot_stays_on_its_line(site: Callable[..., Site]) -> None:
    server = site(6, hosts=["127.0.1.1"], limit="2/second", retry_after="1")
    requests = [
        {"url": url, "meta": {"politeness_slot": HOSTILE}} for url in server.page_urls()
    ]
    settings = {**NO_ROBOTS, "POLITENESS_START_RATE": 5}
    result = crawl(requests=requests, settings=settings)
    assert result.stats["politeness/refused"] > 0
    assert r"x\n2026-01-01 [root] error: forged \x1b[31m\u202e</script>" in result.log
    assert "\x1b" not in result.log
    assert "\u202e" not in result.log
    assert not re.search(r"^2026-01-01", result.log, re.M)
    assert all(key.isprintable() for key in result.stats)


class TakesCensus(Pages):
    """Takes a census with every answer."""

    name = "takes_census"

    def parse(self, response: Response) -> Iterator[Any]:
        politeness = self.crawler.get_extension(PolitenessExtension)
        assert politeness is not None
        yield {"census": politeness.census(), "latest": politeness.census(60)}


def last_census(result: Any) -> Census:
    census = result.items[-1]["census"]
    assert result.items[-1]["latest"] == census
    return census  # type: ignore[no-any-return]


def test_a_census_tells_what_was_done_and_what_is_left(
    site: Callable[..., Site],
) -> None:
    def refuse_once(path: str, nth: int) -> Answer | None:
        refused = path == "/page/3" and nth == 1
        return Answer(429, {"Retry-After": "1"}) if refused else None

    slow, fast = "127.0.1.1", "127.0.1.2"
    server = site(8, hosts=[slow, fast], answer=refuse_once)
    urls = server.page_urls(slow) + server.page_urls(fast)[4:]
    limits = {slow: {"max_rate": 4}}
    settings = fixed(20, POLITENESS_LIMITS=limits)
    result = crawl(TakesCensus, urls=urls, settings=settings)
    first, last = result.items[0]["census"], last_census(result)
    assert first.done < 12
    assert first.pending > 0
    assert (last.done, last.pending, last.in_progress) == (12, 0, 1)
    by_key = {view.key: view for view in last.slots}
    assert set(by_key) == {slow, fast}
    tally = by_key[slow].tally
    assert (tally.sent, tally.served, tally.refused, tally.rescheduled) == (9, 8, 1, 1)
    assert by_key[fast].tally.served == 4
    assert by_key[slow].status is not None
    assert last.total.served == 12
    # Seven gaps of 0.25 s or more, and the pause.
    assert 2.3 < tally.waited < result.seconds
    assert tally.causes[Cause.HOST] > 0.9
    interval = sum(server.gaps(slow)) / 8
    assert tally.average_interval == pytest.approx(interval, abs=server.jitter)
