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
    series,
    share,
    when,
    when_or_never,
    when_or_not_yet,
)

# A refusal is not alone if at least this many more of those that were in flight with it
# were refused than served.
_MANY_REFUSED = 3


@dataclass(eq=False, slots=True)
class Moment(State):
    """A refusal that the belief does not know of yet, and what was sent around it."""

    # When that request was sent, and at what rate. Infinite while no moment is on.
    refused_at: float = kept(when_or_not_yet, math.inf)
    rate: float = kept(amount, 0.0)
    # How likely something else made it fail, and whether the host said what it meant.
    otherwise: float = kept(share, 0.0)
    said: bool = kept(flag, False)
    # What was served of those sent later.
    _later: list[float] = kept(series(when), [])
    # When the refusal became known, and how many more of those that were in flight with
    # it were refused than served.
    _known_at: float = kept(when_or_never, -math.inf)
    _more_refused: float = kept(finite, 0.0)

    @property
    def is_alone(self) -> bool:
        """Tell whether hardly any of those in flight with it were refused as well."""
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
        later, self._later = self._later, []
        return later

    def add_refused(self, sent_at: float) -> None:
        """Another request was refused, which may have been in flight with it."""
        if self.refused_at < sent_at < self._known_at:
            self._more_refused += 1

    def add_served(self, sent_at: float) -> None:
        """Another request, which was sent later, was served. The belief gets it when
        the moment is over."""
        if sent_at < self._known_at:
            self._more_refused -= 1
        self._later.append(sent_at)
