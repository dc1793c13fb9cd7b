"""How many requests a host takes at once, found from what it refused.

A host that limits connections refuses whenever more than so many requests are under
way, however slowly they follow each other: a lower rate alone would only make that
rarer. It gives itself away, since all that it refused were sent beside many others,
and what was sent beside few was served.
"""

from __future__ import annotations

from collections import Counter, deque

from scrapy_politeness.core.outcome import Outcome, Permit, Verdict

# So many refusals and successes are needed to tell chance from cause; older ones than
# the last few do not count any more.
_REFUSALS = 3
_SUCCESSES = 30
_MOST_REFUSALS = 6
_MOST_SUCCESSES = 1000

# What was refused must have been unusually crowded: at most this share of what was
# served was as crowded.
_UNUSUAL = 0.25

# One more at a time is tried after so many successes, and twice as many after each
# try that failed.
_PATIENCE = 2000


class Crowd:
    """``limit`` is how many may be under way at once, up to what the user allows."""

    __slots__ = ("_most", "_patience", "_refused", "_served", "_since", "limit")

    def __init__(self, most: int) -> None:
        self.limit = most
        self._most = most
        # How many requests were under way, themselves included, when they were sent.
        self._served: Counter[int] = Counter()
        self._refused: deque[int] = deque(maxlen=_MOST_REFUSALS)
        self._since = 0
        self._patience = _PATIENCE

    def observe(self, permit: Permit, outcome: Outcome) -> bool:
        """Return whether the limit was found, or found to be lower."""
        if outcome.verdict is Verdict.REFUSED:
            self._refused.append(permit.beside)
            return self._look()
        if outcome.verdict is Verdict.SERVED:
            self._count(permit.beside)
            self._widen()
        return False

    def _count(self, beside: int) -> None:
        self._served[beside] += 1
        if self._served.total() > _MOST_SUCCESSES:
            self._served = Counter({b: n // 2 for b, n in self._served.items()})

    def _look(self) -> bool:
        least = min(self._refused)
        crowded = sum(n for beside, n in self._served.items() if beside >= least)
        served = self._served.total()
        if (
            least < 2
            or least > self.limit
            or len(self._refused) < _REFUSALS
            or served < _SUCCESSES
            or crowded > _UNUSUAL * served
        ):
            return False
        if self.limit < self._most:
            self._patience *= 2
        self.limit = least - 1
        self._forget()
        return True

    def _widen(self) -> None:
        self._since += 1
        if self.limit < self._most and self._since >= self._patience:
            self.limit += 1
            self._forget()

    def _forget(self) -> None:
        self._since = 0
        self._served.clear()
        self._refused.clear()
