"""The rate above which a host shuts us out.

A block costs more than a refusal: nothing is served until it is over. So where one
began at about the rate that the host is believed to allow, that rate is not tried again
for a hundred times as long as the block was.

Where two blocks in a row have come after about as many pages, the host counts pages: in
about as long as it takes to get there, or as a block lasts.

A short outage at that rate looks the same, but costs only a few percent of the rate for
that time. What lasts for hours, or goes on below that rate, has nothing to do with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_politeness.core.outcome import Verdict

if TYPE_CHECKING:
    from scrapy_politeness.core.learner import Learner
    from scrapy_politeness.core.outcome import Outcome, Permit

# How far a block may be from the limit that is believed in.
_NEAR = 1.25

_BELOW = 0.93
_TIMES = 100.0

# Seconds. Hosts shut us out for minutes, seldom for longer than this.
_LONGEST = 3600.0

_MOST_STRIKES = 3

# Two blocks that came after about equally many pages, at least this many, are no
# accident.
_ENOUGH = 10
_ALIKE = 1.25


@dataclass(slots=True, eq=False, repr=False)
class BlockLimit:
    """``rate`` is infinite where there is none."""

    rate: float = math.inf
    _began_at: float = 0.0
    _until: float = math.inf
    _strikes: int = 0
    # Pages since the last block, those before it, and when it ended.
    _served: int = 0
    _before: int = 0
    _ended_at: float = math.inf

    def __repr__(self) -> str:
        return f"<BlockLimit {self.rate:.3g}/s>"

    def observe(
        self,
        permit: Permit,
        outcome: Outcome,
        now: float,
        *,
        was_shut: bool,
        is_shut: bool,
        learner: Learner,
    ) -> None:
        """Learn from a finished request, before which the host shut us out, or since
        which it does."""
        if outcome.verdict is Verdict.SERVED:
            self.served()
        if is_shut and not was_shut:
            self.began(permit.rate, learner.likely_limit, now)
        elif was_shut and not is_shut:
            self.ended(now)
        self.pass_time(now)

    def served(self) -> None:
        self._served += 1

    def began(self, rate: float | None, limit: float | None, now: float) -> None:
        """A block began at this rate, while the host was believed to have that limit,
        if any."""
        self._began_at = now
        self._until = math.inf
        self._strikes += self.rate < math.inf
        if self._strikes > _MOST_STRIKES:
            self._forget()
        elif rate and limit and limit / _NEAR <= rate <= limit * _NEAR:
            self.rate = min(self.rate, _BELOW * rate)

    def ended(self, now: float) -> None:
        seconds = now - self._began_at
        self._until = now + _TIMES * seconds
        served, before = self._served, self._before
        if _are_alike(served, before):
            counted = max(seconds, self._began_at - self._ended_at)
            self.rate = min(self.rate, served / counted)
        self._served, self._before = 0, served
        self._ended_at = now
        if seconds > _LONGEST:
            self._forget()

    def pass_time(self, now: float) -> None:
        if now > self._until:
            self._forget()

    def _forget(self) -> None:
        self.rate = self._until = math.inf
        self._strikes = 0


def _are_alike(one: int, other: int) -> bool:
    low, high = sorted((one, other))
    return low >= _ENOUGH and high <= _ALIKE * low
