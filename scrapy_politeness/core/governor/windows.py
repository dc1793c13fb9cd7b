"""Model limiters, a row of them for all rates: windows that slide, and what
all windows have in common.

What a row and its cells are is said of the token buckets.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor.buckets import CONTRADICTED, MOST_MISSING
from scrapy_politeness.core.snapshot import (
    State,
    amount,
    kept,
    number,
    positive_or_infinite,
)

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

# Evidence lost for each request that was served by a full window.
_RULED_OUT = 1.0

# Requests that follow each other quickly may arrive in another window than they were
# sent in: a host that has served some is believed to serve this many more.
BLURRED = 0.2

# Requests per second: nothing that a host does shows a limit this high.
_NO_ROOF = 1e6

# A window with fewer is a bucket.
_FEWEST = 5.0

# A window is counted in this many parts. Each is one digit where the count is written
# down; there are no more in a part at 100 requests per second. A capital letter is a
# run of zeros: A is two, Z is 27.
_PARTS = 200
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_ZEROS = {"0" * count: letter.upper() for count, letter in enumerate(_DIGITS[10:], 2)}
_MANY_ZEROS = re.compile(f"0{{2,{len(_ZEROS) + 1}}}")

# How likely it is that a window counts those as well that it refuses. They leave a
# window shorter than this, in seconds, before that matters.
_COUNTS_ALL = 0.3
_LONG = 30.0


@dataclass(eq=False, slots=True)
class Windows(State):
    """Windows of one length, with limits of all rates: a host that has served as many
    in this window serves no more.

    Of each cell all rates are equally likely, but for the two that the ``_floor`` and
    the ``_roof`` lie in: what has been served lately, and what was refused.
    """

    _seconds: float
    _floor: float = kept(amount, 0.0)
    _roof: float = kept(positive_or_infinite, math.inf)

    def add(self, at: float) -> None:
        """A request that was sent then was served."""
        raise NotImplementedError

    def serve(
        self, limits: Sequence[float], count: int, evidence: array[float]
    ) -> None:
        """Take the evidence from cells that would have refused what was served."""
        peak, trough = self._extremes()
        least = limit_of(peak) / self._seconds
        always = bisect_left(limits, limit_of(trough) / self._seconds)
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
        if self._roof > _NO_ROOF:
            self._roof = math.inf

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
        return {"counts": _read_counts, **State.shape(self)}

    @property
    def counts(self) -> str:
        most = len(_DIGITS) - 1
        every = "".join(_DIGITS[min(count, most)] for count in self._counts)
        return _MANY_ZEROS.sub(lambda found: _ZEROS[found[0]], every)

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
        return limit_of(inside) / self._seconds

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


@dataclass(frozen=True, slots=True)
class WindowRows:
    """All windows that are run, each in step with its row of the evidence."""

    rows: tuple[Windows, ...]

    def add(self, at: float) -> None:
        for windows in self.rows:
            windows.add(at)

    def serve(
        self, limits: Sequence[float], count: int, evidence: Sequence[array[float]]
    ) -> None:
        for windows, of_row in zip(self.rows, evidence, strict=True):
            windows.serve(limits, count, of_row)

    def full(
        self, limits: Sequence[float], at: float, refused: Sequence[float]
    ) -> list[list[float]]:
        return [windows.full(limits, at, refused) for windows in self.rows]

    def refuse(
        self,
        limits: Sequence[float],
        at: float,
        evidence: Sequence[array[float]],
        refused: Sequence[float],
    ) -> None:
        for windows, of_row in zip(self.rows, evidence, strict=True):
            windows.refuse(limits, at, of_row, refused)

    def forget(self, share: float) -> None:
        for windows in self.rows:
            windows.forget(share)


def limit_of(count: float) -> float:
    """The lowest limit with which one more than ``count`` is served."""
    return max(count + BLURRED, _FEWEST)


def _read_counts(value: object) -> str:
    is_short = isinstance(value, str) and len(value) <= _PARTS + 1
    every = str(value) if is_short else ""
    for zeros, letter in _ZEROS.items():
        every = every.replace(letter, zeros)
    if len(every) != _PARTS + 1 or not set(every) <= set(_DIGITS):
        raise ValueError(f"not a window of {_PARTS} parts: {value!r:.80}")
    return every
