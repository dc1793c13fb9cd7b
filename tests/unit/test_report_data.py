"""The data of the report: bounded while it is collected, checked when it is read."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.core.text import percent
from scrapy_politeness.http.names import printable
from scrapy_politeness.observe.page import render
from scrapy_politeness.observe.report import MARK, Report, read_report
from scrapy_politeness.observe.reporter import MOST_LISTED, MOST_PLOTTED, write_report
from scrapy_politeness.observe.tally import MOST_TALLIED
from scrapy_politeness.observe.timeline import MOST_BUCKETS, Sampler, Timeline
from scrapy_politeness.simulator import RetryAfter, TokenBucket, simulate
from tests.support.browser import look_at
from tests.support.hostile import HOSTILE_NAMES
from tests.support.observed import ObservedCrawl

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

TWO_DAYS = 48 * 3600.0


def new_slot(key: str, **bounds: Any) -> Slot:
    return Slot(key, Bounds(**bounds), spacing=0.0, concurrency=8)


def crawl_of(seconds: float, *slots: Slot, limit: float = 0.5) -> ObservedCrawl:
    observed_crawl = ObservedCrawl(sampler=Sampler(0.0))
    for slot in slots:
        server = RetryAfter(TokenBucket(limit, burst=5))
        simulate([observed_crawl.observe(slot)], server, seconds=seconds)
    return observed_crawl


@pytest.fixture(scope="module")
def report() -> Report:
    return crawl_of(120.0, new_slot("one.example"), new_slot("two.example")).report(
        120.0
    )


def test_a_crawl_of_two_days_fits_in_a_few_kilobytes() -> None:
    slow = new_slot("wiki.example.org", start_rate=0.1, min_rate=0.01)
    observed_crawl = crawl_of(TWO_DAYS, slow, limit=0.05)
    tally = observed_crawl.tallies.of("wiki.example.org")
    assert tally.recording is not None
    timeline = tally.recording.timeline
    assert len(timeline) <= MOST_BUCKETS
    assert len(pickle.dumps(timeline)) < 8_000
    report = observed_crawl.report(TWO_DAYS)
    series = report.slots[0].series
    assert series is not None
    assert MOST_BUCKETS // 2 <= len(series.sent) <= MOST_BUCKETS
    assert len(series.sent) * series.width >= TWO_DAYS
    assert sum(series.sent) == pytest.approx(tally.sent, rel=0.001)
    assert sum(series.refused) == tally.refused > 0
    assert len(render(report)) < 100_000


def test_a_crawl_of_many_hosts_keeps_and_shows_a_bounded_number() -> None:
    observed_crawl = ObservedCrawl(waiting=0, sampler=Sampler(0.0))
    for number in range(3000):
        observed = observed_crawl.observe(new_slot(f"host{number}.example"))
        now = float(number)
        permit = observed.take(now)
        observed.serve(permit, now + 0.1)
    kept = [tally for _, tally in observed_crawl.tallies if tally.recording is not None]
    assert len(kept) <= 2 * MOST_TALLIED
    report = observed_crawl.report(3000.0)
    assert len(report.slots) == MOST_LISTED
    assert sum(slot.series is not None for slot in report.slots) == MOST_PLOTTED
    assert len(report.slots) + report.others == 3000
    listed = sum(slot["served"] for slot in report.slots)
    assert listed + report.other["served"] == report.total["served"] == 3000
    assert report.total.series is not None
    assert sum(report.total.series.sent) == pytest.approx(3000, rel=0.01)
    page = render(report)
    assert f"{3000 - MOST_LISTED:,} other slots" in page
    assert len(page) < 1_000_000


def test_names_of_any_kind_are_shown_as_they_are(tmp_path: Path) -> None:
    observed_crawl = crawl_of(5.0, *map(new_slot, HOSTILE_NAMES))
    file = tmp_path / "report.html"
    write_report(observed_crawl.report(5.0), file)
    names = sorted(map(printable, HOSTILE_NAMES))
    assert sorted(slot.name for slot in read_report(file).slots) == names

    def look(page: Page) -> None:
        first, *titles = page.locator("h3").all_text_contents()
        assert (first, sorted(titles)) == ("All slots", names)
        assert page.locator("script").count() == 2
        assert page.evaluate("document.documentElement.scrollWidth") <= 390

    look_at(file, look, viewport={"width": 390, "height": 844})


def test_bad_luck_is_shown_where_it_is_known(report: Report) -> None:
    one, two = report.slots
    unlucky = replace(one, figures={**one.figures, "bad_luck": 0.012})
    page = render(replace(report, slots=[unlucky, two]))
    assert page.count(">1&nbsp;%</td>") == 1
    assert ">Bad luck<" in page
    assert ">Bad luck<" not in render(report)


def test_a_report_from_before_a_figure_was_known_can_be_read(
    report: Report, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    added = r',"bad_luck":0.0|,"evidence":\[.*?\]|,"runs":1'
    path.write_text(re.sub(added, "", render(report)), "utf-8")
    read = read_report(path)
    assert "bad_luck" not in read.slots[0].figures
    assert read.slots[0].evidence == []
    assert read.runs == 1
    assert read.slots[0].name in render(read)


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.0021, "0.2 %"),
        (0.0096, "1 %"),
        (0.047, "5 %"),
        (0.0949, "9 %"),
        (0.0951, "10 %"),
        (0.333, "33 %"),
    ],
)
def test_a_share_that_is_roughly_known_has_few_digits(share: float, shown: str) -> None:
    assert percent(share) == shown


def test_even_spacing_is_an_even_line() -> None:
    """Also where the spacing and the buckets do not fit together."""
    observed_crawl = crawl_of(0.0)
    observed = observed_crawl.observe(
        new_slot("even.example", start_rate=0.7, max_rate=0.7)
    )
    simulate([observed], TokenBucket(100, burst=5), seconds=60)
    series = observed_crawl.report(60.0).slots[0].series
    assert series is not None
    rates = [count / series.width for count in series.sent]
    assert rates == pytest.approx([0.7] * len(rates), rel=0.05)


def test_nothing_is_lost_when_buckets_become_wider() -> None:
    timeline = Timeline(100.0)
    for second in range(1000):
        now = 100.0 + second
        timeline.set_rate(now, second, None if second < 500 else 7.0)
        timeline.add_sent(now, now + 0.7)
        timeline.add_pause(now + 0.7, now + 1)
        if second % 10 == 0:
            timeline.add_refusal(now)
    assert sum(timeline.sent) == pytest.approx(1000)
    assert sum(timeline.paused) == pytest.approx(300)
    assert sum(timeline.refused) == 100
    assert timeline.rate[-1] == 999
    assert timeline.ceiling[0] == 0
    assert timeline.ceiling[-1] == 7
    timeline.extend(100.0 + 1e9)
    assert len(timeline) <= MOST_BUCKETS
    assert timeline.rate[-1] == 999


def test_what_cannot_be_put_in_place_leaves_nothing_behind(
    report: Report, tmp_path: Path
) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(OSError, match=r"report\.html"):
        write_report(report, tmp_path / "report.html")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_report_that_was_read_is_the_one_that_was_written(
    report: Report, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.html"
    write_report(report, copy)
    assert read_report(copy) == report


def test_a_crawl_may_end_while_a_slot_is_paused(tmp_path: Path) -> None:
    observed_crawl = crawl_of(0.0)
    slot = new_slot("paused.example")
    observed = observed_crawl.observe(slot)
    permit = observed.take(0.0)
    observed.settle(permit, Outcome(Verdict.REFUSED, "429", 5.0), 0.1, 0.0)
    report = observed_crawl.report(1.3)
    write_report(report, tmp_path / "report.html")
    assert read_report(tmp_path / "report.html").slots[0]["paused_for"] > 3


def _change(*path: str | int, to: Any) -> Callable[[Report], str]:
    def changed(report: Report) -> str:
        data = place = asdict(report)
        for step in path[:-1]:
            place = place[step]  # type: ignore[index]
        place[path[-1]] = to  # type: ignore[index]
        return f"{MARK}{json.dumps(data)}</script>"

    return changed


DAMAGES: dict[str, Callable[[Report], str]] = {
    "empty": lambda report: "",
    "another page": lambda report: "<html><script>{}</script></html>",
    "cut off": lambda report: MARK + '{"version": 1',
    "no JSON": lambda report: f"{MARK}nothing</script>",
    "no object": lambda report: f"{MARK}[1, 2]</script>",
    "nested": lambda report: f"{MARK}{'[' * 100_000}</script>",
    "newer": _change("version", to=2),
    "no number": _change("seconds", to="long"),
    "negative": _change("seconds", to=-1),
    "not finite": _change("seconds", to=float("nan")),
    "huge": _change("seconds", to=10**400),
    "half a page": _change("total", "figures", "served", to=1.5),
    "true": _change("total", "figures", "served", to=True),
    "null": _change("spider", to=None),
    "no table": _change("slots", to=7),
    "a row of another length": _change("total", "series", "sent", to=[1.0]),
    "no width": _change("total", "series", "width", to=0),
    "unknown cause": _change("total", "causes", to={"fate": 1.0}),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_report_is_a_value_error(
    report: Report, tmp_path: Path, damage: Callable[[Report], str]
) -> None:
    file = tmp_path / "report.html"
    file.write_text(damage(report))
    with pytest.raises(ValueError, match=r"report\.html"):
        read_report(file)


def test_bytes_that_are_no_text_are_a_value_error(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"report\.html"):
        read_report(file)
