"""How slow the event loop is: not the host's doing, but ours."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later

from scrapy_politeness.scheduling.timers import Timed

if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds between two measurements, and how many are remembered.
_EVERY = 0.1
_REMEMBERED = 10


class LoopLag(Timed):
    """Measures how slow the event loop is, from ``start`` until a second after
    ``goes_on`` has returned True for the last time: a busy process sees all answers
    late, whichever host they are from."""

    def __init__(self, goes_on: Callable[[], bool]) -> None:
        self._goes_on = goes_on
        self._due_at = math.inf
        self._turns: deque[float] = deque(maxlen=_REMEMBERED)
        self._left = 0

    def slowest_turn(self, now: float) -> float:
        """In seconds, of those in the last second, and of one that is overdue."""
        overdue = max(0.0, now - self._due_at)
        return max(overdue, *self._turns) if self._turns else overdue

    def start(self) -> None:
        if self._timer is None:
            self._turns.clear()
            self._plan()

    def stop(self) -> None:
        super().stop()
        self._due_at = math.inf

    def _plan(self) -> None:
        self._due_at = time.monotonic() + _EVERY
        self._timer = call_later(_EVERY, self._measure)

    def _measure(self) -> None:
        self._due_at = time.monotonic()
        self._timer = call_later(0, self._turned)

    def _turned(self) -> None:
        self._turns.append(time.monotonic() - self._due_at)
        self._left = _REMEMBERED if self._goes_on() else self._left - 1
        if self._left > 0:
            self._plan()
        else:
            self._timer = None
            self._due_at = math.inf
