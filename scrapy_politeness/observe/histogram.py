"""How many waits were how long."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

# Seconds: from what nobody notices to the longest Retry-After that is obeyed.
BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)


class Histogram:
    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def note(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def cumulative(self) -> list[int]:
        """How many were no longer than each bound, and how many there were at all."""
        return list(accumulate(self._counts))
