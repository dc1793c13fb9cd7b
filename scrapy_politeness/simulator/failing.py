"""A page that is refused again and again: when to ask for it again, when to stop.

It is the page that fails if others were served since its last refusal. That a page was
refused once, or while nobody was served, says nothing of it: it goes behind the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# So often and for so many seconds, or, where nothing else is left to do, so often.
_LONG_TIMES = 8
_LONG_SECONDS = 600.0
_FEWEST_TIMES = 4

# How many times the base of the gaps a page stays behind the others at most.
_BEHIND = 12

# 2.0**1024 would overflow.
_MOST_DOUBLINGS = 64


@dataclass(frozen=True, slots=True)
class Failures:
    """When a page was refused last, how many ``times`` it was its own failure, and
    ``since`` when; ``by_page`` says so of the last time."""

    refused_at: float
    times: int = 0
    since: float = 0.0
    by_page: bool = False

    @property
    def seconds(self) -> float:
        return self.refused_at - self.since if self.times else 0.0

    @property
    def spares_host(self) -> bool:
        """Tell whether the last refusal says nothing of the host."""
        return self.by_page and self.times > 1

    def refused(self, now: float, *, others_served: bool, alone: bool) -> Failures:
        if not (others_served or (alone and self.times)):
            return Failures(now, self.times, self.since)
        since = self.since if self.times else now
        return Failures(now, self.times + 1, since, by_page=True)


@dataclass(frozen=True, slots=True)
class Persistence:
    """Gaps are ``base`` * 2^k seconds, each at most ``longest``."""

    base: float = 5.0
    longest: float = 300.0

    @property
    def behind(self) -> float:
        return _BEHIND * self.base

    def gives_up(self, failures: Failures, *, alone: bool) -> bool:
        if alone:
            return failures.times >= _FEWEST_TIMES
        return failures.times >= _LONG_TIMES and failures.seconds >= _LONG_SECONDS

    def next_try(self, failures: Failures, now: float, *, alone: bool) -> float:
        """Return the time before which the page is not asked for again: ``now`` if it
        only goes behind the others, infinite if it is given up."""
        if not failures.by_page:
            return now
        if self.gives_up(failures, alone=alone):
            return math.inf
        doublings = min(failures.times - 1, _MOST_DOUBLINGS)
        return now + min(self.base * 2.0**doublings, self.longest)
