"""How slow the event loop is, which is nobody's fault but ours."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.utils.asyncio import CallLaterResult

# Seconds between two beats; so many of them are remembered.
_BEAT = 0.1
_BEATS = 10


class LoopLag:
    """Tells how slow the event loop is, from ``start`` until a second after
    ``goes_on`` has returned True for the last time: a process with too much to do sees
    all answers late, whichever host they are from."""

    def __init__(self, goes_on: Callable[[], bool]) -> None:
        self._goes_on = goes_on
        self._due_at = math.inf
        self._ready_slots: deque[float] = deque(maxlen=_BEATS)
        self._beats_left = 0
        self._timer: CallLaterResult | None = None

    @property
    def slowest_turn(self) -> float:
        """In seconds, of those felt in the last second, and of what is overdue."""
        overdue = max(0.0, time.monotonic() - self._due_at)
        return max(overdue, *self._ready_slots) if self._ready_slots else overdue

    def start(self) -> None:
        if self._timer is None:
            self._ready_slots.clear()
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
        self._ready_slots.append(time.monotonic() - self._due_at)
        self._beats_left = _BEATS if self._goes_on() else self._beats_left - 1
        if self._beats_left > 0:
            self._plan()
        else:
            self._timer = None
            self._due_at = math.inf
