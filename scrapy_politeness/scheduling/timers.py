"""Timers: to wake the engine when a request may go, to look around, to show things."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.utils.asyncio import CallLaterResult

_LOOK_EVERY = 0.5

# What is done again and again for people to see takes no more of the time than this.
_LARGEST_SHARE = 0.01
_LONGEST_REST = 2.0


class Alarm:
    """Rings once, at the earliest time that it was set to since it last rang."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self.at = math.inf
        self._timer: CallLaterResult | None = None

    def set(self, at: float) -> None:
        if at >= self.at:
            return
        self.cancel()
        self.at = at
        self._timer = call_later(max(0.0, at - time.monotonic()), self._due)

    def cancel(self) -> None:
        self.at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stop(self) -> None:
        """Never ring again."""
        self.cancel()
        self.at = -math.inf

    def _due(self) -> None:
        self._timer = None
        self.at = math.inf
        self._ring()


class Watch:
    """Calls ``look`` twice a second, from ``start`` until it returns False.

    Scrapy sends no signal when it begins to close a spider, and then waits for all
    requests in progress, those that we hold included. So while any are held, somebody
    has to look.
    """

    def __init__(self, look: Callable[[], bool]) -> None:
        self._look = look
        self._timer: CallLaterResult | None = None

    def start(self) -> None:
        if self._timer is None:
            self._timer = call_later(_LOOK_EVERY, self._due)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        if self._look():
            self.start()


class Beat:
    """Calls ``work`` every so many seconds, or less often where that takes long."""

    def __init__(self, work: Callable[[], None], every: float) -> None:
        self._work = work
        self._every = every
        self._timer: CallLaterResult | None = None

    def start(self, wait: float) -> None:
        """``wait`` so many seconds before the first time."""
        self._timer = call_later(wait, self._due)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        began = time.perf_counter()
        self._work()
        took = time.perf_counter() - began
        rest = min(_LONGEST_REST, took / _LARGEST_SHARE)
        self.start(max(self._every, rest))
