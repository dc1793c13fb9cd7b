"""Makes and writes the report of a crawl."""

from __future__ import annotations

import logging
import math
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from itertools import starmap, zip_longest
from secrets import token_hex
from typing import TYPE_CHECKING

from scrapy_politeness.core.text import escaped
from scrapy_politeness.http.names import printable
from scrapy_politeness.http.scrapy_internals import in_thread
from scrapy_politeness.observe.census import SlotView
from scrapy_politeness.observe.earlier_runs import merged, read_earlier, timeline
from scrapy_politeness.observe.figures import figures_of
from scrapy_politeness.observe.page import render
from scrapy_politeness.observe.report import (
    STILL_RUNNING,
    VERSION,
    Report,
    Series,
    SlotReport,
    to_json,
)
from scrapy_politeness.observe.timeline import Timeline
from scrapy_politeness.scheduling.timers import Beat

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy import Spider

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.observe.census import Census
    from scrapy_politeness.observe.tally import Tallies, Tally
    from scrapy_politeness.observe.timeline import Sampler

logger = logging.getLogger(__name__)

# Seconds. A killed crawl leaves a report that is no older.
_WRITE_EVERY = 60.0
_FIRST_WRITTEN = 5.0

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
            _series(_extended(sampler.overall, census.at), seconds),
        ),
        slots=list(starmap(_slot, zip_longest(listed, series))),
        others=census.others + len(rest),
        other=_slot(SlotView("other slots", None, 0, other), None),
    )


class Reporter:
    """Writes the report when the crawl ends, and now and then before that, for the case
    that it is killed. The pages are made and written in a thread."""

    def __init__(
        self,
        policy: Policy,
        take_census: Callable[[], Census],
        tallies: Tallies,
        sampler: Sampler,
        spider: Spider,
    ) -> None:
        assert policy.report_path is not None
        self._path = policy.report_path
        self._job = policy.report_of_job
        self._take_census, self._tallies = take_census, tallies
        self._sampler = sampler
        self._name = spider.name
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        self._beat = Beat(self._write_now, _WRITE_EVERY)
        self._writer = ThreadPoolExecutor(1, "politeness-report")
        self._writing: Future[None] | None = None
        self._earlier = self._read_earlier()

    def start(self) -> None:
        now = time.monotonic()
        if self._earlier is None:
            self._sampler.begin(now, self._tallies)
        else:
            start = now - self._earlier.seconds
            slots, total = self._earlier.slots, self._earlier.total
            known = {s.name: timeline(s.series, start) for s in slots if s.series}
            overall = timeline(total.series, start) if total.series else Timeline(start)
            self._sampler.begin(now, self._tallies, known, overall)
        self._beat.start(_FIRST_WRITTEN)

    async def close(self, reason: str) -> None:
        """A failure does not stop the crawl."""
        self._beat.stop()
        last = self._submit(reason)
        try:
            await in_thread(last.result)
        except OSError as error:
            self._log.error("Cannot write the report: %(error)s", {"error": error})
        else:
            self._log.info("Wrote the report to %(path)s", {"path": self._path})
        self._writer.shutdown(wait=False)

    def _write_now(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = self._submit(STILL_RUNNING)

    def _submit(self, reason: str) -> Future[None]:
        report = report_of(
            self._take_census(), self._tallies, self._sampler, self._name, reason
        )
        return self._writer.submit(self._write, report)

    def _write(self, report: Report) -> None:
        if self._earlier is not None:
            report = merged(self._earlier, report, MOST_LISTED, MOST_PLOTTED)
        # First what the next run needs, in case this one is killed in between.
        if self._job is not None:
            _write_file(self._job, to_json(report))
        write_report(report, self._path)

    def _read_earlier(self) -> Report | None:
        if self._job is None:
            return None
        try:
            return read_earlier(self._job)
        except (OSError, ValueError) as error:
            self._log.warning(
                "The report leaves out the earlier runs of this job: cannot read "
                "%(path)s: %(error)s",
                {"path": self._job, "error": printable(str(error))},
            )
            return None


def write_report(report: Report, path: Path) -> None:
    """Write the page atomically."""
    _write_file(path, render(report))


def _write_file(path: Path, text: str) -> None:
    draft = path.with_name(f".politeness-report-{token_hex(8)}")
    try:
        with open(draft, "x", encoding="utf-8", opener=_for_own_writing) as file:
            file.write(text)
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
        evidence=view.tally.responses.evidence(),
    )


def _series_of(tally: Tally, now: float, seconds: float) -> Series | None:
    if tally.recording is None:
        return None
    return _series(tally.recording.finished(now), seconds)


def _extended(timeline: Timeline, now: float) -> Timeline:
    timeline.extend(now)
    return timeline


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
