"""Model limiters, a row of them for all rates: token buckets.

Each says of what a host serves whether it could have, and of the next request whether
it will. A row has a *cell* for each stretch of rates that a limit may lie in, and what
it says of a cell is the share of that stretch. The last cell has no limit.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING

from scrapy_politeness.core.snapshot import finite, listing, row, row_of

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterable, Sequence

# No two requests travel equally fast: a token may be a little late.
_TOKEN = 1.005

# Evidence lost for each token that a request was served without, at most this many.
CONTRADICTED = 1.5
MOST_MISSING = 2.0


class Buckets:
    """One row of token buckets, of all rates, for each pair of neighbouring ``bursts``.
    Each cell runs the bucket that holds the least and the one that holds the most."""

    __slots__ = ("_bursts", "_least", "_most")

    def __init__(self, cells: int, bursts: Sequence[float]) -> None:
        self._bursts = list(pairwise(bursts))
        self._least = [row([smallest] * cells) for smallest, _ in self._bursts]
        self._most = [row([largest] * cells) for _, largest in self._bursts]

    def shape(self) -> dict[str, object]:
        cells = row_of(len(self._least[0]), finite)
        return {"missing": listing(*[cells] * (2 * len(self._bursts)))}

    @property
    def missing(self) -> list[array[float]]:
        """How much each bucket lacks. It is saved instead of what each holds, so that
        rounding leaves a full bucket full."""
        rows = self._least + self._most
        return [
            row(burst - held for held in cells)
            for burst, cells in zip(self._all_bursts, rows, strict=True)
        ]

    @missing.setter
    def missing(self, missing: Sequence[array[float]]) -> None:
        held = [
            row(burst - lacking for lacking in cells)
            for burst, cells in zip(self._all_bursts, missing, strict=True)
        ]
        rows = len(self._bursts)
        self._least, self._most = held[:rows], held[rows:]

    def serve(
        self,
        limits: Sequence[float],
        seconds: float,
        count: int,
        evidence: Sequence[array[float]],
    ) -> None:
        """``count`` requests were served in the last ``seconds``: take the evidence
        from cells that would have refused one."""
        gains = [limit * seconds - count for limit in limits]
        for place, (least, most) in enumerate(self._after(gains, below=1)):
            if least[0] < 0:
                _contradict(least, most, evidence[place])
            self._least[place], self._most[place] = row(least), row(most)

    def fill(self, limits: Sequence[float], seconds: float) -> None:
        gains = [limit * seconds for limit in limits]
        for place, (least, most) in enumerate(self._after(gains)):
            self._least[place], self._most[place] = row(least), row(most)

    def empty(self, limits: Sequence[float], seconds: float) -> list[list[float]]:
        """The share of each cell that refuses a request ``seconds`` from now."""
        gains = [limit * seconds for limit in limits]
        return [
            [
                0.0
                if low >= _TOKEN
                else 1.0
                if high <= _TOKEN
                else (_TOKEN - low) / (high - low)
                for low, high in zip(least, most, strict=True)
            ]
            for least, most in self._after(gains)
        ]

    def move(self, moved: Callable[[list[array[float]]], list[array[float]]]) -> None:
        self._least, self._most = moved(self._least), moved(self._most)

    @property
    def _all_bursts(self) -> list[float]:
        return [low for low, _ in self._bursts] + [high for _, high in self._bursts]

    def _after(
        self, gains: Sequence[float], below: float = 0.0
    ) -> list[tuple[list[float], list[float]]]:
        """What the buckets of each row hold after these gains of their cells, capped
        at ``below`` under their burst."""
        upper_gains = (*gains[1:], math.inf)
        return [
            (
                _filled(least, gains, smallest - below),
                _filled(most, upper_gains, largest - below),
            )
            for least, most, (smallest, largest) in zip(
                self._least, self._most, self._bursts, strict=True
            )
        ]


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
