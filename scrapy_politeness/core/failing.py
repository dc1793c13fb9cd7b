"""A page that is refused again and again: when to ask for it again, and when to stop.

A refusal may be the host's answer or the page's. What tells them apart is what became
of the other pages meanwhile:

    refused, and since its last refusal ...      means      asked again
    (the first time)                             nothing    behind the others
    no other page was served                     the host   behind the others
    another page was served                      the page   after a gap that doubles
    nothing else was asked for, as there is      the page   after a gap that doubles,
    nothing else, and it was the page before                or no more

Only what means the page counts as a failure of it. One that has failed for long is
given up; where nothing else is left to do, as soon as bad luck is no explanation: then
a crawl has nothing to wait for but this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# A deployment or a restart of what is behind a page takes minutes.
_LONG_TIMES = 8
_LONG_SECONDS = 600.0

# Where a host fails a share of all requests, this many pages out of one may be given
# up that would have been served: fewer than one in the largest crawls.
_BAD_LUCK = 1e-6
# Without such a share, a row of failures is no accident from here on.
_FEWEST_TIMES = 4

# How many times the base of the gaps a page stays behind the others at most: a minute
# by default. Trouble that passes by itself has passed by then, and a queue of a million
# pages, in which the last place is a day away, has hardly moved.
_BEHIND = 12

# 2.0**1024 would overflow.
_MOST_DOUBLINGS = 64


@dataclass(frozen=True, slots=True)
class Failures:
    """What is remembered of a page that was refused: when that was last, how many
    ``times`` it was the page's own failure, and ``since`` when. ``by_page`` says so of
    the last time. Times are those of a clock that all who ask for the page share, such
    as the wall clock."""

    refused_at: float
    times: int = 0
    since: float = 0.0
    by_page: bool = False

    @property
    def seconds(self) -> float:
        """For how long it has been failing. A clock may have been set back."""
        return max(0.0, self.refused_at - self.since) if self.times else 0.0

    @property
    def spares_host(self) -> bool:
        """Tell whether the last refusal says nothing of the host: it was known before
        that the page fails. The first time might still be two accidents in a row."""
        return self.by_page and self.times > 1

    def refused(self, now: float, *, others_served: bool, alone: bool) -> Failures:
        """It was refused once more. ``others_served`` says whether a request of its
        slot that was sent since the last time has been served; ``alone`` that its slot
        has nothing else to do but pages like this one."""
        if not (others_served or (alone and self.times)):
            return Failures(now, self.times, self.since)
        since = self.since if self.times else now
        return Failures(now, self.times + 1, since, by_page=True)


@dataclass(frozen=True, slots=True)
class Persistence:
    """How patient a crawl is with its pages: gaps are ``base`` * 2^k seconds, each at
    most ``longest``."""

    base: float
    longest: float

    @property
    def behind(self) -> float:
        """For how long a page that was refused stays behind the others, at most."""
        return _BEHIND * self.base

    def gap(self, failures: Failures) -> float:
        """How long not to ask for a page that has failed."""
        doublings = min(failures.times - 1, _MOST_DOUBLINGS)
        return min(self.base * 2.0**doublings, self.longest)

    def gives_up(self, failures: Failures, *, alone: bool, noise: float = 0.0) -> bool:
        """Tell whether to give a page up. Of all requests, the host fails the share
        ``noise``, whatever the rate and the page are."""
        times = failures.times
        if times < _FEWEST_TIMES or _chance_of(times, noise) >= _BAD_LUCK:
            return False
        return alone or (times >= _LONG_TIMES and failures.seconds >= _LONG_SECONDS)

    def next_try(
        self,
        failures: Failures,
        now: float,
        *,
        alone: bool,
        noise: float = 0.0,
    ) -> float:
        """Return the time before which the page is not asked for again: ``now`` if
        the host was to blame and the page only goes behind the others, infinite if it
        is given up."""
        if not failures.by_page:
            return now
        if self.gives_up(failures, alone=alone, noise=noise):
            return math.inf
        return now + self.gap(failures)


def _chance_of(times: int, noise: float) -> float:
    return min(max(noise, 0.0), 1.0) ** times
