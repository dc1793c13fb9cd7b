"""A moment: from a refusal to the first success after it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scrapy_politeness.core.snapshot import (
    State,
    amount,
    finite,
    flag,
    kept,
    number,
    series,
    share,
)

# A refusal is not alone if at least this many more of those that were in flight with it
# were refused than served.
_MANY_REFUSED = 3


@dataclass(eq=False, slots=True)
class Moment(State):
    """A refusal that the belief does not know of yet, and what was sent around it."""

    # When that request was sent, and at what rate; there is none yet, at first.
    refused_at: float = kept(number, math.inf)
    rate: float = kept(amount, 0.0)
    # How likely something else made it fail, and whether the host said what it meant.
    otherwise: float = kept(share, 0.0)
    said: bool = kept(flag, False)
    # What was served of those sent later.
    later: list[float] = kept(series(finite), [])
    # When the refusal was known, and how many more of those that were in flight with it
    # were refused than served.
    _known_at: float = kept(number, -math.inf)
    _more_refused: float = kept(finite, 0.0)

    @property
    def is_on(self) -> bool:
        return self.refused_at < math.inf

    @property
    def is_alone(self) -> bool:
        """Tell whether others in flight with it were served, too."""
        return self._more_refused < _MANY_REFUSED

    def begin(
        self, sent_at: float, rate: float, otherwise: float, now: float, *, said: bool
    ) -> None:
        self.refused_at = sent_at
        self.rate = rate
        self.otherwise = otherwise
        self.said = said
        self._known_at = now
        self._more_refused = 0.0

    def end(self) -> list[float]:
        """Return when those were sent that were served since."""
        self.refused_at = math.inf
        later, self.later = self.later, []
        return later

    def add(self, sent_at: float, *, refused: bool) -> None:
        """That was the outcome of another request."""
        if self.refused_at < sent_at < self._known_at:
            self._more_refused += 1 if refused else -1
