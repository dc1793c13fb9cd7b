"""A page that is refused again and again: when to ask for it again, and when to stop.

A refusal may be the host's answer or the page's. What tells them apart is what became
of the other pages meanwhile:

    refused, and since its last refusal ...       means      asked again
    (the first time)                              nothing    behind the others
    no other page was served                      the host   behind the others
    another page was served                       the page   after a gap that doubles
    there was no other page to ask for, and
    - it was the page before, or its host has
      served others and says nothing of its rate  the page   after a gap that doubles
    - all else                                    the host   as soon as that allows

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
# The last page of a crawl may only be the first that a host is down for: with gaps of
# 5, 10, 20 ... s, this is more than two minutes, which a restart does not take.
_FEWEST_UNWITNESSED = 6

# How many times the base of the gaps a page stays behind the others at most: a minute
# by default. Trouble that passes by itself has passed by then, and a queue of a million
# pages, in which the last place is a day away, has hardly moved.
_BEHIND = 12

# 2.0**1024 would overflow.
_MOST_DOUBLINGS = 64


@dataclass(frozen=True, slots=True)
class Failures:
    """What is remembered of a page that was refused: when that was last, how many
    ``times`` it was the page's own failure, and ``since`` when. Others were
    ``witnessed`` to be served meanwhile, at least once. ``by_page`` says that the last
    refusal was the page's. Times are those of a clock that all who ask for the page
    share, such as the wall clock."""

    refused_at: float
    times: int = 0
    since: float = 0.0
    witnessed: bool = False
    by_page: bool = False

    @property
    def seconds(self) -> float:
        """For how long it has been failing. A clock may have been set back."""
        return max(0.0, self.refused_at - self.since) if self.times else 0.0

    def spares_host(self, *, speaks_of_rate: bool) -> bool:
        """Tell whether the last refusal says nothing of the host. Who asks again for
        what was refused is refused more often than others are, whatever the rate. Only
        where the host itself ``speaks_of_rate``, it may have been two accidents."""
        return self.by_page and (self.times > 1 or not speaks_of_rate)

    def refused(
        self, now: float, *, others_served: bool, alone: bool, suspect: bool = False
    ) -> Failures:
        """It was refused once more. ``others_served`` says whether a request of its
        slot that was sent since the last time has been served; ``alone`` that its slot
        has nothing else to do but pages like this one; ``suspect`` that its slot has
        served others before, and that the refusal does not speak of rates."""
        times, since = self.times, self.since
        by_page = others_served or (alone and (times > 0 or suspect))
        if by_page:
            times, since = times + 1, since if times else now
        return Failures(now, times, since, self.witnessed or others_served, by_page)


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
        fewest = _FEWEST_TIMES if failures.witnessed else _FEWEST_UNWITNESSED
        if times < fewest or _chance_of(times, noise) >= _BAD_LUCK:
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
