"""Model limiters, a row of them for all rates: windows that slide, and fixed ones.

What a row and its cells are is said of the token buckets.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor.buckets import CONTRADICTED, MOST_MISSING
from scrapy_politeness.core.snapshot import (
    amount,
    kept,
    kinds_of,
    number,
    positive,
    whole,
)

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

# Evidence lost for each request that was served by a full window.
_RULED_OUT = 1.0


# A window is counted in this many parts. Each is one digit where the count is written
# down; there are no more in a part at 100 requests per second.
_PARTS = 200
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

# Requests that follow each other quickly may arrive in another window than they were
# sent in: a host that has served some is believed to serve this many more.
_BLURRED = 0.2

# How likely it is that a window counts those as well that it refuses. They leave a
# window shorter than this, in seconds, before that matters.
_COUNTS_ALL = 0.3
_LONG = 30.0

# Seconds: a request sent this long before one that was served already is late.
_LATE = 1.0

# At either end of a fixed window, one request may be counted in another than it was
# sent in.
_MISPLACED = 1.0

# Where a host serves again within these seconds, or after a silence of this share of a
# window, the window has hardly ended in between.
_SOON = 0.1
_UNLIKELY = 1 / 60

# A window with fewer is a bucket.
_FEWEST = 5.0


@dataclass(eq=False, slots=True)
class Windows:
    """Windows of one length, with limits of all rates: a host that has served as many
    in this window serves no more.

    Of each cell all rates are equally likely, but for the two that the ``_floor`` and
    the ``_roof`` lie in: what has been served lately, and what was refused.
    """

    _seconds: float
    _floor: float = kept(amount, 0.0)
    _roof: float = kept(positive, math.inf)

    def add(self, at: float) -> None:
        """A request that was sent then was served."""
        raise NotImplementedError

    def serve(
        self, limits: Sequence[float], count: int, evidence: array[float]
    ) -> None:
        """Take the evidence from cells that would have refused what was served."""
        peak, trough = self._extremes()
        least = _limit(peak) / self._seconds
        always = bisect_left(limits, _limit(trough) / self._seconds)
        cells = bisect_left(limits, least)
        for cell in range(cells - 1):
            if cell < always - 1:
                evidence[cell] -= _RULED_OUT * count
            else:
                missing = (least - limits[cell + 1]) * self._seconds
                evidence[cell] -= CONTRADICTED * (min(missing, MOST_MISSING) + 0.5)
        if 0 < cells < len(limits):
            low, high = self._part(limits, cells - 1)
            if low < least < high:
                evidence[cells - 1] += math.log(
                    math.log(high / least) / math.log(high / low)
                )
        self._floor = max(self._floor, least)
        if least >= self._roof:
            self._roof = math.inf

    def full(
        self, limits: Sequence[float], at: float, refused: Sequence[float]
    ) -> list[float]:
        """The share of each cell that refuses a request sent then, where those sent at
        these times were ``refused`` before."""
        return self._below(limits, self._most(at))

    def refuse(
        self,
        limits: Sequence[float],
        at: float,
        evidence: array[float],
        refused: Sequence[float],
    ) -> None:
        """A request that was sent then was refused."""
        self._roof = self._most(at, refused)
        for cell in range(bisect_left(limits, _FEWEST / self._seconds)):
            evidence[cell] = -math.inf

    def forget(self, share: float) -> None:
        self._floor *= 1 - share
        self._roof *= 1 + share

    def _extremes(self) -> tuple[float, float]:
        """The most and the fewest that were in a window when one more was served,
        since this was last asked."""
        raise NotImplementedError

    def _most(self, at: float, refused: Sequence[float] = ()) -> float:
        """The highest limit that refuses a request sent then, if those that were
        ``refused`` before count as well, where that is possible."""
        raise NotImplementedError

    def _below(self, limits: Sequence[float], most: float) -> list[float]:
        """The share of each cell that lies below that limit."""
        cells = bisect_left(limits, most)
        shares = [1.0] * cells + [0.0] * (len(limits) - cells)
        if 0 < cells < len(limits):
            low, high = self._part(limits, cells - 1)
            share = math.log(most / low) / math.log(high / low) if high > low else 0.0
            shares[cells - 1] = min(1.0, max(0.0, share))
        shares[-1] = 0.0
        return shares

    def _part(self, limits: Sequence[float], cell: int) -> tuple[float, float]:
        """What is left of that cell."""
        low, high = limits[cell], limits[cell + 1]
        return max(low, self._floor), self._roof if low < self._roof < high else high


@dataclass(eq=False, slots=True)
class SlidingWindows(Windows):
    """What was served within the last ``_seconds`` counts, at any time."""

    # What was served in each part of the window, the newest last, and one more.
    _counts: list[int] = field(default_factory=lambda: [0] * (_PARTS + 1))
    _total: int = 0
    # The time, in parts, up to which that is.
    _place: float = kept(amount, 0.0)
    _peak: float = kept(amount, 0.0)
    _trough: float = kept(number, math.inf)

    def shape(self) -> dict[str, object]:
        return {"counts": _read_counts, **kinds_of(SlidingWindows)}

    @property
    def counts(self) -> str:
        most = len(_DIGITS) - 1
        return "".join(_DIGITS[min(count, most)] for count in self._counts)

    @counts.setter
    def counts(self, counts: str) -> None:
        self._counts = [_DIGITS.index(digit) for digit in counts]
        self._total = sum(self._counts)

    @property
    def rate(self) -> float:
        """Of what was served within the last window."""
        return self._total / self._seconds

    def add(self, at: float) -> None:
        inside = self._count(at)
        if inside > self._peak:
            self._peak = inside
        if inside < self._trough:
            self._trough = inside
        self._counts[-1] += 1
        self._total += 1

    def full(
        self, limits: Sequence[float], at: float, refused: Sequence[float]
    ) -> list[float]:
        shares = Windows.full(self, limits, at, refused)
        if self._refused_before(at, refused):
            of_all = self._below(limits, self._most(at, refused))
            shares = [
                share + _COUNTS_ALL * (with_all - share)
                for share, with_all in zip(shares, of_all, strict=True)
            ]
        return shares

    def _extremes(self) -> tuple[float, float]:
        found = self._peak, self._trough
        self._peak, self._trough = 0.0, math.inf
        return found

    def _most(self, at: float, refused: Sequence[float] = ()) -> float:
        # One that is known late, such as a timeout, was sent among as many as the last.
        is_late = at * _PARTS / self._seconds < self._place
        inside = self._count(at) - is_late + self._refused_before(at, refused)
        return _limit(inside) / self._seconds

    def _count(self, at: float) -> float:
        """How many were served within a window that ends then."""
        place = max(self._place, at * _PARTS / self._seconds)
        passed = min(int(place) - int(self._place), _PARTS + 1)
        if passed:
            self._counts = [*self._counts[passed:], *([0] * passed)]
            self._total = sum(self._counts)
        self._place = place
        return self._total - (place - int(place)) * self._counts[0]

    def _refused_before(self, at: float, refused: Sequence[float]) -> int:
        if self._seconds < _LONG:
            return 0
        return sum(at - self._seconds < sent_at < at for sent_at in refused)


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

    def shape(self) -> dict[str, object]:
        return dict(kinds_of(FixedWindows))

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
        most = max(
            self._inside - 1 - _MISPLACED, self._floor * self._seconds - _BLURRED
        )
        return most, most

    def _most(self, at: float, refused: Sequence[float] = ()) -> float:
        self._roll(at)
        return _limit(self._before + self._inside + self._after) / self._seconds

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


def _limit(count: float) -> float:
    """The lowest limit with which one more than ``count`` is served."""
    return max(count + _BLURRED, _FEWEST)


def _read_counts(value: object) -> str:
    if (
        not isinstance(value, str)
        or len(value) != _PARTS + 1
        or not set(value) <= set(_DIGITS)
    ):
        raise ValueError(f"not a window of {_PARTS} parts: {value!r:.80}")
    return value
