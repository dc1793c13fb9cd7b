"""Makes and writes the report of a crawl that has ended."""

from __future__ import annotations

import logging
import math
import os
from datetime import datetime, timedelta, timezone
from functools import partial
from importlib.metadata import version
from itertools import starmap, zip_longest
from secrets import token_hex
from typing import TYPE_CHECKING

from scrapy_politeness.core.text import escaped
from scrapy_politeness.http.names import printable
from scrapy_politeness.http.scrapy_internals import in_thread
from scrapy_politeness.observe.census import SlotView
from scrapy_politeness.observe.figures import figures_of
from scrapy_politeness.observe.page import render
from scrapy_politeness.observe.report import VERSION, Report, Series, SlotReport

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy import Spider

    from scrapy_politeness.observe.census import Census
    from scrapy_politeness.observe.tally import Tallies, Tally
    from scrapy_politeness.observe.timeline import Sampler, Timeline

logger = logging.getLogger(__name__)

# More would make the page slow to load.
MOST_PLOTTED = 24
MOST_LISTED = 200


def report_of(
    census: Census,
    tallies: Tallies,
    sampler: Sampler,
    spider: str,
    finish_reason: str,
) -> Report:
    seconds = census.at - sampler.start
    sampler.overall.extend(census.at)
    ranked = sorted(census.slots, key=_interest, reverse=True)
    listed, rest = ranked[:MOST_LISTED], ranked[MOST_LISTED:]
    other = census.other.copy()
    for view in rest:
        other.add(view.tally)
    started = datetime.now(timezone.utc) - timedelta(seconds=seconds)
    series = [
        _series_of(tallies.of(view.key), census.at, seconds)
        for view in listed[:MOST_PLOTTED]
    ]
    return Report(
        version=VERSION,
        software=f"scrapy-politeness {version('scrapy-politeness')}",
        spider=printable(spider),
        started=started.isoformat(timespec="milliseconds"),
        seconds=round(seconds, 3),
        finish_reason=printable(finish_reason),
        total=_slot(
            SlotView("all slots", None, census.pending, census.total),
            _series(sampler.overall, seconds),
        ),
        slots=list(starmap(_slot, zip_longest(listed, series))),
        others=census.others + len(rest),
        other=_slot(SlotView("other slots", None, 0, other), None),
    )


async def publish(report: Report, path: Path, spider: Spider) -> None:
    """Write the page in a thread; a failure does not stop the crawl."""
    log = logging.LoggerAdapter(logger, {"spider": spider})
    try:
        await in_thread(partial(write_report, report, path))
    except OSError as error:
        log.error("Cannot write the report: %(error)s", {"error": error})
    else:
        log.info("Wrote the report to %(path)s", {"path": path})


def write_report(report: Report, path: Path) -> None:
    """Write the page atomically."""
    page = render(report)
    draft = path.with_name(f".politeness-report-{token_hex(8)}")
    try:
        with open(draft, "x", encoding="utf-8", opener=_for_own_writing) as file:
            file.write(page)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _for_own_writing(path: str, flags: int) -> int:
    """Nobody else may write to it, whatever the umask is."""
    return os.open(path, flags, 0o644)


def _interest(view: SlotView) -> tuple[bool, int, float, int]:
    tally = view.tally
    is_blocked = bool(tally.blocked_because)
    return is_blocked, tally.refused + tally.timed_out, tally.waited, tally.sent


def _slot(view: SlotView, series: Series | None) -> SlotReport:
    return SlotReport(
        name=printable(view.key),
        figures={name: _short(value) for name, value in figures_of(view).items()},
        causes={c.name.lower(): round(s, 3) for c, s in view.tally.causes.items()},
        health=None if view.status is None else view.status.health.value,
        series=series,
        blocked=escaped(view.tally.blocked_because) or None,
    )


def _series_of(tally: Tally, now: float, seconds: float) -> Series | None:
    if tally.recording is None:
        return None
    tally.recording.finish(now)
    return _series(tally.recording.timeline, seconds)


def _series(timeline: Timeline, seconds: float) -> Series:
    # What happened while the report was made does not count.
    length = math.ceil(seconds / timeline.width)
    return Series(
        width=timeline.width,
        sent=[round(count, 3) for count in timeline.sent[:length]],
        refused=list(timeline.refused[:length]),
        silent=[round(spent, 3) for spent in timeline.paused[:length]],
        rate=[_short(rate) or None for rate in timeline.rate[:length]],
        ceiling=[_short(rate) or None for rate in timeline.ceiling[:length]],
    )


def _short(value: float) -> float:
    """Five digits keep the page small."""
    return value if isinstance(value, int) else float(f"{value:.5g}")
