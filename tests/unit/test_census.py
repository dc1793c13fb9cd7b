"""What the add-on counts, and for how many slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scrapy_politeness import PolitenessExtension
from scrapy_politeness.core.cause import Cause
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.http.names import printable
from scrapy_politeness.observe.tally import MOST_TALLIED, Tallies
from tests.support.crawl import crawl
from tests.support.settings import fixed
from tests.support.site import Answer
from tests.support.spiders import Pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.http import Response

    from scrapy_politeness.observe.census import Census
    from tests.support.site import Site

SERVED, REFUSED = Outcome(Verdict.SERVED), Outcome(Verdict.REFUSED)


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


def test_counts_of_many_hosts_are_kept_for_a_bounded_number() -> None:
    tallies = Tallies(lambda slot: 0)
    for number in range(20_000):
        tallies.settled(f"host{number}.example", SERVED)
        if number % 20 == 0:
            tallies.settled("busy.example", SERVED)
        if number == 7:
            tallies.settled("strict.example", REFUSED)
        assert len(tallies) <= 2 * MOST_TALLIED
    assert tallies.of("busy.example").served == 1000
    assert tallies.of("strict.example").refused == 1
    assert tallies.total.served == 21_000
    assert tallies.others + len(tallies) == 20_002


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("wiki.example.org", "wiki.example.org"),
        ("bücher.example", "bücher.example"),
        ("", "(no host)"),
        ("a\nWARNING: forged\x1b[31m\x00", r"a\nWARNING: forged\x1b[31m\x00"),
        ("\u202eelpmaxe", r"\u202eelpmaxe"),
        ("\ud800", r"\ud800"),
        ("x" * 300, "x" * 252 + "…"),
    ],
)
def test_names_are_shown_on_one_line(name: str, shown: str) -> None:
    assert printable(name) == shown
