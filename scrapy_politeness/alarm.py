"""Timers: to wake the engine when a request may go, to look around, to show things,
and to feel how late they are."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.utils.asyncio import CallLaterResult

_LOOK_EVERY = 0.5

# What is done again and again for people to see takes no more of the time than this.
_LARGEST_SHARE = 0.01
_LONGEST_REST = 2.0

# Seconds between two beats of the pulse; so many of them are remembered.
_BEAT = 0.1
_BEATS = 10


class Alarm:
    """Rings once, at the earliest time that it was set to since it last rang."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._at = math.inf
        self._timer: CallLaterResult | None = None

    def set(self, at: float) -> None:
        if at >= self._at:
            return
        self.cancel()
        self._at = at
        self._timer = call_later(max(0.0, at - time.monotonic()), self._due)

    def cancel(self) -> None:
        self._at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stop(self) -> None:
        """Never ring again."""
        self.cancel()
        self._at = -math.inf

    def _due(self) -> None:
        self._timer = None
        self._at = math.inf
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


class Pulse:
    """Tells how slow the event loop is, from ``start`` until a second after
    ``goes_on`` has returned True for the last time: a process with too much to do sees
    all answers late, whichever host they are from."""

    def __init__(self, goes_on: Callable[[], bool]) -> None:
        self._goes_on = goes_on
        self._due_at = math.inf
        self._turns: deque[float] = deque(maxlen=_BEATS)
        self._beats_left = 0
        self._timer: CallLaterResult | None = None

    @property
    def slowest_turn(self) -> float:
        """In seconds, of those felt in the last second, and of what is overdue."""
        overdue = max(0.0, time.monotonic() - self._due_at)
        return max(overdue, *self._turns) if self._turns else overdue

    def start(self) -> None:
        if self._timer is None:
            self._turns.clear()
            self._plan()

    def stop(self) -> None:
        self._due_at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _plan(self) -> None:
        self._due_at = time.monotonic() + _BEAT
        self._timer = call_later(_BEAT, self._beat)

    def _beat(self) -> None:
        self._due_at = time.monotonic()
        self._timer = call_later(0, self._turned)

    def _turned(self) -> None:
        self._turns.append(time.monotonic() - self._due_at)
        self._beats_left = _BEATS if self._goes_on() else self._beats_left - 1
        if self._beats_left > 0:
            self._plan()
        else:
            self._timer = None
            self._due_at = math.inf


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
