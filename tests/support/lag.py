"""How late a busy machine is: the slack for all times that real crawls are judged by.

A thread sleeps in the process of the tests, and one in each crawl, and writes down by
how much it was woken too late. So did whatever else had to be woken: a timer that
sends, a server that writes down when a request arrived. What was sent in time and
arrived late seems to leave too small a gap to the next, and a whole crawl takes longer
by all of it.
"""

from __future__ import annotations

import os
import threading
import time
from typing import NamedTuple

# Seconds. What is shorter than a tick may be missed.
_TICK = 0.01
# Less is what any timer needs.
_WORTH_NOTING = 0.002
# What no timer shows: packets, imports and garbage collection of the others.
_LEAST = 0.05
# A request passes through several threads, each of which may have waited in the queue
# of a core: connected, accepted, read, answered. A timer has waited once.
_MOST_WAITS = 4.0

_monotonic = time.monotonic  # some tests set the clocks


class Lag(NamedTuple):
    at: float
    seconds: float


class LagMeter:
    def __init__(self) -> None:
        self._here: list[Lag] = []
        self._elsewhere: list[Lag] = []

    def start(self) -> None:
        threading.Thread(target=self._watch, name="lag", daemon=True).start()

    def _watch(self) -> None:
        while True:
            due = _monotonic() + _TICK
            time.sleep(_TICK)
            late = _monotonic() - due
            if late > _WORTH_NOTING:
                self._here.append(Lag(due, late))

    def notes(self) -> list[Lag]:
        return list(self._here)

    def add(self, notes: list[Lag]) -> None:
        """Take over what a crawl has written down."""
        self._elsewhere += notes

    def jitter(self, since: float) -> float:
        """By how much a gap may seem too small: the first request was sent late, and
        arrived late."""
        lags = (self._here, self._elsewhere)
        noted = sum(max(_since(since, notes), default=0.0) for notes in lags)
        return _queueing() * (_LEAST + noted)

    def lost(self, since: float) -> float:
        """What all delays together may have cost."""
        lags = (self._here, self._elsewhere)
        noted = sum(sum(_since(since, notes)) for notes in lags)
        return _queueing() * (_LEAST + noted)


def _queueing() -> float:
    """How many there are for each core."""
    return min(max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), _MOST_WAITS)


def _since(start: float, notes: list[Lag]) -> list[float]:
    return [lag.seconds for lag in notes if lag.at >= start]


METER = LagMeter()
