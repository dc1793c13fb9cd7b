"""When may the next request go, where several processes share one budget and cannot
talk to each other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.core.leases import HORIZON, grace
from scrapy_politeness.core.pace import HEAD_START, is_enough

if TYPE_CHECKING:
    from scrapy_politeness.core.pace import Pace

_MICROS = 1_000_000


class Seat(NamedTuple):
    """Which of the processes that share a budget this one is, counted from 0, and of
    how many."""

    number: int
    of: int


def turn_step(gap: float) -> float:
    """Return how long the turns are where ``gap`` seconds must lie between any two
    requests; 0 where that is too short to be measured on several machines."""
    return gap if gap >= HORIZON else 0.0


class Turns:
    """Answers the same questions as a ``Pace``. The time of the server that all of them
    knew is divided into turns of ``step`` seconds, and this process sends only at the
    beginning of those of its seat: so the gap to those of the others is kept. A turn
    that is not used within its grace lapses.

    ``offset`` is by how much that clock is ahead of ours. Nothing is sent before
    ``not_before``: until then, others may use what was reserved earlier.
    """

    def __init__(
        self, pace: Pace, seat: Seat, step: float, offset: float, not_before: float
    ) -> None:
        self._pace = pace
        self._step = round(step * _MICROS)
        self._seat = seat
        self._offset = round(offset * _MICROS)
        self._not_before = not_before
        self._grace = grace(step)
        self._turn = -math.inf

    def next_turn(self, at: float) -> float:
        """Return when the first turn from then on begins."""
        if at == math.inf:
            return at
        cycle, own = self._seat.of * self._step, self._seat.number * self._step
        there = round(at * _MICROS) + self._offset
        number = -((own - there) // cycle)
        return (number * cycle + own - self._offset) / _MICROS

    def ready_at(self, interval: float, floor: float = 0.0) -> float:
        # A request that went a little late in its turn must not miss the next one.
        at = max(self._pace.ready_at(interval, floor) - self._grace, self._not_before)
        self._turn = self.next_turn(at)
        return self._turn

    def has_permit(self, now: float, shared: object = ()) -> bool:
        if self._turn + self._grace < now:
            self._not_before = max(self._not_before, now)
            return False
        return self._turn <= now

    def claimable_at(
        self,
        claims: int,
        since: float,
        interval: float,
        floor: float = 0.0,
        way: float = 0.0,
    ) -> float:
        at = self.ready_at(interval, floor) - max(HEAD_START, way)
        if not claims:
            return at
        slowest = max(interval, floor)
        return math.inf if is_enough(claims, slowest, way) else at + claims * slowest

    def idle_at(self, interval: float, floor: float = 0.0) -> float:
        return self.ready_at(interval, floor)

    def take(self, now: float, interval: float, floor: float = 0.0) -> float:
        return self._pace.take(now, interval, floor)

    def restart(self, now: float) -> None:
        self._pace.restart(now)

    def pause_until(self, until: float, interval: float) -> None:
        self._pace.pause_until(until, interval)

    def forget_pause(self) -> None:
        self._pace.forget_pause()
