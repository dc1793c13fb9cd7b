"""The report of a job that was interrupted and resumed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.observe.earlier_runs import merged, read_earlier, timeline
from scrapy_politeness.observe.page import render
from scrapy_politeness.observe.report import Series, from_json, to_json
from scrapy_politeness.observe.timeline import MOST_BUCKETS, Sampler
from scrapy_politeness.simulator import RetryAfter, TokenBucket, simulate
from tests.support.observed import ObservedCrawl

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_politeness.observe.report import Report


def run(*names: str, seconds: float = 60.0, earlier: Report | None = None) -> Report:
    """One run of a job, from 0 on."""
    sampler = Sampler(0.0)
    observed = ObservedCrawl(sampler=sampler)
    if earlier is not None:
        start = -earlier.seconds
        known = {s.name: timeline(s.series, start) for s in earlier.slots if s.series}
        assert earlier.total.series
        sampler.begin(0.0, (), known, timeline(earlier.total.series, start))
    for name in names:
        slot = Slot(name, Bounds(), spacing=0.0, concurrency=8)
        server = RetryAfter(TokenBucket(3.0, burst=5))
        simulate([observed.observe(slot)], server, seconds=seconds)
    latest = observed.report(seconds)
    if earlier is None:
        return latest
    return from_json(to_json(merged(earlier, latest, 200, 24)))


def test_counts_are_those_of_all_runs_and_plots_go_on() -> None:
    first = run("a.example", "b.example")
    second = run("a.example", "c.example", seconds=90.0)
    job = run("a.example", "c.example", seconds=90.0, earlier=first)

    assert (job.runs, job.seconds, job.started) == (2, 150.0, first.started)
    assert {slot.name for slot in job.slots} == {"a.example", "b.example", "c.example"}
    for name in ("sent", "served", "refused", "waited"):
        both = first.total[name] + second.total[name]
        assert job.total[name] == pytest.approx(both)
    a = next(slot for slot in job.slots if slot.name == "a.example")
    counts = [
        sum(known.served + known.refused for known in slot.evidence)
        for report in (first, second)
        for slot in report.slots
        if slot.name == "a.example"
    ]
    assert sum(known.served + known.refused for known in a.evidence) == sum(counts)
    assert a.series is not None
    assert a.series.width * len(a.series.sent) >= 150
    assert sum(a.series.sent) == pytest.approx(a["sent"], rel=0.01)
    assert "ended after 2 min 30 s in 2 runs: finished" in render(job)


def test_only_some_slots_are_listed_and_the_rest_is_counted() -> None:
    first, second = run("a.example", "b.example"), run("c.example", "d.example")
    job = merged(first, second, most=3, plotted=1)
    assert (len(job.slots), job.others) == (3, 1)
    assert [slot.series is not None for slot in job.slots] == [True, False, False]
    listed = sum(slot["sent"] for slot in job.slots)
    assert listed + job.other["sent"] == job.total["sent"]


def test_the_first_run_has_no_earlier_one_and_a_damaged_file_is_an_error(
    tmp_path: Path,
) -> None:
    path = tmp_path / "report.json"
    assert read_earlier(path) is None
    path.write_text(to_json(run("a.example"))[:-9])
    with pytest.raises(ValueError, match="line 1"):
        read_earlier(path)


def test_a_series_that_no_crawl_can_have_made_does_no_harm() -> None:
    rows = 3 * MOST_BUCKETS + 1
    huge = Series(
        1e-6,
        [2.0**53] * rows,
        [2**53] * rows,
        [2.0**53] * rows,
        [2.0**53] * rows,
        [None] * rows,
    )
    restored = timeline(huge, 0.0)
    restored.add_refusal(1e9)
    assert len(restored) <= MOST_BUCKETS
    first = run("a.example")
    assert to_json(replace(first, runs=2))
