"""Model limiters, a row of them for all rates: token buckets.

Each says of what a host serves whether it could have, and of the next request whether
it will. A row has a *cell* for each stretch of rates that a limit may lie in, and what
it says of a cell is the share of that stretch. The last cell has no limit.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING

from scrapy_politeness.core.snapshot import finite, row, row_of

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterable, Sequence

# No two requests travel equally fast: a token may be a little late.
_TOKEN = 1.005

# Evidence lost for each token that a request was served without, at most this many.
CONTRADICTED = 1.5
MOST_MISSING = 2.0


class Buckets:
    """Token buckets of all rates, with bursts between two sizes. Of each cell, the one
    that holds the ``least`` is run, and the one that holds the ``most``."""

    __slots__ = ("_bursts", "least", "most")

    def __init__(self, cells: int, smallest: float, largest: float) -> None:
        self._bursts = smallest, largest
        self.least = row([smallest] * cells)
        self.most = row([largest] * cells)

    def shape(self) -> dict[str, object]:
        cells = row_of(len(self.least), finite)
        return {"least": cells, "most": cells}

    def serve(
        self,
        limits: Sequence[float],
        seconds: float,
        count: int,
        evidence: array[float],
    ) -> None:
        """``count`` requests were served in the last ``seconds``: take the evidence
        from cells that would have refused one."""
        smallest, largest = self._bursts
        gains = [limit * seconds - count for limit in limits]
        least = _filled(self.least, gains, smallest - 1)
        most = _filled(self.most, (*gains[1:], math.inf), largest - 1)
        if least[0] < 0:
            _contradict(least, most, evidence)
        self.least, self.most = row(least), row(most)

    def fill(self, limits: Sequence[float], seconds: float) -> None:
        self.least, self.most = map(row, self._after(limits, seconds))

    def empty(self, limits: Sequence[float], seconds: float) -> list[float]:
        """The share of each cell that refuses a request ``seconds`` from now."""
        return [
            0.0
            if low >= _TOKEN
            else 1.0
            if high <= _TOKEN
            else (_TOKEN - low) / (high - low)
            for low, high in zip(*self._after(limits, seconds), strict=True)
        ]

    def move(self, moved: Callable[[Sequence[float]], array[float]]) -> None:
        self.least, self.most = moved(self.least), moved(self.most)

    def _after(
        self, limits: Sequence[float], seconds: float
    ) -> tuple[list[float], list[float]]:
        gains = [limit * seconds for limit in limits]
        smallest, largest = self._bursts
        return (
            _filled(self.least, gains, smallest),
            _filled(self.most, (*gains[1:], math.inf), largest),
        )


def _filled(
    tokens: Iterable[float], gains: Iterable[float], most: float
) -> list[float]:
    return [
        filled if (filled := had + gain) < most else most
        for had, gain in zip(tokens, gains, strict=True)
    ]


def _contradict(least: list[float], most: list[float], evidence: array[float]) -> None:
    """Of a cell, the part whose bucket is empty is ruled out."""
    for cell in range(bisect_left(least, 0.0)):
        left = most[cell]
        if least[cell] >= 0:
            continue  # damaged: they rise with the rate
        if left > 0:
            evidence[cell] += math.log(left / (left - least[cell]))
            least[cell] = 0.0
        else:
            left = max(left, -MOST_MISSING)
            least[cell] = most[cell] = left
            evidence[cell] += CONTRADICTED * (left - 0.5)
