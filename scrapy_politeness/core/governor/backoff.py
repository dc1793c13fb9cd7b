"""How long to pause after a refusal."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scrapy_politeness.core.snapshot import State, kept, number, whole

# Processes that were refused together must not come back together. The jitter only
# lengthens: a pause is never shorter than promised.
_JITTER = 0.1

# 2.0**1024 would overflow.
_MOST_DOUBLINGS = 64

# A host that is down, and says nothing, is asked about twice a minute, and at least
# after a twentieth of the time that it has been down: so it is found healthy soon.
_LONGEST_GUESS = 25.0
_SHARE_OF_OUTAGE = 0.05

# A refusal that is less likely than this to be meant does not lengthen the next pause.
_MEANT = 0.1

# How likely another reason than bad luck is, of any row of refusals.
_REASON = 1e-4


def likely_meant(luck: float) -> float:
    """How likely a row of refusals has a reason, where bad luck alone makes one with
    the probability ``luck``."""
    return _REASON / (_REASON + luck)


@dataclass(eq=False, slots=True)
class Backoff(State):
    """base * 2^n after n refusals in a row that were meant, up to a maximum; or what
    the host asks for."""

    _base: float
    _max: float
    in_a_row: int = kept(whole, 0)
    # How many of those were meant.
    _meant: int = kept(whole, 0)
    _since: float = kept(number, math.inf)

    def served(self) -> None:
        self.in_a_row = self._meant = 0
        self._since = math.inf

    def weight(self, unlucky: float) -> float:
        """How likely one more refusal in a row is meant, where the share ``unlucky`` of
        all requests fails for no reason."""
        return likely_meant(unlucky ** (self.in_a_row + 1))

    def refused(
        self,
        asked: float | None,
        chance: float,
        meant: float,
        waited: float,
        now: float,
    ) -> float:
        """Return for how many seconds to pause. ``meant`` is how likely the refusal has
        to do with us, from 0 to 1: bad luck calls for no pause. ``waited`` is how long
        the refusal has taken: a timeout was a pause already."""
        doublings = min(self._meant, _MOST_DOUBLINGS)
        own = min(self._base * 2.0**doublings * (1 + _JITTER * chance), self._max)
        self._since = min(self._since, now)
        longest = max(_LONGEST_GUESS, _SHARE_OF_OUTAGE * (now - self._since))
        if self.in_a_row:
            own = min(own, max(longest, self._base))
            own = max(0.0, own - waited)
        own *= meant
        self.in_a_row += 1
        self._meant += meant > _MEANT
        if asked is None:
            return own
        # A host that refuses again right after its own Retry-After rounds it down or
        # does not know better.
        return asked if self.in_a_row == 1 else max(asked, own)
