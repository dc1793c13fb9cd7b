"""All model limiters of a belief, run along with the real requests.

Each row is of one kind, with a limiter for each cell: a stretch of rates that the limit
may lie in. The first rows are token buckets, then come windows that slide, and windows
that begin where the last one ends.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor.buckets import Buckets
from scrapy_politeness.core.governor.cells import CELLS, EDGES
from scrapy_politeness.core.governor.fixed_windows import FixedWindows
from scrapy_politeness.core.governor.windows import SlidingWindows, WindowRows
from scrapy_politeness.core.snapshot import (
    amount,
    listing,
    part,
    positive,
    series,
    when,
    whole,
)

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence

# The bursts between which a cell's lies. Most limiters let 1 to 100 through at once; a
# burst of exactly 1 would be ruled out by a request that merely travels faster.
_BURSTS = (1.02, 1.5, 6.0, 25.0, 128.0)

# Seconds: of those hosts that count by windows, most have one of these.
_WINDOWS = (1.0, 10.0, 60.0)

# Many count by the minute, from its beginning to its end.
_FIXED = 60.0

# Some limiters explain nearly anything at first: those that let one through at a time,
# and those that count by the minute. They begin with this much less evidence, as a
# natural logarithm.
_RARE_ONE = 3.0
_RARE_FIXED = 4.0

_FIRST_WINDOWS = len(_BURSTS) - 1
ROWS = _FIRST_WINDOWS + len(_WINDOWS) + 1
RARITY = (_RARE_ONE, *[0.0] * (ROWS - 2), _RARE_FIXED)

# No host is asked for more requests per second than this, or less often than once in
# this many seconds.
_FASTEST = 1e6

# This many requests are looked at together.
_BATCH = 5

# Of those that were refused, this many are remembered, to hundredths of a second.
_MOST_REFUSED = 6
_DECIMALS = 2


class ModelLimiters:
    """``rate`` is where the cells are narrowest, ``limits`` are their lower edges, and
    ``count`` is how much was served since the last look."""

    __slots__ = (
        "_at",
        "_buckets",
        "_fixed",
        "_gap",
        "_refused",
        "_sliding",
        "_until",
        "_windows",
        "count",
        "limits",
        "rate",
    )

    def __init__(self, rate: float, now: float) -> None:
        self.narrow_at = rate
        self._buckets = Buckets(CELLS, _BURSTS)
        self._sliding = [SlidingWindows(seconds) for seconds in _WINDOWS]
        self._fixed = FixedWindows(_FIXED)
        # The same objects: a state from outside is read into them.
        self._windows = WindowRows((*self._sliding, self._fixed))
        # Requests that were served, but have not been looked at, the last at _until.
        self._at = self._until = now
        self.count = 0
        # When those were sent that the host has refused lately, and said why.
        self._refused: list[float] = []
        # The time between two requests, lately.
        self._gap = 0.0

    def shape(self) -> dict[str, object]:
        return {
            "narrow_at": _rate,
            "_buckets": part(self._buckets),
            "_sliding": listing(*map(part, self._sliding)),
            "_fixed": part(self._fixed),
            "_at": when,
            "_until": when,
            "count": whole,
            "_refused": series(when),
            "_gap": amount,
        }

    @property
    def narrow_at(self) -> float:
        return self.rate

    @narrow_at.setter
    def narrow_at(self, rate: float) -> None:
        self.rate = rate
        self.limits = [rate * math.exp(edge) for edge in EDGES]

    @property
    def recent_rate(self) -> float:
        """At how many requests per second the last few were served."""
        return 1 / self._gap if self._gap > 0 else math.inf

    @property
    def goodput(self) -> float:
        """How many requests per second were served lately."""
        return max(window.rate for window in self._sliding[1:])

    def add(self, at: float) -> bool:
        """A request that was sent then was served; tell whether it is time to look."""
        self.count += 1
        self._until = max(self._until, at)
        self._windows.add(at)
        return self.count >= _BATCH

    def look(self, evidence: Sequence[array[float]]) -> int:
        """Take the evidence from cells that would have refused what was served since
        the last look; return how many requests that was."""
        count, self.count = self.count, 0
        seconds = self._until - self._at
        self._at = self._until
        if seconds > 0:
            self._gap = seconds / count
        self._buckets.serve(self.limits, seconds, count, evidence)
        self._windows.serve(self.limits, count, evidence[_FIRST_WINDOWS:])
        return count

    def full(self, at: float) -> list[list[float]]:
        """The share of each cell that refuses a request sent then."""
        # What arrives late was sent at about the same rate as the others.
        seconds = at - self._at if at > self._at else self._gap
        return [
            *self._buckets.empty(self.limits, seconds),
            *self._windows.full(self.limits, at, self._refused),
        ]

    def refuse(self, at: float, evidence: Sequence[array[float]]) -> None:
        """A request that was sent then was refused."""
        self._buckets.fill(self.limits, max(0.0, at - self._at))
        self._at = self._until = max(self._at, at)
        self._windows.refuse(self.limits, at, evidence[_FIRST_WINDOWS:], self._refused)

    def add_refused(self, at: float) -> None:
        """A request that was sent then was refused, which says nothing new; but some
        hosts count those as well."""
        self._fixed.refuse_again(at)
        at = round(at, _DECIMALS)
        self._refused = [*self._refused[1 - _MOST_REFUSED :], at]

    def forget(self, share: float) -> None:
        self._windows.forget(share)

    def move(
        self,
        rate: float,
        moved: Callable[[list[array[float]]], list[array[float]]],
    ) -> None:
        self.narrow_at = rate
        self._buckets.move(moved)


def _rate(value: object) -> float:
    if not 1 / _FASTEST <= positive(value) <= _FASTEST:
        raise ValueError(f"out of range: {value!r}")
    return positive(value)
