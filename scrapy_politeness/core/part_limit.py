"""The limit that explains the refusals of a part of a host.

It was found from requests at irregular times, which say more about a limit than those
that are paced: so it is kept to for a while, whatever the governor finds better. Limits
change, so it is tried from time to time whether this one still holds: the more often it
has shown itself, the less often.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scrapy_politeness.core.outcome import Verdict

if TYPE_CHECKING:
    from scrapy_politeness.core.outcome import Outcome, Permit

# Just under the limit, since no two requests travel equally fast. Where they differ by
# more, refusals show that: each lowers it by as much again, but not below this share.
_UNDER = 0.96
_LEAST = 0.75

# Seconds; each time that the limit shows itself again it is twice as many.
_FIRST = 600.0
_LONGEST = 3600.0


class PartLimit:
    """``rate`` is infinite while it is tried whether the limit still holds."""

    __slots__ = ("_limit", "_seconds", "_share", "_until", "rate")

    def __init__(self, limit: float, now: float) -> None:
        self._limit = limit
        self._share = _UNDER
        self._seconds = _FIRST
        self._until = now + _FIRST
        self.rate = limit * self._share

    def __repr__(self) -> str:
        return f"<PartLimit {self._limit:.3g}/s>"

    def answered(self, permit: Permit, outcome: Outcome, now: float) -> None:
        if now > self._until:
            self.rate = math.inf
        if outcome.verdict is not Verdict.REFUSED or permit.rate is None:
            return
        if self.rate < math.inf:
            if permit.rate >= self.rate:
                self._share = max(self._share * _UNDER, _LEAST)
                self.rate = self._limit * self._share
        elif permit.rate > self._limit:
            self._seconds = min(2 * self._seconds, _LONGEST)
            self._until = now + self._seconds
            self.rate = self._limit * self._share
