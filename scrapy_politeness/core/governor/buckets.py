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
    from collections.abc import Callable, Iterable, Iterator, Sequence

# No two requests travel equally fast: a token may be a little late.
_TOKEN = 1.005

# Evidence lost for each token that a request was served without, at most this many.
CONTRADICTED = 1.5
MOST_MISSING = 2.0


class Buckets:
    """Token buckets of all rates, a row of them for each two neighbouring ``bursts``
    that theirs lie between. Of each cell, the one that holds the ``least`` is run, and
    the one that holds the ``most``."""

    __slots__ = ("_bursts", "least", "most")

    def __init__(self, cells: int, bursts: Sequence[float]) -> None:
        self._bursts = list(pairwise(bursts))
        self.least = [row([smallest] * cells) for smallest, _ in self._bursts]
        self.most = [row([largest] * cells) for _, largest in self._bursts]

    def shape(self) -> dict[str, object]:
        cells = row_of(len(self.least[0]), finite)
        rows = listing(*[cells] * len(self._bursts))
        return {"least": rows, "most": rows}

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
        for place, (least, most) in enumerate(self._filled(gains, below=1)):
            if least[0] < 0:
                _contradict(least, most, evidence[place])
            self.least[place], self.most[place] = row(least), row(most)

    def fill(self, limits: Sequence[float], seconds: float) -> None:
        gains = [limit * seconds for limit in limits]
        for place, (least, most) in enumerate(self._filled(gains)):
            self.least[place], self.most[place] = row(least), row(most)

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
            for least, most in self._filled(gains)
        ]

    def move(self, moved: Callable[[list[array[float]]], list[array[float]]]) -> None:
        self.least, self.most = moved(self.least), moved(self.most)

    def _filled(
        self, gains: Sequence[float], below: float = 0.0
    ) -> Iterator[tuple[list[float], list[float]]]:
        """Of each row, what its buckets hold then, which is so much ``below`` the
        burst at most."""
        above = (*gains[1:], math.inf)
        for least, most, (smallest, largest) in zip(
            self.least, self.most, self._bursts, strict=True
        ):
            yield (
                _filled(least, gains, smallest - below),
                _filled(most, above, largest - below),
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
