"""How many requests a host takes at once, found from what it refused.

A host that limits connections refuses whenever more than so many requests are under
way, however slowly they follow each other: a lower rate alone would only make that
rarer. It gives itself away, since all that it refused were sent beside many others,
and what was sent beside few was served.

The first refusal of a rising rate always finds more requests under way than ever,
whatever its cause. So it only raises a *suspicion*: fewer are sent at once, which
costs nothing where the rate is the cause. A refusal among few clears the suspicion,
one that comes as soon as another request is added confirms it.
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
_RARE = 0.1

# One more at a time is tried after so many successes, and twice as many after each
# try that failed; sooner while there is only a suspicion.
_PATIENCE = 2000
_PATIENCE_WITH_A_SUSPECT = 1000


class Crowd:
    """``limit`` is how many may be under way at once, up to what the user allows."""

    __slots__ = (
        "_most",
        "_patience",
        "_refused",
        "_served",
        "_since",
        "_suspicion",
        "_tried",
        "limit",
    )

    def __init__(self, most: int) -> None:
        self.limit = most
        self._most = most
        # How many requests were under way, themselves included, when they were sent.
        self._served: Counter[int] = Counter()
        self._refused: deque[int] = deque(maxlen=_MOST_REFUSALS)
        self._since = 0
        self._patience = _PATIENCE
        # None before the first refusal, False once it was cleared.
        self._suspicion: bool | None = None
        # The last limit that was tried after a lower one.
        self._tried = 0

    @property
    def found(self) -> int | None:
        """The host's own limit, if it has one; a suspicion is not enough."""
        return None if self._suspicion or self.limit >= self._most else self.limit

    def observe(self, permit: Permit, outcome: Outcome) -> bool:
        """Return whether the limit was found, or found to be lower."""
        if outcome.verdict is Verdict.REFUSED:
            self._refused.append(permit.beside)
            if self._suspicion:
                return self._examine(permit.beside)
            found = self._look()
            if self._suspicion is None:
                self._suspicion = not found and self._suspect(permit.beside)
            return found
        if outcome.verdict is Verdict.SERVED:
            self._count(permit.beside)
            self._widen()
        return False

    def _suspect(self, beside: int) -> bool:
        served = self._served.total()
        if beside < 2 or served < _SUCCESSES or self._crowded(beside) > _RARE * served:
            return False
        self.limit = min(self.limit, beside - 1)
        self._since = 0
        self._patience = _PATIENCE_WITH_A_SUSPECT
        return True

    def _examine(self, beside: int) -> bool:
        """Another refusal under suspicion."""
        confirmed = beside == self._tried
        self._suspicion = False
        self._patience = _PATIENCE
        self.limit = beside - 1 if confirmed else self._most
        self._forget()
        return confirmed

    def _crowded(self, least: int) -> int:
        return sum(n for beside, n in self._served.items() if beside >= least)

    def _count(self, beside: int) -> None:
        self._served[beside] += 1
        if self._served.total() > _MOST_SUCCESSES:
            self._served = Counter({b: n // 2 for b, n in self._served.items()})

    def _look(self) -> bool:
        least = min(self._refused)
        crowded = self._crowded(least)
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
            self._tried = self.limit
            self._forget()

    def _forget(self) -> None:
        self._since = 0
        self._served.clear()
        self._refused.clear()
