"""The limit that explains the refusals of a part of a host.

It was found from requests at irregular times, which say more about a limit than those
that are paced: so it is kept to for a while, whatever the governor finds better. Limits
change, so it is tried from time to time whether this one still holds: the more often it
has shown itself, the less often.

Not every refusal is one of the limit's. While it is kept to, what was lowered is raised
again when there are no more. While it is tried, one that does not speak of the rate
counts only if the governor, too, believes in a limit about as low.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scrapy_politeness.core.outcome import Verdict

if TYPE_CHECKING:
    from scrapy_politeness.core.outcome import Outcome, Permit

# Just under the limit, since no two requests travel equally fast. Where they differ by
# more, refusals show that: each lowers it by as much again, but not below this share;
# and this many successes raise it by as much.
_UNDER = 0.96
_LEAST = 0.75
_RAISE_AFTER = 200

# A limit this many times as high is another.
_ANOTHER = 2.0

# Seconds; each time that the limit shows itself again it is twice as many.
_FIRST = 600.0
_LONGEST = 3600.0

# Rates that differ by less are equal.
_ROUNDING = 1e-9


class PartLimit:
    """``rate`` is infinite while it is tried whether the limit still holds."""

    __slots__ = ("_limit", "_seconds", "_served", "_share", "_until", "rate")

    def __init__(self, limit: float, now: float) -> None:
        self._limit = limit
        self._seconds = _FIRST
        self._hold(_UNDER, now)

    def __repr__(self) -> str:
        return f"<PartLimit {self._limit:.3g}/s>"

    def answered(
        self, permit: Permit, outcome: Outcome, likely: float | None, now: float
    ) -> None:
        """``likely`` is the limit that the governor believes in, if any."""
        if now > self._until:
            self.rate = math.inf
        if outcome.verdict is Verdict.SERVED:
            self._served += 1
            if self._served >= _RAISE_AFTER:
                self._go(min(self._share / _UNDER, _UNDER))
        if outcome.verdict is not Verdict.REFUSED or permit.rate is None:
            return
        if self.rate < math.inf:
            if permit.rate > self.rate * (1 - _ROUNDING):
                self._go(max(self._share * _UNDER, _LEAST))
        elif permit.rate > self._limit and (
            outcome.speaks_of_rate
            or (likely is not None and likely < _ANOTHER * self._limit)
        ):
            self._seconds = min(2 * self._seconds, _LONGEST)
            self._hold(self._share, now)

    def _hold(self, share: float, now: float) -> None:
        self._until = now + self._seconds
        self.rate = 0.0
        self._go(share)

    def _go(self, share: float) -> None:
        self._share = share
        self._served = 0
        if self.rate < math.inf:
            self.rate = self._limit * share
