"""A page that is refused again and again: when to ask for it again, and when to stop.

A refusal may be the host's answer or the page's. What happened to other pages in the
meantime tells them apart:

    refused, and since its last refusal ...       blamed     asked again
    (the first time)                              neither    behind the others
    no other page was served                      the host   behind the others
    another page was served                       the page   after a gap that doubles
    there was no other page to ask for, and
    - it was the page before, or its host has
      served others and says nothing of its rate  the page   after a gap that doubles
    - otherwise                                   the host   as soon as that allows

A page that has failed for long is given up. Where nothing else is left to crawl, that
happens as soon as bad luck can be ruled out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# A deployment or a restart of what is behind a page takes minutes.
_LONG_TIMES = 8
_LONG_SECONDS = 600.0

# Where a host fails a share of all requests, this share of its pages may be given up
# that would have been served: less than one page in the largest crawls.
_BAD_LUCK = 1e-6
# Without such a share, a row of failures is no accident from here on.
_FEWEST_TIMES = 4
# The host may have gone down just before the last page of a crawl: with gaps of 5, 10,
# 20 ... s, this is more than two minutes, longer than a restart.
_FEWEST_UNWITNESSED = 6

# How many times the base of the gaps a page stays behind the others at most: a minute
# by default. Passing trouble is over by then, and a queue of a million pages has hardly
# moved.
_BEHIND = 12

# 2.0**1024 would overflow.
_MOST_DOUBLINGS = 64


@dataclass(frozen=True, slots=True)
class Failures:
    """A page was last ``refused_at`` that time. Counted as its own failure, that
    happened ``times`` times ``since`` then; ``witnessed`` if others were served
    meanwhile, ``by_page`` if the last refusal was one of them. Times are wall-clock
    times, since several processes may ask for a page."""

    refused_at: float
    times: int = 0
    since: float = 0.0
    witnessed: bool = False
    by_page: bool = False

    @property
    def seconds(self) -> float:
        """How long it has been failing. The clock may have been set back."""
        return max(0.0, self.refused_at - self.since) if self.times else 0.0

    def spares_host(self, *, speaks_of_rate: bool) -> bool:
        """Tell whether the last refusal says nothing about the host. A page that was
        refused is refused again more often than others, whatever the rate. But where
        the host itself ``speaks_of_rate``, it may have been two accidents."""
        return self.by_page and (self.times > 1 or not speaks_of_rate)

    def refused(
        self, now: float, *, others_served: bool, alone: bool, suspect: bool = False
    ) -> Failures:
        """It was refused again. ``others_served`` says that its slot was served a
        request sent since the last time; ``alone`` that its slot has nothing left but
        pages like this one; ``suspect`` that its slot has served others before, and
        that the refusal does not speak of rates."""
        times, since = self.times, self.since
        by_page = others_served or (alone and (times > 0 or suspect))
        if by_page:
            times, since = times + 1, since if times else now
        return Failures(now, times, since, self.witnessed or others_served, by_page)


@dataclass(frozen=True, slots=True)
class Persistence:
    """Gaps are ``base`` * 2^k seconds, each at most ``longest``."""

    base: float
    longest: float

    @property
    def behind(self) -> float:
        """How long a page that was refused stays behind the others, at most."""
        return _BEHIND * self.base

    def gap(self, times: int) -> float:
        """Return how long to wait after that many failures."""
        return min(self.base * 2.0 ** min(times - 1, _MOST_DOUBLINGS), self.longest)

    def gives_up(self, failures: Failures, *, alone: bool, noise: float = 0.0) -> bool:
        """Tell whether to give a page up. ``noise`` is the share of all requests that
        the host fails, whatever the rate and the page."""
        times = failures.times
        fewest = _FEWEST_TIMES if failures.witnessed else _FEWEST_UNWITNESSED
        bad_luck = min(max(noise, 0.0), 1.0) ** times
        if times < fewest or bad_luck >= _BAD_LUCK:
            return False
        return alone or (times >= _LONG_TIMES and failures.seconds >= _LONG_SECONDS)

    def next_try(
        self, failures: Failures, now: float, *, alone: bool, noise: float = 0.0
    ) -> float:
        """Return when to ask for the page again: ``now`` if the host was to blame and
        the page only goes behind the others, infinity if it is given up."""
        if not failures.by_page:
            return now
        if self.gives_up(failures, alone=alone, noise=noise):
            return math.inf
        return now + self.gap(failures.times)
