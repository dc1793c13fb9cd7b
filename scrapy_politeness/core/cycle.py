"""From one silence of a host's to the next: what it has served in between."""

from __future__ import annotations

import math
from typing import NamedTuple

from scrapy_politeness.core.snapshot import flag, number, whole

# So many successes make a measurement. With fewer, one request more or less changes
# the result.
_ENOUGH = 20

# A host that asks for so many seconds of silence, or refuses again after fewer than so
# many successes, counts by windows.
_LONG_SILENCE = 5.0
_FEW = 5

# Other reasons for a host to refuse twice in a row than bad luck: this likely, for any
# request.
_REASON = 3e-4


class Measured(NamedTuple):
    """Requests per second that the host serves at ``least`` and at ``most``, and what
    that is worth, from 0 to 1."""

    least: float
    most: float
    weight: float


class Cycle:
    """A cycle ends when the host serves again after it was silent. It served its limit
    then, if nothing was lost because we came back late: that was at some time between
    the last refusal and the first success."""

    __slots__ = (
        "_began_at",
        "_count",
        "_is_silent",
        "_refused_at",
        "_since_refusal",
        "_weight",
    )

    def __init__(self) -> None:
        self._began_at = math.inf
        self._count = 0
        self._since_refusal = _FEW
        self._is_silent = False
        self._refused_at = -math.inf
        self._weight = 0.0

    def shape(self) -> dict[str, object]:
        return {
            "_began_at": number,
            "_count": whole,
            "_since_refusal": whole,
            "_is_silent": flag,
            "_refused_at": number,
            "_weight": number,
        }

    def served(self, at: float) -> None:
        self._began_at = min(self._began_at, at)
        self._count += 1
        self._since_refusal += 1

    def refused(self, now: float, asked: float, in_a_row: int, unlucky: float) -> None:
        """``asked`` is the silence that the host wants, ``in_a_row`` how often it has
        refused before without a success, ``unlucky`` the share of the requests that it
        refuses whatever the rate is."""
        luck = unlucky ** (in_a_row + 1)
        if not in_a_row:
            luck = (unlucky * (self._since_refusal + 1)) ** 2
        if in_a_row or asked > _LONG_SILENCE or self._since_refusal < _FEW:
            self._is_silent = True
            self._refused_at = now + asked
            self._weight = 1.0
            if asked <= _LONG_SILENCE:
                self._weight = _REASON / (_REASON + luck)
        self._since_refusal = 0

    def end(self, now: float, idle: float) -> Measured | None:
        """The host serves again, and might have done so ``idle`` seconds ago; return
        what it has served, if that says anything."""
        if not self._is_silent:
            return None
        self._is_silent = False
        ended_at = now - idle
        if self._count < _ENOUGH or self._began_at >= ended_at:
            return None
        least = self._count / (ended_at - self._began_at)
        until = min(max(self._refused_at, self._began_at), ended_at)
        most = (
            self._count / (until - self._began_at)
            if until > self._began_at
            else math.inf
        )
        self._began_at = now
        self._count = 0
        return Measured(least, max(most, least), self._weight)
