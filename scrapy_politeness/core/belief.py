"""What is believed of a host's limit: a bank of model limiters.

Theory of operation
-------------------
Each *cell* of the bank is a guess: the limit lies between two rates, the burst between
two sizes. A cell runs the token bucket that it stands for, once with the least and once
with the most that its guess allows, along with the real requests. So each cell predicts
what the host does next, and is worth as much as its predictions were.

==========  ==========================  =============================================
the host    the cell's bucket           the cell's evidence
==========  ==========================  =============================================
serves      has a token                 stays
serves      is empty                    falls: the host has more than that
refuses     is empty                    rises against the others
refuses     has a token                 falls by as much as bad luck is unlikely
==========  ==========================  =============================================

Bad luck is a refusal that has nothing to do with the rate. Each cell counts those that
it cannot explain otherwise: their share of all requests is how likely it finds the
next. So a cell without a limit explains a host that fails one request in a hundred as
well as it can be explained; and for a host with a limit, the cell with that limit needs
no bad luck at all. Which of them is right, the rate decides: what gets rarer where we
go slower is a limit.

Limits change. One that falls is told by refusals; one that rises is told by nothing, so
evidence leaks slowly from each cell to its neighbours, mostly to that above, and a
trace of it to all. Nothing is believed for good.

Evidence is a natural logarithm; the best cell has 0. Cells are narrow near the rate
that is in use and wide far from it; they move along with the rate.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING

from scrapy_politeness.core.snapshot import amount, finite, positive, series, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# The bursts between which a cell's lies. Most limiters let 1 to 100 through at once;
# and with just one token, a request that travels a little faster was never served.
_BURSTS = (1.5, 6.0, 25.0, 128.0)
_ROWS = len(_BURSTS) - 1

# The narrowest cells are one per cent wide, each next one by this factor wider, from
# a thousandth of the rate to twelve times the rate. What lies above is no limit.
_NARROWEST = 0.01
_WIDER = 1.4
_LOWEST, _HIGHEST = -6.5, 2.5

# How likely it is at first that there is no limit, in units of a cell's width; and by
# how much less likely a limit gets with each factor of e below the start rate, which
# somebody has chosen with hosts like this one in mind.
_NO_LIMIT = 4.0
_BELOW_START = 1.0

# Before anything is known, this many requests in so many are refused by bad luck.
# Evidence of it fades when there is more than of the last so many requests.
_UNLUCKY = 0.5
_REQUESTS = 50.0
_MOST_REQUESTS = 1500.0

# No host is believed to refuse more than this share of the requests for no reason: one
# that does so has a limit.
_MOST_UNLUCKY = 0.3

# A refusal is never quite certain, nor is any cell ever ruled out.
_CERTAIN = 0.95
_WORST = -20.0

# No two requests travel equally fast: a token may be a little late.
_TOKEN = 1.02

# Evidence lost for each token that a request was served without, at most this many.
_CONTRADICTED = 1.5
_MOST_MISSING = 2.0

# Evidence that leaks to the cell above per second, but for no more seconds than a third
# of the requests; and what is lost per second to all cells alike.
_LEAK = 0.03
_REQUESTS_PER_SECOND = 3.0
_MOST_LEAK = 0.25

# To the cell below leaks so much of that. With nothing, a rate too high would pass for
# ever more bad luck; with as much, the limit would follow each rate that bad luck has
# lowered.
_DOWN = 0.05
_FORGET = 3e-4

# Limits change by little at a time: no cell leaks as if it were wider than this.
_WIDEST_LEAK = 0.12

# What a measurement is worth, and how exact it is, as a natural logarithm.
_MEASURED = 4.0
_EXACT = 0.05

# A rate that is too high by a factor costs as much as one that is too low by it, and a
# refusal costs as much as a tenth of the rate.
_REFUSAL = 0.1

# Requests per second that no host is asked for; nor is any asked more rarely than once
# in so many seconds.
_FASTEST = 1e6

# A limit is known if it is known to this factor.
_KNOWN = 1.5

# So many requests are looked at together.
_BATCH = 5


def _edges() -> list[float]:
    """The logarithms of the rates between cells, relative to the rate in use."""
    below, above, step = [0.0], [0.0], _NARROWEST
    while below[-1] > _LOWEST:
        below.append(below[-1] - step)
        if above[-1] < _HIGHEST:
            above.append(above[-1] + step)
        step *= _WIDER
    return [*reversed(below), *above[1:]]


_EDGES = _edges()
_CELLS = len(_EDGES)
_MIDDLES = [(low + high) / 2 for low, high in pairwise(_EDGES)]
_WIDTHS = [high - low for low, high in pairwise(_EDGES)] + [_NO_LIMIT]


class Belief:
    """``rate`` is the one in use, ``start_rate`` the one that crawls begin with."""

    __slots__ = (
        "_at",
        "_count",
        "_evidence",
        "_gap",
        "_least",
        "_limits",
        "_most",
        "_rate",
        "_requests",
        "_since_leak",
        "_unlucky",
        "_unpaid",
        "_until",
        "leaked_at",
    )

    def __init__(self, rate: float, start_rate: float, now: float) -> None:
        self._move(rate)
        # Row by row, one for each size of the burst; in each, cell by cell. The last
        # cell is that without a limit.
        self._least = [_row([burst] * _CELLS) for burst in _BURSTS[:-1]]
        self._most = [_row([burst] * _CELLS) for burst in _BURSTS[1:]]
        prior = [
            _BELOW_START * min(0.0, math.log(limit / start_rate))
            for limit in self._limits
        ]
        self._evidence = [_row(prior) for _ in range(_ROWS)]
        self._unlucky = [_row([0.0] * _CELLS) for _ in range(_ROWS)]
        self._requests = 0.0
        # Requests that were served, but have not been looked at, the last at _until.
        self._at = self._until = now
        self._count = 0
        # The time between two requests, lately.
        self._gap = 0.0
        # Requests whose luck is not accounted for yet, and those since the last leak.
        self._unpaid = 0
        self._since_leak = 0
        self.leaked_at = now

    def __repr__(self) -> str:
        limit = self.limit
        known = "none known" if limit is None else f"{limit:.3g}/s"
        return f"<Belief: limit {known}, {self.unlucky:.2%} bad luck>"

    def shape(self) -> dict[str, object]:
        return {
            "rate": _rate,
            "cells": _cells,
            "_requests": amount,
            "_at": finite,
            "_until": finite,
            "_count": whole,
            "_gap": amount,
            "_unpaid": whole,
            "_since_leak": whole,
            "leaked_at": finite,
        }

    @property
    def rate(self) -> float:
        """Where the narrowest cells are."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._move(rate)

    @property
    def cells(self) -> list[list[float]]:
        """All that the cells hold, rounded to what matters."""
        return [
            [round(value, 3) for value in row]
            for rows in (self._least, self._most, self._evidence, self._unlucky)
            for row in rows
        ]

    @cells.setter
    def cells(self, cells: list[list[float]]) -> None:
        rows = [_row(values) for values in cells]
        self._least, self._most, self._evidence, self._unlucky = (
            rows[first : first + _ROWS] for first in range(0, 4 * _ROWS, _ROWS)
        )

    def served(self, at: float) -> None:
        """A request that was sent then was served."""
        self._count += 1
        self._until = max(self._until, at)
        if self._count >= _BATCH:
            self._look()

    def cause(self, at: float, otherwise: float = 0.0) -> float:
        """How likely it is a limit that made the host refuse a request sent then.
        ``otherwise`` is how likely something else that is known of would have."""
        by_limit, by_any = self._expected(at, otherwise)
        return by_limit / by_any

    def chance(self, at: float) -> float:
        """How likely the host is to refuse a request sent then."""
        return self._expected(at, 0.0)[1]

    def refused(self, at: float, otherwise: float = 0.0) -> None:
        """A request that was sent then was refused."""
        chances = self._chances(at, otherwise)
        self._fill(max(0.0, at - self._at))
        self._at = self._until = max(self._at, at)
        self._requests += 1
        total = self._requests + _REQUESTS
        for row, of_row in enumerate(chances):
            evidence, unlucky = self._evidence[row], self._unlucky[row]
            for cell, (_, chance) in enumerate(of_row):
                evidence[cell] += math.log(chance)
                luck = min((_UNLUCKY + unlucky[cell]) / total, _MOST_UNLUCKY)
                unlucky[cell] += luck / chance
        self._normalize()

    def measured(self, least: float, most: float, weight: float) -> None:
        """From one silence of the host's to the next, it has served between ``least``
        and ``most`` requests per second: so much is its limit, whatever it counts by.
        ``weight`` is 1 for what has no other explanation."""
        self._look()
        low, high = math.log(least / self._rate), math.log(most / self._rate)
        lost = [
            min(weight * _MEASURED, (max(0.0, low - at, at - high) / _EXACT) ** 2 / 2)
            for at in (*_MIDDLES, math.inf)
        ]
        for row, evidence in enumerate(self._evidence):
            self._evidence[row] = _row(
                [old - loss for old, loss in zip(evidence, lost, strict=True)]
            )
        self._normalize()

    def leak(self, now: float) -> None:
        """Time has passed, and limits change."""
        self._pay()
        seconds = max(0.0, now - self.leaked_at)
        self.leaked_at = now
        share = min(
            _MOST_LEAK, _LEAK * min(seconds, self._since_leak / _REQUESTS_PER_SECOND)
        )
        self._since_leak = 0
        weights = [[math.exp(e) for e in row] for row in self._evidence]
        forgotten = 1 - math.exp(-_FORGET * seconds)
        total = sum(w * d for row in weights for w, d in zip(row, _WIDTHS, strict=True))
        trace = forgotten * total / (_ROWS * sum(_WIDTHS))
        for row, densities in enumerate(weights):
            flows = [
                share
                * max(here - there, _DOWN * (here - there))
                * min(width, other, _WIDEST_LEAK)
                for (here, there), (width, other) in zip(
                    pairwise(densities), pairwise(_WIDTHS), strict=True
                )
            ]
            self._evidence[row] = _row(
                [
                    math.log(
                        (1 - forgotten) * (density + (gain - loss) / width) + trace
                    )
                    for density, gain, loss, width in zip(
                        densities, (0.0, *flows), (*flows, 0.0), _WIDTHS, strict=True
                    )
                ]
            )
        self._normalize()

    def focus(self, rate: float) -> None:
        """Look more closely at limits near that rate, if they are not in view yet."""
        shift = math.log(rate / self._rate)
        if abs(shift) < 2 * _NARROWEST:
            return
        self._look()
        self._move(rate)
        places = [middle + shift for middle in _MIDDLES]
        for rows in (self._least, self._most, self._evidence, self._unlucky):
            for number_of, row in enumerate(rows):
                rows[number_of] = _row([*_interpolated(row, places), row[-1]])

    @property
    def best_rate(self) -> float:
        """The rate that is worth its risk; infinite if no limit is believed in.

        Where the limit is certain, it is just under that; where it may be anywhere,
        about in the middle.
        """
        weights = self._weights()
        above, below, logarithms = sum(weights), 0.0, 0.0
        best, highest = math.inf, -math.inf
        for edge, middle, weight in zip(_EDGES, (*_MIDDLES, 0.0), weights, strict=True):
            worth = edge * (above - below) + 2 * logarithms - _REFUSAL * below
            if worth > highest:
                best, highest = edge, worth
            above -= weight
            below += weight
            logarithms += weight * middle
        return math.inf if best == _EDGES[-1] else self._rate * math.exp(best)

    def quantiles(self, *shares: float) -> list[float]:
        """The rates that the limit is below with these likelihoods, in that order."""
        weights = self._weights()
        total = sum(weights)
        found: list[float] = []
        below = 0.0
        for (low, high), weight in zip(pairwise(_EDGES), weights, strict=False):
            while len(found) < len(shares):
                missing = shares[len(found)] * total - below
                if missing > weight:
                    break
                at = low + missing / weight * (high - low)
                found.append(self._rate * math.exp(at))
            below += weight
        return found + [math.inf] * (len(shares) - len(found))

    @property
    def limit(self) -> float | None:
        """The host's limit, if there seems to be one and it is known well enough."""
        low, middle, high = self.quantiles(0.1, 0.5, 0.9)
        return middle if high < _KNOWN * low else None

    @property
    def is_certain(self) -> bool:
        """Tell whether there is hardly any doubt about the limit."""
        low, high = self.quantiles(0.05, 0.95)
        return high < _KNOWN * low

    @property
    def unlucky(self) -> float:
        """The share of the requests that are refused whatever the rate is."""
        found = total = 0.0
        for evidence, unlucky in zip(self._evidence, self._unlucky, strict=True):
            for value, count, width in zip(evidence, unlucky, _WIDTHS, strict=True):
                weight = width * math.exp(value)
                total += weight
                found += weight * count
        return (_UNLUCKY + found / total) / (_REQUESTS + self._requests)

    @property
    def recent_rate(self) -> float:
        """At how many requests per second the last few were served."""
        return 1 / self._gap if self._gap > 0 else math.inf

    @property
    def times(self) -> float:
        """How many refusals had no other reason than bad luck."""
        return self.unlucky * (_REQUESTS + self._requests) - _UNLUCKY

    def _move(self, rate: float) -> None:
        self._rate = rate
        self._limits = [rate * math.exp(edge) for edge in _EDGES]

    def _look(self) -> None:
        """Run the buckets up to the last request that was served."""
        count, self._count = self._count, 0
        if not count:
            return
        seconds = self._until - self._at
        self._at = self._until
        if seconds > 0:
            self._gap = seconds / count
        self._requests += count
        self._unpaid += count
        self._since_leak += count
        gains = [limit * seconds - count for limit in self._limits]
        for row, evidence in enumerate(self._evidence):
            least = _filled(self._least[row], gains, _BURSTS[row] - 1)
            most = _filled(
                self._most[row], (*gains[1:], math.inf), _BURSTS[row + 1] - 1
            )
            if least[0] < 0:
                self._contradict(least, most, evidence)
            self._least[row], self._most[row] = _row(least), _row(most)

    @staticmethod
    def _contradict(
        least: list[float], most: list[float], evidence: array[float]
    ) -> None:
        """Of a cell, the part whose bucket is empty is ruled out."""
        for cell in range(bisect_left(least, 0.0)):
            left = most[cell]
            if left > 0:
                evidence[cell] += math.log(left / (left - least[cell]))
                least[cell] = 0.0
            else:
                left = max(left, -_MOST_MISSING)
                least[cell] = most[cell] = left
                evidence[cell] += _CONTRADICTED * (left - 0.5)

    def _fill(self, seconds: float) -> None:
        gains = [limit * seconds for limit in self._limits]
        for row in range(_ROWS):
            self._least[row] = _row(_filled(self._least[row], gains, _BURSTS[row]))
            self._most[row] = _row(
                _filled(self._most[row], (*gains[1:], math.inf), _BURSTS[row + 1])
            )

    def _expected(self, at: float, otherwise: float) -> tuple[float, float]:
        """How likely a refusal is because of a limit, and for any reason."""
        by_limit = by_any = total = 0.0
        for row, chances in enumerate(self._chances(at, otherwise)):
            for (luck, chance), evidence, width in zip(
                chances, self._evidence[row], _WIDTHS, strict=True
            ):
                weight = width * math.exp(evidence)
                total += weight
                by_any += weight * chance
                by_limit += weight * (chance - luck)
        return by_limit / total, by_any / total

    def _chances(self, at: float, otherwise: float) -> list[list[tuple[float, float]]]:
        """Of each cell, how likely a refusal is that the limit has no part in, and how
        likely any is."""
        self._pay()
        # What arrives late was sent at about the same rate as the others.
        seconds = at - self._at if at > self._at else self._gap
        gains = [limit * seconds for limit in self._limits]
        total = self._requests + _REQUESTS + 1
        chances = []
        for row in range(_ROWS):
            least = _filled(self._least[row], gains, _BURSTS[row])
            most = _filled(self._most[row], (*gains[1:], math.inf), _BURSTS[row + 1])
            of_row = []
            for low, high, count in zip(least, most, self._unlucky[row], strict=True):
                luck = min((_UNLUCKY + count) / total, _MOST_UNLUCKY)
                luck += (1 - luck) * otherwise
                chance = luck
                if low < _TOKEN:
                    empty = 1.0 if high <= _TOKEN else (_TOKEN - low) / (high - low)
                    chance += (1 - luck) * _CERTAIN * empty
                of_row.append((luck, chance))
            chances.append(of_row)
        return chances

    def _pay(self) -> None:
        """Each success is evidence against bad luck."""
        self._look()
        unpaid, self._unpaid = self._unpaid, 0
        if not unpaid:
            return
        share = unpaid / (self._requests + _REQUESTS)
        for row, unlucky in enumerate(self._unlucky):
            self._evidence[row] = _row(
                [
                    value - share * (_UNLUCKY + count)
                    for value, count in zip(self._evidence[row], unlucky, strict=True)
                ]
            )
        if self._requests > _MOST_REQUESTS:
            self._requests /= 2
            self._unlucky = [_row([c / 2 for c in row]) for row in self._unlucky]

    def _weights(self) -> list[float]:
        """How likely each limit is, whatever the burst is."""
        self._pay()
        return [
            width * sum(map(math.exp, evidence))
            for width, evidence in zip(
                _WIDTHS, zip(*self._evidence, strict=True), strict=True
            )
        ]

    def _normalize(self) -> None:
        best = max(map(max, self._evidence))
        self._evidence = [
            _row([max(value - best, _WORST) for value in row]) for row in self._evidence
        ]


