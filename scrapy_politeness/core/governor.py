"""The control law: outcomes go in, a rate and a pause come out.

Theory of operation
-------------------
The rate starts careful. Every ``raise_after`` successes in a row that the pace had
held back, it is raised: doubled until the host has refused once, since nothing is
known yet and a careful start would otherwise last for minutes; after that, quickly
while well below the rate that was last refused and slowly near it.

A refusal or a timeout cuts the rate at once and asks for silence: as long as the
host says, else base * 2^n for the n-th in a row. Requests that were under way at the
time of a cut were sent at the old rate, so their refusals say nothing new: they do
not cut again and do not lengthen the backoff, and their successes do not end it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scrapy_politeness.core.outcome import Outcome, Permit, Verdict

# Slow start doubles, as TCP's does.
_CLIMB_UNKNOWN = 2.0
# Far below the refused rate a raise is all but safe; near it, each one may cost a
# refusal, so the steps are small.
_CLIMB_FAR = 1.25
_CLIMB_NEAR = 1.05
_NEAR = 0.75

# Processes that were refused together must not come back together. The jitter only
# lengthens: a pause is never shorter than promised.
_JITTER = 0.1


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the user allows the governor to do. Rates are requests per second."""

    start_rate: float = 1.0
    min_rate: float = 0.1
    max_rate: float = 10.0
    decrease_factor: float = 0.5
    raise_after: int = 10
    backoff_base: float = 5.0
    backoff_max: float = 300.0
    adaptive: bool = True


@dataclass(frozen=True, slots=True)
class Advice:
    """Be silent for ``pause`` seconds; ``cut`` says that the rate was cut for it."""

    pause: float
    cut: bool = False


class Governor:
    __slots__ = ("_bounds", "_cut_at", "_refused_rate", "_setbacks", "_streak", "rate")

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._cut_at = -math.inf
        self._refused_rate: float | None = None
        self._setbacks = 0
        self._streak = 0
        self.rate = bounds.start_rate

    def observe(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Advice:
        """Learn from a finished request.

        ``chance`` is a random number from [0, 1): the caller's, since this file has
        none.
        """
        current = permit.sent_at >= self._cut_at
        if outcome.verdict.is_overload:
            if not current:
                return Advice(outcome.wait or 0.0)
            self._cut(now)
            return Advice(self._silence(outcome.wait, chance), cut=True)
        if outcome.verdict is Verdict.SERVED and current:
            self._setbacks = 0
            if permit.paced:
                self._climb()
        elif outcome.verdict is Verdict.FAILED:
            self._streak = 0
        return Advice(outcome.wait or 0.0)

    def _cut(self, now: float) -> None:
        self._cut_at = now
        self._streak = 0
        self._setbacks += 1
        self._refused_rate = self.rate
        self._set_rate(self.rate * self._bounds.decrease_factor)

    def _climb(self) -> None:
        self._streak += 1
        if self._streak < self._bounds.raise_after:
            return
        self._streak = 0
        if self._refused_rate is None:
            factor = _CLIMB_UNKNOWN
        elif self.rate < _NEAR * self._refused_rate:
            factor = _CLIMB_FAR
        else:
            factor = _CLIMB_NEAR
        self._set_rate(self.rate * factor)

    def _set_rate(self, rate: float) -> None:
        if self._bounds.adaptive:
            self.rate = max(self._bounds.min_rate, min(rate, self._bounds.max_rate))

    def _silence(self, asked: float | None, chance: float) -> float:
        exponent = min(self._setbacks - 1, 64)  # 2.0**1024 would overflow
        backoff = self._bounds.backoff_base * 2.0**exponent * (1 + _JITTER * chance)
        backoff = min(backoff, self._bounds.backoff_max)
        if asked is None:
            return backoff
        # A host that refuses again right after its own Retry-After rounds it down
        # or does not know better.
        return asked if self._setbacks == 1 else max(asked, backoff)
