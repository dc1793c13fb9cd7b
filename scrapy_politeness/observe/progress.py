"""Progress and time left: a live display in a terminal, or a line in the log."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.core.text import duration, rate
from scrapy_politeness.http.names import printable
from scrapy_politeness.scheduling.timers import Beat

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.pace import Limit
    from scrapy_politeness.observe.census import Census
    from scrapy_politeness.observe.live import LiveDisplay

logger = logging.getLogger(__name__)

# Seconds. A crawl of a single page needs no display.
_FIRST_DRAWN = 1.0
_REDRAW = 0.25
# A spider that has found nothing new for this long may be at its end.
_STILL_FINDING = 60.0


class Progress:
    """Shown in a ``display``, or logged where that is None. ``take_census`` takes the
    age in seconds up to which a census may be reused."""

    def __init__(
        self,
        policy: Policy,
        take_census: Callable[[float], Census],
        spider: Spider | None,
    ) -> None:
        self.display = _display() if _is_live(policy) else None
        self._take_census = take_census
        self._spider = spider
        self._name = printable(spider.name if spider else "crawl")
        self._eta = EtaEstimate(policy.global_limit)
        logged_every = policy.stats_interval if policy.progress is None else 0.0
        self._every = _REDRAW if self.display else logged_every
        self._beat = Beat(self._show, self._every)
        self._started_at = time.monotonic()

    def start(self) -> None:
        if self._every:
            self._beat.start(_FIRST_DRAWN if self.display else self._every)

    def stop(self) -> None:
        self._beat.stop()
        if self.display is not None:
            census = self._take_census(0.0)
            took = duration(time.monotonic() - self._started_at)
            heading = f"{self._name}: {_counts(census)}, after {took}"
            with suppress(OSError, ValueError):  # the terminal is gone
                self.display.hide(self, heading, census)

    def _show(self) -> None:
        census = self._take_census(min(1.0, self._every / 2))
        counts = _counts(census, self._eta.update(census))
        if self.display is not None:
            self.display.show(self, f"{self._name}: {counts}", census)
            return
        logger.info(
            "Progress: %(counts)s%(slot)s",
            {"counts": counts, "slot": _first_slot(census)},
            extra={"spider": self._spider},
        )


def _display() -> LiveDisplay:
    # rich is an optional dependency, and takes too long to import in a running crawl.
    from scrapy_politeness.observe.live import DISPLAY

    return DISPLAY


def _is_live(policy: Policy) -> bool:
    if policy.progress is not None:
        return policy.progress
    # Not every replacement of stderr has all its methods.
    isatty = getattr(sys.stderr, "isatty", None)
    return (
        isatty is not None
        and isatty()
        and os.environ.get("TERM") != "dumb"
        and policy.stats_interval > 0
        and policy.shows_log
        and not policy.feeds_stdout
        and find_spec("rich") is not None
    )


class Eta(NamedTuple):
    """``is_minimum`` while the spider still finds new requests."""

    seconds: float
    is_minimum: bool

    def __str__(self) -> str:
        return f"{'at least ' if self.is_minimum else ''}{duration(self.seconds)} left"


class EtaEstimate:
    def __init__(self, global_limit: Limit | None) -> None:
        self._interval = global_limit.average_interval if global_limit else 0.0
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
