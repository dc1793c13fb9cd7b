"""From one silence of a host's to the next: what it has served in between."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from scrapy_politeness.core.governor.backoff import likely_meant
from scrapy_politeness.core.snapshot import (
    State,
    amount,
    flag,
    kept,
    positive_or_infinite,
    when_or_never,
    when_or_not_yet,
    whole,
)

# This many successes make a measurement. With fewer, one request more or less changes
# the result.
_ENOUGH = 20

# A host that asks for a longer pause than this, in seconds, or refuses again after
# fewer successes than this, counts by windows.
_LONG_PAUSE = 5.0
_FEW = 5

# Where the host was silent for a smaller share of the cycle, it served about as much as
# it was asked for: that is our own rate rather than its limit.
_GOOD_PART = 0.2

# Two cycles that were measured to this factor, and may have had the same limit, agree,
# and then the second is worth this many times as much. One by itself may have been an
# outage.
_EXACT = 2.0
_TWICE = 3.0

# Until a cycle was measured, such a share of the requests may fail for no reason, for
# all that is known.
_UNKNOWN_LUCK = 0.1


class Measured(NamedTuple):
    """Requests per second that the host serves at ``least`` and at ``most``, and what
    that is worth: 1 for one that has no other explanation."""

    least: float
    most: float
    weight: float


@dataclass(eq=False, slots=True)
class Cycle(State):
    """A cycle ends when the host serves again after it was silent. It served its limit
    then, if nothing was lost because we came back late: that was at some time between
    the last refusal and the first success."""

    _began_at: float = kept(when_or_not_yet, math.inf)
    _count: int = kept(whole, 0)
    _since_refusal: int = kept(whole, _FEW)
    _is_silent: bool = kept(flag, False)
    _refused_at: float = kept(when_or_never, -math.inf)
    _weight: float = kept(amount, 0.0)
    # Since when the host serves nothing, and for how long in total in this cycle.
    _silent_since: float = kept(when_or_not_yet, math.inf)
    _silence: float = kept(amount, 0.0)
    # What the cycle before has measured.
    _least: float = kept(positive_or_infinite, math.inf)
    _most: float = kept(positive_or_infinite, math.inf)

    def served(self, at: float) -> None:
        self._began_at = min(self._began_at, at)
        self._count += 1
        self._since_refusal += 1

    def refused(self, now: float, asked: float, in_a_row: int, unlucky: float) -> None:
        """``asked`` is the pause that the host wants, ``in_a_row`` how often it has
        refused before without a success, ``unlucky`` the share of the requests that it
        refuses whatever the rate is."""
        self._silent_since = min(self._silent_since, now)
        if self._least == math.inf:
            unlucky = max(unlucky, _UNKNOWN_LUCK)
        luck = unlucky ** (in_a_row + 1)
        if not in_a_row:
            luck = (unlucky * (self._since_refusal + 1)) ** 2
        if in_a_row or asked > _LONG_PAUSE or self._since_refusal < _FEW:
            self._is_silent = True
            self._refused_at = now + asked
            self._weight = 1.0
            if asked <= _LONG_PAUSE:
                self._weight = likely_meant(luck)
        self._since_refusal = 0

    def end(self, now: float, idle: float) -> Measured | None:
        """The host serves again, and might have done so ``idle`` seconds ago; return
        what it has served, if that says anything."""
        ended_at = now - idle
        self._silence += max(0.0, ended_at - self._silent_since)
        self._silent_since = math.inf
        if not self._is_silent:
            return None
        self._is_silent = False
        seconds = ended_at - self._began_at
        if self._count < _ENOUGH or seconds <= 0:
            return None
        measured = self._measured(seconds, min(self._refused_at, ended_at))
        self._began_at = now
        self._count = 0
        self._silence = 0.0
        return measured

    def _measured(self, seconds: float, until: float) -> Measured:
        least = self._count / seconds
        at_least = until - self._began_at
        most = max(least, self._count / at_least if at_least > 0 else math.inf)
        silent = min(1.0, self._silence / (_GOOD_PART * seconds))
        weight = self._weight * silent**2
        is_exact = max(most / least, self._most / self._least) < _EXACT
        if is_exact and least <= self._most and self._least <= most:
            weight *= _TWICE
        self._least, self._most = least, most
        return Measured(least, most, weight)
