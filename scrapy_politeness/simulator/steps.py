"""Limits that change over time."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate, pairwise

_DAY = 86400.0


class Steps:
    """A rate that changes at set times, ``(from when on, requests per second)``;
    where ``every`` is given, it begins anew after so many seconds."""

    def __init__(self, *pieces: tuple[float, float], every: float = math.inf) -> None:
        self._starts = [start for start, _ in pieces]
        self._rates = [rate for _, rate in pieces]
        self._every = every
        parts = (
            (end - start) * rate
            for (start, end), rate in zip(
                pairwise([*self._starts, every]), self._rates, strict=True
            )
        )
        self._sums = [0.0, *accumulate(parts)]

    def rate(self, now: float) -> float:
        within = now % self._every if self._every < math.inf else now
        return self._rates[bisect_right(self._starts, within) - 1]

    def total(self, start: float, end: float) -> float:
        """The requests allowed between the two times."""
        if len(self._starts) == 1:
            return self._rates[0] * (end - start)
        return self._until(end) - self._until(start)

    def changes(self, end: float) -> list[float]:
        if self._every == math.inf:
            return [start for start in self._starts[1:] if start < end]
        rounds = range(math.ceil(end / self._every))
        times = [n * self._every + start for n in rounds for start in self._starts]
        return [time for time in times if 0 < time < end]

    def _until(self, now: float) -> float:
        before = 0.0
        if self._every < math.inf:
            rounds, now = divmod(now, self._every)
            before = rounds * self._sums[-1]
        piece = bisect_right(self._starts, now) - 1
        part = (now - self._starts[piece]) * self._rates[piece]
        return before + self._sums[piece] + part


def day_and_night(day: float, night: float) -> Steps:
    """The rate ``day`` for twelve hours, then ``night`` for twelve, and again."""
    return Steps((0.0, day), (_DAY / 2, night), every=_DAY)
