"""The cells of a belief: stretches of rates that a host's limit may lie in.

Rates are natural logarithms relative to the rate in use. Cells are narrow near that and
wide far from it; the last cell, without an upper edge, means no limit.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from scrapy_politeness.core.snapshot import row

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

# The narrowest cells are one per cent wide, each next one by this factor wider, from
# a thousandth of the rate to twelve times the rate. What lies above is no limit.
NARROWEST = 0.01
_WIDER = 1.5
_LOWEST, _HIGHEST = -6.5, 2.5

# How likely it is at first that there is no limit, in units of a cell's width.
_NO_LIMIT = 4.0

# To the cell below leaks so much of that. With nothing, a rate too high would pass for
# ever more bad luck; with as much, the limit would follow each rate that bad luck has
# lowered.
_DOWN = 0.05

# Limits change by little at a time: no cell leaks as if it were wider than this.
_WIDEST_LEAK = 0.12


def _edges() -> list[float]:
    below, above, step = [0.0], [0.0], NARROWEST
    while below[-1] > _LOWEST:
        below.append(below[-1] - step)
        if above[-1] < _HIGHEST:
            above.append(above[-1] + step)
        step *= _WIDER
    return [*reversed(below), *above[1:]]


EDGES = _edges()
CELLS = len(EDGES)
MIDDLES = [(low + high) / 2 for low, high in pairwise(EDGES)]
WIDTHS = [high - low for low, high in pairwise(EDGES)] + [_NO_LIMIT]


def quantiles(weights: Sequence[float], *shares: float) -> list[float]:
    """The places below which these shares of the weights are, in that order; infinite
    in the last cell."""
    total = sum(weights)
    found: list[float] = []
    below = 0.0
    for (low, high), weight in zip(pairwise(EDGES), weights, strict=False):
        while len(found) < len(shares):
            missing = shares[len(found)] * total - below
            if missing > weight:
                break
            found.append(low + missing / weight * (high - low))
        below += weight
    return found + [math.inf] * (len(shares) - len(found))


def share_above(weights: Sequence[float], place: float) -> float:
    """The share of the weights that is above that place."""
    above = weights[-1]
    for (low, high), weight in zip(pairwise(EDGES), weights, strict=False):
        above += weight * min(1.0, max(0.0, (high - place) / (high - low)))
    return above / sum(weights)


def most_worth(weights: Sequence[float], refusal: float) -> float:
    """The place that is worth its risk; infinite if that is the last cell. A place that
    is too high costs as much as one that is too low by the same factor, and a
    ``refusal`` more.

    Where the limit is certain, it is just under that; where it may be anywhere, about
    in the middle.
    """
    above, below, logarithms = sum(weights), 0.0, 0.0
    best, highest = math.inf, -math.inf
    for edge, middle, weight in zip(EDGES, (*MIDDLES, 0.0), weights, strict=True):
        worth = edge * (above - below) + 2 * logarithms - refusal * below
        if worth > highest:
            best, highest = edge, worth
        above -= weight
        below += weight
        logarithms += weight * middle
    return math.inf if best == EDGES[-1] else best


def leaked(densities: Sequence[float], share: float) -> list[float]:
    """The densities, after that share of each has leaked to its neighbours."""
    flows = [
        share
        * max(here - there, _DOWN * (here - there))
        * min(width, other, _WIDEST_LEAK)
        for (here, there), (width, other) in zip(
            pairwise(densities), pairwise(WIDTHS), strict=True
        )
    ]
    return [
        density + (gain - loss) / width
        for density, gain, loss, width in zip(
            densities, (0.0, *flows), (*flows, 0.0), WIDTHS, strict=True
        )
    ]


def moved(rows: Sequence[Sequence[float]], shift: float) -> list[array[float]]:
    """What the rows say of the cells, where the rate in use has moved by that."""
    between, cell = [], 0
    last = len(MIDDLES) - 2
    for middle in MIDDLES:
        place = middle + shift
        while cell < last and MIDDLES[cell + 1] < place:
            cell += 1
        low, high = MIDDLES[cell], MIDDLES[cell + 1]
        between.append((cell, min(1.0, max(0.0, (place - low) / (high - low)))))
    return [
        row(
            [
                values[cell] + share * (values[cell + 1] - values[cell])
                for cell, share in between
            ]
            + [values[-1]]
        )
        for values in rows
    ]
