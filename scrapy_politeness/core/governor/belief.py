"""What is believed of a host's limit: a bank of model limiters.

Theory of operation
-------------------
Each *cell* of the bank is a guess: the limit lies between two rates, and it is kept by
a token bucket with a burst between two sizes, or by a sliding window of some length,
which may count what it refuses, too, or minute by minute. The cell runs that limiter
(``model_limiters``) along with the real requests. So each cell predicts what the host
does next, and is worth as much as its predictions were.

==========  ==========================  =============================================
the host    the cell's limiter          the cell's evidence
==========  ==========================  =============================================
serves      would serve                 stays
serves      would refuse                falls: the host has more than that
refuses     would refuse                rises against the others
refuses     would serve                 falls by as much as bad luck is unlikely
==========  ==========================  =============================================

Bad luck is a refusal that is unrelated to the rate. Each cell counts those that it
cannot explain otherwise (``luck``). For a host with a limit, the cell with that limit
needs no bad luck at all; for a host that fails now and then, the one without a limit
needs no less than the others. Which of them is right, the rate decides: what gets rarer
where we go slower is a limit.

Limits change. Refusals show one that falls; nothing shows one that rises, so
old evidence fades, and leaks slowly from each cell to its neighbours, mostly to that
above, and a trace of it to all; and the longer a limit has not shown itself, the more.
Nothing is believed for good.

Evidence is a natural logarithm; the best cell has 0. Cells are narrow near the rate
that is in use and wide far from it; they move along with the rate.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor.cells import (
    CELLS,
    MIDDLES,
    NARROWEST,
    WIDTHS,
    leaked,
    most_worth,
    moved,
    quantiles,
    share_above,
)
from scrapy_politeness.core.governor.luck import Luck
from scrapy_politeness.core.governor.model_limiters import RARITY, ROWS, ModelLimiters
from scrapy_politeness.core.snapshot import (
    amount,
    finite,
    listing,
    part,
    row,
    row_of,
    when,
    whole,
)

if TYPE_CHECKING:
    from array import array

    from scrapy_politeness.core.governor.luck import Chances

# How much less likely a limit is with each factor of e below the start rate, at first,
# as a natural logarithm: somebody has chosen that with hosts like this one in mind.
_BELOW_START = 2.0

# No cell is ever ruled out.
_WORST = -20.0
_TINY = 1e-300

# Evidence fades to a third in this many seconds, and leaks to the cell above per
# second; but for no more seconds than a third of the requests: a host that is asked
# rarely does not show much.
_MEMORY = 2000.0
_LEAK = 0.003
_REQUESTS_PER_SECOND = 3.0
_MOST_LEAK = 0.25

# The longer a limit has not shown itself, the more leaks: twice as much after this many
# of these seconds, nine times as much after twice as many. However rarely a host is
# asked, at least this share of the time counts.
_UNSEEN = 85.0
_LEAST_SHOWN = 0.1

# From here on, a refusal is rather a limit's than bad luck.
_LIKELY = 0.5

# What is lost per second to all cells alike.
_FORGET = 3e-4

# What a measurement is worth, and how exact it is, as a natural logarithm.
_MEASURED = 4.0
_EXACT = 0.05

# What a refusal costs, as a natural logarithm of the rate. It is little: a rate that is
# too low costs for as long as it lasts, a refusal only once.
_REFUSAL = 0.02

# A limit is known if it is known to this factor.
_KNOWN = 1.5


class Belief:
    """``rate`` is the one in use, ``start_rate`` the one that crawls begin with."""

    __slots__ = (
        "_evidence",
        "_leaked_at",
        "_likelihoods",
        "_luck",
        "_models",
        "_since_leak",
        "_unseen",
        "_untested",
    )

    def __init__(self, rate: float, start_rate: float, now: float) -> None:
        self._models = ModelLimiters(rate, now)
        prior = [
            _BELOW_START * min(0.0, math.log(limit / start_rate))
            for limit in self._models.limits
        ]
        self._evidence = [row(value - rarity for value in prior) for rarity in RARITY]
        self._luck = Luck(ROWS, CELLS)
        # How likely each cell is, as long as the evidence stays the same.
        self._likelihoods: list[array[float]] | None = None
        # Requests since the last leak.
        self._since_leak = 0
        # For how many seconds no limit has shown itself: each refusal takes off as much
        # as it was likely a limit's.
        self._unseen = 0.0
        # Requests that were served since one was refused for a limit, it seems.
        self._untested = 0
        self._leaked_at = now

    def __repr__(self) -> str:
        limit = self.limit
        known = "none known" if limit is None else f"{limit:.3g}/s"
        return f"<Belief: limit {known}, {self.unlucky:.2%} bad luck>"

    def shape(self) -> dict[str, object]:
        return {
            "_models": part(self._models),
            "_evidence": listing(*[row_of(CELLS, _evidence)] * ROWS),
            "_luck": part(self._luck),
            "_unseen": amount,
            "_untested": whole,
            "_since_leak": whole,
            "_leaked_at": when,
        }

    @property
    def rate(self) -> float:
        """Where the narrowest cells are."""
        return self._models.rate

    def served(self, at: float) -> None:
        """A request that was sent then was served."""
        if self._models.add(at):
            self._look()

    def add_refused(self, at: float) -> None:
        """A request that was sent then was refused, which says nothing new; but some
        hosts count those as well."""
        self._models.add_refused(at)

    def cause(self, at: float, otherwise: float = 0.0, *, said: bool = False) -> float:
        """How likely it is a limit that made the host refuse a request sent then.
        ``otherwise`` is how likely something else that is known of would have,
        ``said`` that the host said what it meant."""
        by_limit, by_any = self._expected(self._chances(at, otherwise, said))
        return by_limit / by_any

    def chance(self, at: float) -> float:
        """How likely the host is to refuse a request sent then."""
        return self._expected(self._chances(at, 0.0, said=None))[1]

    def refused(
        self,
        at: float,
        otherwise: float = 0.0,
        *,
        said: bool = False,
        alone: bool = True,
    ) -> float:
        """A request that was sent then was refused; return how likely it was a limit
        that made the host do so. Unless it was ``alone``, those beside it were refused
        as well, which bad luck does far less often: that counts twice."""
        chances = self._chances(at, otherwise, said)
        counted = chances if alone else [[*map(_twice, cells)] for cells in chances]
        by_limit, by_any = self._expected(counted)
        for evidence, of_row in zip(self._evidence, counted, strict=True):
            for cell, (_, chance) in enumerate(of_row):
                evidence[cell] += math.log(chance)
        self._models.refuse(at, self._evidence)
        if said:
            self.add_refused(at)
        self._normalize()
        cause = by_limit / by_any
        self._luck.refused(chances, said, cause)
        self._unseen *= 1 - cause
        if cause > _LIKELY:
            self._untested = 0
        return cause

    def measured(self, least: float, most: float, weight: float) -> None:
        """From one silence of the host's to the next, it has served between ``least``
        and ``most`` requests per second: that is its limit, whatever it counts by.
        ``weight`` is 1 for what has no other explanation."""
        self._look()
        low, high = math.log(least / self.rate), math.log(most / self.rate)
        lost = [
            min(weight * _MEASURED, (max(0.0, low - at, at - high) / _EXACT) ** 2 / 2)
            for at in (*MIDDLES, math.inf)
        ]
        self._evidence = [
            row(old - loss for old, loss in zip(evidence, lost, strict=True))
            for evidence in self._evidence
        ]
        self._normalize()

    def leak(self, now: float) -> None:
        """Time has passed, and limits change."""
        self._pay()
        seconds = max(0.0, now - self._leaked_at)
        self._leaked_at = now
        shown = min(seconds, self._since_leak / _REQUESTS_PER_SECOND)
        self._since_leak = 0
        fade = math.exp(-shown / _MEMORY)
        self._unseen += max(shown, _LEAST_SHOWN * seconds)
        share = min(_MOST_LEAK, _LEAK * shown * (1 + (self._unseen / _UNSEEN) ** 3))
        weights = [[math.exp(fade * e) for e in cells] for cells in self._evidence]
        forgotten = 1 - math.exp(-_FORGET * seconds)
        total = sum(
            w * d for cells in weights for w, d in zip(cells, WIDTHS, strict=True)
        )
        self._models.forget(forgotten)
        trace = forgotten * total / (ROWS * sum(WIDTHS))
        self._evidence = [
            row(
                math.log((1 - forgotten) * density + max(trace, _TINY))
                for density in leaked(densities, share)
            )
            for densities in weights
        ]
        self._normalize()

    def focus(self, rate: float) -> None:
        """Look more closely at limits near that rate, if they are not in view yet."""
        shift = math.log(rate / self.rate)
        if abs(shift) < 2 * NARROWEST:
            return
        self._look()
        move = partial(moved, shift=shift)
        self._models.move(rate, move)
        self._evidence = move(self._evidence)
        self._likelihoods = None
        self._luck.move(move)

    @property
    def best_rate(self) -> float:
        """The rate that is worth its risk; infinite if no limit is believed in."""
        return self.rate * math.exp(most_worth(self._weights(), _REFUSAL))

    def quantiles(self, *shares: float) -> list[float]:
        """The rates that the limit is below with these likelihoods, in that order."""
        found = quantiles(self._weights(), *shares)
        return [self.rate * math.exp(at) for at in found]

    def is_above(self, rate: float) -> float:
        """How likely the limit is above that rate."""
        return share_above(self._weights(), math.log(rate / self.rate))

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
        return self.bad_luck[1]

    @property
    def times(self) -> float:
        """How many refusals had no other reason than bad luck."""
        return self.bad_luck[0]

    @property
    def bad_luck(self) -> tuple[float, float]:
        """How many refusals had no other reason, and the share of the requests that are
        refused for none."""
        return self._luck.times_and_share(self._cells())

    @property
    def shown(self) -> float:
        """How many times a limit has shown itself."""
        return self._luck.by_limit

    @property
    def unseen(self) -> float:
        """For how many seconds no limit has shown itself, though it could have."""
        return self._unseen

    @property
    def untested(self) -> int:
        """How many requests were served since a limit last showed itself, whatever bad
        luck has refused."""
        return self._untested

    @property
    def recent_rate(self) -> float:
        """At how many requests per second the last few were served."""
        return self._models.recent_rate

    @property
    def goodput(self) -> float:
        """How many requests per second were served lately."""
        return self._models.goodput

    def _look(self) -> None:
        """Learn from what was served since the last look."""
        if not self._models.count:
            return
        count = self._models.look(self._evidence)
        self._likelihoods = None
        self._luck.served(count)
        self._since_leak += count
        self._untested += count

    def _expected(self, chances: Chances) -> tuple[float, float]:
        """How likely a refusal is because of a limit, and for any reason."""
        by_limit = by_any = total = 0.0
        for of_row, cells in zip(chances, self._cells(), strict=True):
            for (luck, chance), weight in zip(of_row, cells, strict=True):
                total += weight
                by_any += weight * chance
                by_limit += weight * (chance - luck)
        return by_limit / total, by_any / total

    def _chances(self, at: float, otherwise: float, said: bool | None) -> Chances:
        """Of each cell, how likely a refusal is that the limit has no part in, and how
        likely any is."""
        self._pay()
        return self._luck.chances(self._models.full(at), otherwise, said)

    def _pay(self) -> None:
        """Each success is evidence against bad luck."""
        self._look()
        paid = self._luck.pay(self._evidence)
        if paid is self._evidence:
            return
        self._evidence = paid
        self._likelihoods = None
        # What others have written down may leave nothing to be believed in.
        if max(map(max, paid)) < _WORST:
            self._normalize()

    def _cells(self) -> list[array[float]]:
        """How likely each cell is."""
        self._pay()
        if self._likelihoods is None:
            self._likelihoods = [
                row(width * math.exp(e) for e, width in zip(cells, WIDTHS, strict=True))
                for cells in self._evidence
            ]
        return self._likelihoods

    def _weights(self) -> list[float]:
        """How likely each limit is, whatever the burst is."""
        return [*map(sum, zip(*self._cells(), strict=True))]

    def _normalize(self) -> None:
        best = max(map(max, self._evidence))
        self._evidence = [
            row(max(value - best, _WORST) for value in cells)
            for cells in self._evidence
        ]
        self._likelihoods = None


def _twice(chances: tuple[float, float]) -> tuple[float, float]:
    luck, any_reason = chances
    return luck * luck, any_reason * any_reason


def _evidence(value: object) -> float:
    if finite(value) > 1:
        raise ValueError(f"not evidence: {value!r}")
    return max(finite(value), _WORST)
