"""How many requests a host takes at once, found from what it refused.

A host that limits connections refuses whenever more requests than that are under way,
however slowly they follow each other: a lower rate alone would only make that rarer.
Each number of connections is a guess, and is worth as much as it has predicted:
what was sent beside more than that is likely to be refused, what was sent beside fewer
is not, but for bad luck.

The first refusal of a rising rate always finds more requests under way than ever,
whatever its cause. So fewer are sent at once then, which costs nothing where the rate
is the cause, until a refusal among few, or successes among many, clear it up.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scrapy_politeness.core.outcome import Outcome, Permit, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

# How likely a refusal is for one request too many, for two, and for more. The answer to
# one that is still counted here may be on its way.
_LIKELY = (0.2, 0.5, 0.8)
_SERVED = tuple(math.log(1 - chance) for chance in _LIKELY)

# No host is so good that its refusals must have a reason.
_LEAST_LUCK = 1e-4

# A host that limits connections refuses few requests besides: where many are, it has
# another reason.
_MOST_LUCK = 0.03

# How likely it is at first that there is a limit, whatever it is.
_PRIOR = 0.2
_WORST = -12.0

# Evidence fades: after this many answers it counts a third.
_MEMORY = 6000

# From this likelihood on, a limit is said to be found.
_SURE = 0.95


class Concurrency:
    """``limit`` is how many may be under way at once, up to what the user allows."""

    __slots__ = ("_evidence", "_most", "_since", "limit")

    def __init__(self, most: int) -> None:
        self.limit = most
        self._most = most
        # Of each limit from 1 to the user's own, which stands for none of the host's;
        # nothing before the first refusal.
        self._evidence: list[float] = []
        self._since = 0

    def __repr__(self) -> str:
        return f"<Concurrency: {self.limit} of {self._most} at once>"

    @property
    def is_found(self) -> bool:
        """Tell whether the host is known to have a limit of its own."""
        if self.limit >= self._most or not self._evidence:
            return False
        weights = [math.exp(value) for value in self._evidence]
        return weights[-1] < (1 - _SURE) * sum(weights)

    @property
    def likely(self) -> int | None:
        """The host's own limit, if it seems to have one."""
        return self.limit if self.limit < self._most else None

    def recall(self, limit: int) -> None:
        """An earlier run has found that."""
        if limit < self._most:
            self._begin()
            self._evidence[limit - 1] = 0.0
            self._evidence[-1] = math.log(1 - _SURE) - 1
            self.limit = limit

    def observe(
        self, permit: Permit, outcome: Outcome, otherwise: Callable[[Permit], float]
    ) -> float:
        """Learn from a finished request; of a refusal, return how likely it was to
        come because too many were under way. ``otherwise`` returns how likely it was to
        come anyway."""
        if outcome.verdict is Verdict.REFUSED:
            return self._refused(permit.beside, max(otherwise(permit), _LEAST_LUCK))
        if outcome.verdict is Verdict.SERVED and self._evidence:
            self._served(permit.beside)
        return 0.0

    def _refused(self, beside: int, otherwise: float) -> float:
        if self._most < 2:
            return 0.0
        if not self._evidence:
            self._begin()
        by_limit = [_chance(beside, limit) for limit in range(1, self._most)]
        chances = [
            otherwise + (1 - otherwise) * chance
            if chance
            else min(otherwise, _MOST_LUCK)
            for chance in by_limit
        ]
        # The last stands for no limit of the host's.
        by_limit.append(_chance(beside, self._most))
        chances.append(otherwise)
        weights = [math.exp(value) for value in self._evidence]
        crowded = sum(w * c for w, c in zip(weights, by_limit, strict=True))
        self._evidence = [
            value + math.log(chance)
            for value, chance in zip(self._evidence, chances, strict=True)
        ]
        self._decide()
        return crowded / sum(weights)

    def _served(self, beside: int) -> None:
        evidence = self._evidence
        for limit in range(1, min(beside, self._most)):
            evidence[limit - 1] += _SERVED[min(beside - limit, len(_SERVED)) - 1]
        self._since += 1
        if self._since >= self._most:
            # Limits change, and one that nobody comes near is never put to the test.
            fade = 1 - self._since / _MEMORY
            self._since = 0
            prior = _prior(self._most)
            self._evidence = [
                usual + fade * (value - usual)
                for usual, value in zip(prior, evidence, strict=True)
            ]
            self._decide()

    def _begin(self) -> None:
        self._evidence = _prior(self._most)

    def _decide(self) -> None:
        best = max(self._evidence)
        self._evidence = [max(value - best, _WORST) for value in self._evidence]
        weights = [math.exp(value) for value in self._evidence]
        half = sum(weights) / 2
        below = 0.0
        for limit, weight in enumerate(weights, 1):
            below += weight
            if below >= half:
                self.limit = limit
                return


def _prior(most: int) -> list[float]:
    each = math.log(_PRIOR / most)
    return [each] * (most - 1) + [0.0]


def _chance(beside: int, limit: int) -> float:
    """How likely a request is refused that was sent as the ``beside``-th at once."""
    excess = min(beside - limit, len(_LIKELY))
    return _LIKELY[excess - 1] if excess > 0 else 0.0
