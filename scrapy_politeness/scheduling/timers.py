"""Timers: to wake the engine when a request may be sent, to look around, to redraw."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.utils.asyncio import CallLaterResult

_LOOK_EVERY = 0.5

# What is redrawn for people takes no more of the time than this.
_LARGEST_SHARE = 0.01
_LONGEST_BREAK = 2.0


class Timed:
    """Has a timer, None while it does not run."""

    _timer: CallLaterResult | None = None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Alarm(Timed):
    """Rings once, at the earliest time that it was set to since it last rang."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self.at = math.inf

    def set(self, at: float) -> None:
        if at < self.at:
            wait = at - time.monotonic()
            if wait <= 0:
                self._ring()
                return
            if self._timer is not None:
                self._timer.cancel()
            self.at = at
            self._timer = call_later(wait, self._due)

    def stop(self) -> None:
        """Never ring again."""
        super().stop()
        self.at = -math.inf

    def _due(self) -> None:
        self._timer = None
        self.at = math.inf
        self._ring()


class Watch(Timed):
    """Calls ``look`` twice a second, from ``start`` until it returns False.

    Scrapy sends no signal when it begins to close a spider, and then waits for all
    requests in progress, those that we hold included.
    """

    def __init__(self, look: Callable[[], bool]) -> None:
        self._look = look

    def start(self) -> None:
        if self._timer is None:
            self._timer = call_later(_LOOK_EVERY, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._look():
            self.start()


class Beat(Timed):
    """Calls ``work`` ``every`` few seconds, or less often where that takes long."""

    def __init__(self, work: Callable[[], None], every: float) -> None:
        self._work = work
        self._every = every

    def start(self, wait: float) -> None:
        """``wait`` is the time before the first call."""
        self._timer = call_later(wait, self._due)

    def _due(self) -> None:
        began = time.perf_counter()
        self._work()
        took = time.perf_counter() - began
        self.start(max(self._every, min(_LONGEST_BREAK, took / _LARGEST_SHARE)))