def _row(values: Iterable[float]) -> array[float]:
    return array("d", values)


def _filled(
    tokens: Iterable[float], gains: Iterable[float], most: float
) -> list[float]:
    return [
        filled if (filled := had + gain) < most else most
        for had, gain in zip(tokens, gains, strict=True)
    ]


def _interpolated(values: Sequence[float], places: Iterable[float]) -> list[float]:
    """``values`` are those of the middles of the cells."""
    found, cell = [], 0
    last = len(_MIDDLES) - 2
    for place in places:
        while cell < last and _MIDDLES[cell + 1] < place:
            cell += 1
        low, high = _MIDDLES[cell], _MIDDLES[cell + 1]
        share = min(1.0, max(0.0, (place - low) / (high - low)))
        found.append(values[cell] + share * (values[cell + 1] - values[cell]))
    return found


def _rate(value: object) -> float:
    if not 1 / _FASTEST <= positive(value) <= _FASTEST:
        raise ValueError(f"out of range: {value!r}")
    return positive(value)


def _cells(value: object) -> list[list[float]]:
    """Read what ``Belief.cells`` has written."""
    if not isinstance(value, list) or len(value) != 4 * _ROWS:
        raise ValueError(f"not a bank of limiters: {value!r:.80}")
    read: Callable[[object], list[float]] = series(finite)
    rows = [read(row) for row in value]
    evidence, unlucky = rows[2 * _ROWS : 3 * _ROWS], rows[3 * _ROWS :]
    is_sound = (
        all(len(row) == _CELLS for row in rows)
        and _WORST <= max(map(max, evidence)) <= 1
        and all(min(row) >= 0 for row in unlucky)
    )
    if not is_sound:
        raise ValueError(f"not a bank of limiters: {value!r:.80}")
    return rows
