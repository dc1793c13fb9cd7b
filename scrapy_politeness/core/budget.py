"""One limit that many slots share: the whole crawl's, a server address's, a proxy's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor.control_law import Governor
from scrapy_politeness.core.leases import LeaseTerms
from scrapy_politeness.core.outcome import Outcome, Permit
from scrapy_politeness.core.pace import HEAD_START, PROMPT, Pace

if TYPE_CHECKING:
    from scrapy_politeness.core.governor.control_law import Bounds
    from scrapy_politeness.core.leases import Leases
    from scrapy_politeness.core.pace import Limit


class Budget:
    """Spreads ``limit`` evenly over all who share it.

    With ``bounds``, refusals make it slower for a time. They never pause it:
    that is between one host and us.

    Where other processes share it, too, the leases of the slots are taken from it as
    well, so that nobody has to wait for it any more. Who is not known to need it until
    it is sent goes by ``leases`` of its own.
    """

    __slots__ = (
        "__weakref__",
        "_claimed_at",
        "_floor",
        "_governor",
        "_interval",
        "_last_claim",
        "_pace",
        "_share",
        "key",
        "leases",
        "told_at",
        "waiting",
    )

    def __init__(self, key: str, limit: Limit, bounds: Bounds | None = None) -> None:
        self.key = key
        self._interval = limit.interval
        self._floor = limit.floor
        self._governor = None if bounds is None else Governor(bounds)
        self._pace = Pace()
        self._share = 1
        self.leases: Leases | None = None
        # While other processes share it: from when on it is of use to ask for more.
        self.told_at: float | None = None
        # How many wait for it at the gate.
        self.waiting = 0
        self._last_claim: object = None
        self._claimed_at = -math.inf

    @property
    def interval(self) -> float:
        if self._governor is None:
            return self._interval * self._share
        return max(self._interval, 1 / self._governor.rate) * self._share

    @property
    def floor(self) -> float:
        return self._floor * self._share

    @property
    def ready_at(self) -> float:
        if self.is_joined:
            return -math.inf
        return self._pace.ready_at(self.interval, self.floor)

    @property
    def unseen_ready_at(self) -> float:
        """The same for those who are not known to need it before they are sent."""
        if self.leases is None or not self.is_joined:
            return self.ready_at
        return self.leases.ready_at(self.interval)

    @property
    def is_joined(self) -> bool:
        return self.told_at is not None

    def has_permit(self, now: float) -> bool:
        return self.leases is None or not self.is_joined or self.leases.has_permit(now)

    def join(self, leases: Leases) -> None:
        """From now on, other processes share it."""
        self._share = 1
        self.told_at = -math.inf
        self.leases = leases

    @property
    def terms(self) -> LeaseTerms:
        return LeaseTerms(self.interval, self.interval, self.floor)

    def told(self, at: float) -> None:
        """It is of no use to ask for more before."""
        if self.is_joined:
            self.told_at = at

    def part(self, now: float, chance: float) -> None:
        """Go on alone, with an equal share; see ``Slot.part``."""
        assert self.leases is not None
        self.told_at = None
        self._share = max(1, self.leases.members)
        self._pace = Pace()
        self._pace.restart(now - chance * self.interval)

    @property
    def claimable_at(self) -> float:
        """From when on one more request may be handed out, to be sent at once.

        Those who wait at the gate go first. Of those on their way only the last one
        counts: one that is delayed, say by a slow robots.txt, must not hold up all
        others.
        """
        if self.is_joined:
            return -math.inf
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
        permit = self._permit(now, now - self.ready_at)
        if not self.is_joined:
            self._pace.take(now, self.interval, self.floor)
        return permit

    def take_unseen(self, now: float) -> Permit:
        if self.leases is None or not self.is_joined:
            return self.take(now)
        permit = self._permit(now, self.leases.lateness(now, self.interval))
        self.leases.take(now, self.interval)
        return permit

    def _permit(self, now: float, late: float) -> Permit:
        interval = self.interval
        kept_up = late <= max(interval, PROMPT)
        rate = 1 / interval if kept_up else None
        return Permit(now, kept_up, rate=rate, late=late)

    def settle(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> bool:
        """A request that was let through is over; return whether that has made it
        slower."""
        if self._governor is None:
            return False
        # A pause, and what is left of a quota, is the host's alone.
        bare = Outcome(outcome.verdict, outcome.reason)
        return self._governor.observe(permit, bare, now, chance).cut
