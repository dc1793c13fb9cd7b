"""Progress and time left: a live display in a terminal, or a line in the log."""

from __future__ import annotations

import logging
import math
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, Protocol

from scrapy_politeness.core.text import duration, rate
from scrapy_politeness.http.names import printable
from scrapy_politeness.observe.screen import SCREEN, is_terminal
from scrapy_politeness.scheduling.timers import Beat

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.pace import Limit
    from scrapy_politeness.observe.census import Census

logger = logging.getLogger(__name__)

# Seconds. A crawl of a single page needs no display.
_FIRST = 1.0
_REDRAW = 0.25
# A spider that has found nothing new for this long may be at its end.
_FINDING = 60.0


class Prospect(NamedTuple):
    """The time left, or its minimum while the spider still ``finds_more``."""

    seconds: float
    finds_more: bool

    def __str__(self) -> str:
        return f"{'at least ' if self.finds_more else ''}{duration(self.seconds)} left"


class Outlook:
    """``overall`` is the limit for all requests together."""

    def __init__(self, overall: Limit | None) -> None:
        self._interval = overall.interval if overall else 0.0
        self._most_known = 0
        self._found_at = -math.inf

    def judge(self, census: Census) -> Prospect | None:
        """Return None where nothing waits."""
        known = census.done + census.pending + census.in_progress
        if known > self._most_known:
            self._most_known = known
            self._found_at = census.at
        if not census.pending:
            return None
        seconds = max(census.seconds_left, census.pending * self._interval)
        return Prospect(seconds, census.at - self._found_at < _FINDING)


class Progress(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


def progress(
    policy: Policy, take_census: Callable[[float], Census], spider: Spider | None
) -> Progress | None:
    """Choose the kind of progress that the settings and the surroundings ask for."""
    outlook = Outlook(policy.global_limit)
    if policy.progress or (policy.progress is None and _may_go_live(policy)):
        return LiveProgress(take_census, outlook, spider)
    if policy.progress is None and policy.stats_interval:
        return LoggedProgress(take_census, outlook, spider, policy.stats_interval)
    return None


def _may_go_live(policy: Policy) -> bool:
    return (
        is_terminal(sys.stderr)
        and policy.stats_interval > 0
        and policy.shows_log
        and not policy.feeds_stdout
        and find_spec("rich") is not None
    )


class LiveProgress:
    def __init__(
        self,
        take_census: Callable[[float], Census],
        outlook: Outlook,
        spider: Spider | None,
    ) -> None:
        # Here, since rich may be missing, and not later, since it takes its time.
        from scrapy_politeness.observe.dashboard import draw

        self._draw_board = draw
        self._take_census = take_census
        self._outlook = outlook
        self._name = printable(spider.name if spider else "crawl")
        self._beat = Beat(self._draw, _REDRAW)
        self._started_at = time.monotonic()

    def start(self) -> None:
        self._beat.start(_FIRST)

    def stop(self) -> None:
        self._beat.stop()
        census = self._take_census(0.0)
        took = duration(time.monotonic() - self._started_at)
        heading = f"{self._name}: {_counts(census, None)}, after {took}"
        with suppress(OSError, ValueError):  # the terminal is gone
            SCREEN.leave(self, self._draw_board(heading, census, *SCREEN.size()))

    def _draw(self) -> None:
        census = self._take_census(_REDRAW / 2)
        counts = _counts(census, self._outlook.judge(census))
        heading = f"{self._name}: {counts}"
        SCREEN.show(self, self._draw_board(heading, census, *SCREEN.size()))


class LoggedProgress:
    def __init__(
        self,
        take_census: Callable[[float], Census],
        outlook: Outlook,
        spider: Spider | None,
        every: float,
    ) -> None:
        self._take_census = take_census
        self._outlook = outlook
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        self._every = every
        self._beat = Beat(self._tell, every)

    def start(self) -> None:
        self._beat.start(self._every)

    def stop(self) -> None:
        self._beat.stop()

    def _tell(self) -> None:
        census = self._take_census(1.0)
        counts = _counts(census, self._outlook.judge(census))
        self._log.info(
            "Progress: %(counts)s%(slot)s",
            {"counts": counts, "slot": _of_slot(census)},
        )


def _counts(census: Census, prospect: Prospect | None) -> str:
    parts = [
        f"{census.done} done",
        f"{census.pending} waiting",
        f"{census.in_progress} in progress",
    ]
    if refused := census.total.refused + census.total.timed_out:
        parts.append(f"{refused} refused")
    if prospect is not None:
        parts.append(str(prospect))
    return ", ".join(parts)


def _of_slot(census: Census) -> str:
    """The slot with the most to see."""
    if not census.slots or (status := census.slots[0].status) is None:
        return ""
    view = census.slots[0]
    return f"; {printable(view.key)}: {rate(status.rate)}, {view.condition}"
