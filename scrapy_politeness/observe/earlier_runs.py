"""The report of a job over all of its runs.

Next to the requests of a job, its directory keeps the data of its report. The next run
adds its own figures to those, and continues the plots.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

from scrapy_politeness.observe.evidence import Responses
from scrapy_politeness.observe.figures import COUNTS
from scrapy_politeness.observe.report import from_json
from scrapy_politeness.observe.timeline import MOST_BUCKETS, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from scrapy_politeness.observe.report import Report, Series, SlotReport

# What is true of a run only while it runs.
_MOMENTARY = ("pending", "paused_for", "in_flight")

# More than any bucket holds; and all of them together still fit into one.
_LARGEST = 1e7


def read_earlier(path: Path) -> Report | None:
    """Return what is known of the job's earlier runs, None for its first. Raises
    ValueError for a damaged file."""
    try:
        return from_json(path.read_text("utf-8"))
    except FileNotFoundError:
        return None


def timeline(series: Series, start: float) -> Timeline:
    """Return what a run can continue; ``start`` is when the job would have begun, had
    it not been interrupted."""
    rows = (series.sent, series.refused, series.silent, series.rate, series.ceiling)
    sent, refused, paused, rate, ceiling = (
        [min(value or 0, _LARGEST) for value in row[:MOST_BUCKETS]] for row in rows
    )
    return Timeline(
        start,
        series.width,
        array("f", sent),
        array("I", map(int, refused)),
        array("f", paused),
        array("f", rate),
        array("f", ceiling),
    )


def merged(earlier: Report, latest: Report, most: int, plotted: int) -> Report:
    """Add the figures of earlier runs, whose plots the latest has continued already.
    No more than ``most`` slots are listed, and ``plotted`` ones have a plot."""
    known = {slot.name: slot for slot in earlier.slots}
    slots = [_together(slot, known.pop(slot.name, None)) for slot in latest.slots]
    slots += [_ended(slot) for slot in known.values()]
    slots.sort(key=_interest, reverse=True)
    listed, rest = slots[:most], slots[most:]
    listed[plotted:] = [replace(slot, series=None) for slot in listed[plotted:]]
    return replace(
        latest,
        started=earlier.started,
        total=_together(latest.total, earlier.total),
        slots=listed,
        others=latest.others + earlier.others + len(rest),
        other=_sum(latest.other, [earlier.other, *rest]),
        runs=earlier.runs + 1,
    )


def _interest(slot: SlotReport) -> tuple[bool, float, float, float]:
    refused = slot["refused"] + slot["timed_out"]
    return slot.blocked is not None, refused, slot["waited"], slot["sent"]


def _together(latest: SlotReport, earlier: SlotReport | None) -> SlotReport:
    if earlier is None:
        return latest
    both = _sum(latest, [earlier])
    return replace(
        both,
        series=latest.series or earlier.series,
        blocked=latest.blocked or earlier.blocked,
    )


def _sum(first: SlotReport, others: Iterable[SlotReport]) -> SlotReport:
    figures, causes = dict(first.figures), dict(first.causes)
    evidence = list(first.evidence)
    for other in others:
        if interval := _average_interval(figures, other.figures):
            figures["average_interval"] = interval
        for name in COUNTS:
            figures[name] = figures.get(name, 0) + other[name]
        for name, seconds in other.causes.items():
            causes[name] = causes.get(name, 0.0) + seconds
        evidence += other.evidence
    evidence = Responses().evidence(evidence)
    return replace(first, figures=figures, causes=causes, evidence=evidence)


def _average_interval(*runs: dict[str, float]) -> float:
    known = [run for run in runs if run.get("average_interval")]
    sent = sum(run.get("sent", 0) for run in known)
    return sum(run["average_interval"] * run.get("sent", 0) for run in known) / (
        sent or 1
    )


def _ended(slot: SlotReport) -> SlotReport:
    figures = {n: value for n, value in slot.figures.items() if n not in _MOMENTARY}
    return replace(slot, figures=figures)
