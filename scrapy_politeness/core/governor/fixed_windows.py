"""Model limiters, a row of them for all rates: fixed windows, each of which begins
where the last one ends.

What a row and its cells are is said of the token buckets.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor.windows import BLURRED, Windows, limit_of
from scrapy_politeness.core.snapshot import kept, number, positive, whole

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

# Seconds: a request sent this long before one that was served already is late.
_LATE = 1.0

# At either end of a fixed window, one request may be counted in another than it was
# sent in.
_MISPLACED = 1.0

# Where a host serves again within these seconds, or after a silence of this share of a
# window, the window has hardly ended in between.
_SOON = 0.1
_UNLIKELY = 1 / 60


@dataclass(eq=False, slots=True)
class FixedWindows(Windows):
    """One window ends where the next begins, and there the count begins at zero. A host
    shows by its silence when that is: between the last refusal and the first success
    after it."""

    # This window began between these.
    _from: float = kept(number, -math.inf)
    _to: float = kept(number, -math.inf)
    # What was served in this window or in the one before, for sure in this one, and in
    # this one or in the next.
    _before: int = kept(whole, 0)
    _inside: int = kept(whole, 0)
    _after: int = kept(whole, 0)
    # When it has last served, and refused, if it has served nothing since.
    _served_at: float = kept(number, -math.inf)
    _refused_at: float = kept(number, math.inf)
    # How likely it was that a window ended in the last silence.
    _likely: float = kept(positive, 1.0)

    def add(self, at: float) -> None:
        if self._to == -math.inf:
            self._from = self._to = at
        self._roll(at)
        if self._refused_at < at:
            self._begin(self._refused_at, at)
        self._served_at = max(self._served_at, at)
        if at < self._from + self._seconds:
            self._inside += 1
        else:
            self._after += 1

    def serve(
        self, limits: Sequence[float], count: int, evidence: array[float]
    ) -> None:
        if self._likely < 1:
            # A window that was full serves again.
            for cell in range(bisect_left(limits, self._roof)):
                evidence[cell] += math.log(self._likely)
            self._likely = 1.0
        Windows.serve(self, limits, count, evidence)

    def full(
        self, limits: Sequence[float], at: float, refused: Sequence[float]
    ) -> list[float]:
        if self._is_late(at):
            return [0.0] * len(limits)
        return Windows.full(self, limits, at, refused)

    def refuse_again(self, at: float) -> None:
        """A request that was sent then was refused, after others."""
        if at > self._served_at:
            self._refused_at = at

    def refuse(
        self,
        limits: Sequence[float],
        at: float,
        evidence: array[float],
        refused: Sequence[float],
    ) -> None:
        if not self._is_late(at):
            Windows.refuse(self, limits, at, evidence, refused)
        self.refuse_again(at)

    def _is_late(self, at: float) -> bool:
        """Of a request that was sent then, such as a timeout: many others have been
        served since, and a full window would not have."""
        return at < self._served_at - _LATE

    def _extremes(self) -> tuple[float, float]:
        # A window that has served more has not been forgotten with the next.
        most = max(self._inside - 1 - _MISPLACED, self._floor * self._seconds - BLURRED)
        return most, most

    def _most(self, at: float, refused: Sequence[float] = ()) -> float:
        self._roll(at)
        return limit_of(self._before + self._inside + self._after) / self._seconds

    def _roll(self, at: float) -> None:
        passed = (at - self._to) // self._seconds if self._to > -math.inf else 0.0
        if passed >= 1:
            self._from += passed * self._seconds
            self._to += passed * self._seconds
            self._before = self._after if passed == 1 else 0
            self._inside = self._after = 0

    def _begin(self, least: float, most: float) -> None:
        """A window may have begun between these."""
        self._refused_at = math.inf
        for passed in (self._seconds, 0.0):
            low, high = max(least, self._from + passed), min(most, self._to + passed)
            if low <= high:
                break
        else:
            low, high = least, most
            self._likely = max(most - least, _SOON) / self._seconds
            if self._likely < _UNLIKELY:
                return
        self._from, self._to = low, high
        self._before = self._inside = self._after = 0
