"""Progress and time left: a live display in a terminal, or a line in the log."""

from __future__ import annotations

import logging
import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.core.text import duration, rate
from scrapy_politeness.http.names import printable
from scrapy_politeness.scheduling.timers import Beat

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider

    from scrapy_politeness.core.pace import Limit
    from scrapy_politeness.observe.census import Census

logger = logging.getLogger(__name__)

# Seconds. A crawl of a single page needs no display.
_FIRST_DRAWN = 1.0
_REDRAW = 0.25
# A spider that has found nothing new for this long may be at its end.
_STILL_FINDING = 60.0


class Eta(NamedTuple):
    """``is_minimum`` while the spider still finds new requests."""

    seconds: float
    is_minimum: bool

    def __str__(self) -> str:
        return f"{'at least ' if self.is_minimum else ''}{duration(self.seconds)} left"


class EtaEstimate:
    def __init__(self, global_limit: Limit | None) -> None:
        self._interval = global_limit.interval if global_limit else 0.0
        self._most_known = 0
        self._found_at = -math.inf

    def update(self, census: Census) -> Eta | None:
        """Return None where nothing waits."""
        known = census.done + census.pending + census.in_progress
        if known > self._most_known:
            self._most_known = known
            self._found_at = census.at
        if not census.pending:
            return None
        seconds = max(census.eta, census.pending * self._interval)
        return Eta(seconds, census.at - self._found_at < _STILL_FINDING)


class LiveProgress:
    def __init__(
        self,
        take_census: Callable[[float], Census],
        global_limit: Limit | None,
        spider: Spider | None,
    ) -> None:
        # rich is an optional dependency, and takes too long to import in a crawl.
        from scrapy_politeness.observe.live import DISPLAY

        self._display = DISPLAY
        self._take_census = take_census
        self._eta = EtaEstimate(global_limit)
        self._name = printable(spider.name if spider else "crawl")
        self._beat = Beat(self._draw, _REDRAW)
        self._started_at = time.monotonic()

    def start(self) -> None:
        self._beat.start(_FIRST_DRAWN)

    def stop(self) -> None:
        self._beat.stop()
        census = self._take_census(0.0)
        took = duration(time.monotonic() - self._started_at)
        heading = f"{self._name}: {_counts(census)}, after {took}"
        with suppress(OSError, ValueError):  # the terminal is gone
            self._display.hide(self, heading, census)

    def _draw(self) -> None:
        census = self._take_census(_REDRAW / 2)
        counts = _counts(census, self._eta.update(census))
        self._display.show(self, f"{self._name}: {counts}", census)


class LoggedProgress:
    def __init__(
        self,
        take_census: Callable[[float], Census],
        global_limit: Limit | None,
        spider: Spider | None,
        every: float,
    ) -> None:
        self._take_census = take_census
        self._eta = EtaEstimate(global_limit)
        self._spider = spider
        self._every = every
        self._beat = Beat(self._log, every)

    def start(self) -> None:
        self._beat.start(self._every)

    def stop(self) -> None:
        self._beat.stop()

    def _log(self) -> None:
        census = self._take_census(1.0)
        counts = _counts(census, self._eta.update(census))
        logger.info(
            "Progress: %(counts)s%(slot)s",
            {"counts": counts, "slot": _first_slot(census)},
            extra={"spider": self._spider},
        )


def _counts(census: Census, eta: Eta | None = None) -> str:
    refused = census.total.refused + census.total.timed_out
    parts = (
        f"{census.done} done",
        f"{census.pending} waiting",
        f"{census.in_progress} in progress",
        *([f"{refused} refused"] if refused else []),
        *([str(eta)] if eta else []),
    )
    return ", ".join(parts)


def _first_slot(census: Census) -> str:
    """The most interesting one."""
    if not census.slots or (status := census.slots[0].status) is None:
        return ""
    view = census.slots[0]
    return f"; {printable(view.key)}: {rate(status.rate)}, {view.condition}"
