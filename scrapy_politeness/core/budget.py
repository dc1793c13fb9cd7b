"""One limit that many slots share: the whole crawl's, a server address's, a proxy's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor import Governor
from scrapy_politeness.core.outcome import Outcome, Permit
from scrapy_politeness.core.pace import HEAD_START, PROMPT, Pace

if TYPE_CHECKING:
    from scrapy_politeness.core.governor import Bounds
    from scrapy_politeness.core.pace import Limit


class Budget:
    """Spreads ``limit`` evenly over all who share it.

    With ``bounds``, refusals make it slower for a time. They never make it silent:
    that is between one host and us.
    """

    __slots__ = (
        "_claimed_at",
        "_floor",
        "_governor",
        "_interval",
        "_last_claim",
        "_pace",
        "key",
        "waiting",
    )

    def __init__(self, key: str, limit: Limit, bounds: Bounds | None = None) -> None:
        self.key = key
        self._interval = limit.interval
        self._floor = limit.floor
        self._governor = None if bounds is None else Governor(bounds)
        self._pace = Pace()
        # How many wait for it at the gate.
        self.waiting = 0
        self._last_claim: object = None
        self._claimed_at = -math.inf

    @property
    def interval(self) -> float:
        if self._governor is None:
            return self._interval
        return max(self._interval, 1 / self._governor.rate)

    @property
    def ready_at(self) -> float:
        return self._pace.ready_at(self.interval, self._floor)

    @property
    def claimable_at(self) -> float:
        """From when on one more request may be handed out, to be sent at once.

        Those who wait at the gate go first. Of those on their way only the last one
        counts: one that is delayed, say by a slow robots.txt, must not hold up all
        others.
        """
        ready_at = self.ready_at - HEAD_START + self.waiting * self.interval
        if self._last_claim is None:
            return ready_at
        return max(ready_at, self._claimed_at + self.interval)

    def claim(self, claimant: object, now: float) -> None:
        self._last_claim = claimant
        self._claimed_at = now

    def unclaim(self, claimant: object) -> None:
        if self._last_claim is claimant:
            self._last_claim = None

    def is_idle(self, now: float) -> bool:
        busy = self.waiting or self._last_claim is not None
        return not busy and self.ready_at <= now

    def take(self, now: float) -> Permit:
        """Let one request through. One that is early, because nobody knew that it
        belongs here, is paid for by the next ones."""
        interval = self.interval
        late = now - self.ready_at
        kept_up = late <= max(interval, PROMPT)
        self._pace.take(now, interval, self._floor)
        rate = 1 / interval if kept_up else None
        return Permit(now, kept_up, rate=rate, late=late)

    def settle(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> bool:
        """A request that was let through is over; return whether that has made it
        slower."""
        if self._governor is None:
            return False
        # How long to be silent, and what is left, is said of the host alone.
        bare = Outcome(outcome.verdict, outcome.reason)
        return self._governor.observe(permit, bare, now, chance).cut
