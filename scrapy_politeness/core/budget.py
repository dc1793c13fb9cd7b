"""One limit that many slots share: of the whole crawl, an address, a proxy, a host."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor.control_law import Governor
from scrapy_politeness.core.leases import LeaseTerms, grace
from scrapy_politeness.core.outcome import Outcome, Permit
from scrapy_politeness.core.pace import HEAD_START, PROMPT
from scrapy_politeness.core.permits import Permits, Referable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_politeness.core.bandwidth import Bandwidth
    from scrapy_politeness.core.governor.bounds import Bounds
    from scrapy_politeness.core.pace import Limit
    from scrapy_politeness.core.windows import Window


@dataclass(eq=False, repr=False, slots=True)
class Budget(Referable):
    """Spreads ``limit`` evenly over all slots that share it; or, where it is a host's
    with several slots, keeps to what a slot's limits are made of.

    With ``bounds``, refusals make it slower for a time. They never pause it:
    that is between one host and us.

    Where other processes share it, too, the leases of the slots are taken from it as
    well, so that nothing has to wait for it here. A request that is not known to need
    it before it is sent goes by leases of the budget's own.
    """

    key: str
    limit: InitVar[Limit | None] = None
    bounds: InitVar[Bounds | None] = None
    _: KW_ONLY
    spacing: float = 0.0
    gap: float = 0.0
    burst: int = 1
    bandwidth: Bandwidth | None = None
    # How many may be in flight at once, over all of its slots.
    concurrency: float = math.inf
    # Where other processes share it, its longer windows are budgets of their own.
    companions: tuple[Budget, ...] = ()
    windows: InitVar[Sequence[Window]] = ()
    permits: Permits = field(init=False)
    # How many wait for it at the gate.
    waiting: int = field(default=0, init=False)
    in_flight: int = field(default=0, init=False)
    _governor: Governor | None = field(default=None, init=False)
    _last_claim: object = field(default=None, init=False)
    _claimed_at: float = field(default=-math.inf, init=False)

    def __post_init__(
        self, limit: Limit | None, bounds: Bounds | None, windows: Sequence[Window]
    ) -> None:
        if limit is not None:
            self.spacing, self.gap = limit.interval, limit.floor
            windows = limit.windows
        self.permits = Permits(self.burst, windows)
        if bounds is not None:
            self._governor = Governor(bounds)

    def __repr__(self) -> str:
        return f"<Budget {self.key!r}: one in {max(self.interval, self.floor):.3g} s>"

    @property
    def interval(self) -> float:
        return self._own_interval * self.permits.share

    @property
    def _own_interval(self) -> float:
        if self._governor is None:
            return self.spacing
        return max(self.spacing, 1 / self._governor.rate)

    @property
    def floor(self) -> float:
        return self.gap * self.permits.share

    @property
    def ready_at(self) -> float:
        return self._metered_at if self.permits.is_joined else self.unseen_ready_at

    @property
    def _metered_at(self) -> float:
        return -math.inf if self.bandwidth is None else self.bandwidth.ready_at

    @property
    def unseen_ready_at(self) -> float:
        """The same for requests that are not known to need it before they are sent."""
        at = self.permits.pace.ready_at(self.interval, self.floor)
        return max(at, self._metered_at)

    def keep_gap(self, gap: float, now: float) -> None:
        """From now on, leave at least that much time between two requests."""
        if self.permits.leases is not None:
            gap += grace(gap)
        if gap > self.gap:
            self.gap = gap
            self.permits.restart(now)

    @property
    def has_room(self) -> bool:
        return self.in_flight < self.concurrency

    def has_permit(self, now: float) -> bool:
        return self.permits.pace.has_permit(now)

    def join(self, members: int = 1) -> None:
        """From now on, share it with other processes."""
        self.permits.join(members)

    def part(self, now: float, chance: float, offset: float = 0.0) -> None:
        """Go on alone, with an equal share; see ``Permits.part``. There are no turns:
        those of a slot might never be at the same time."""
        self.permits.part(now, chance, self._own_interval, 0.0, offset)

    @property
    def terms(self) -> LeaseTerms:
        return LeaseTerms(self.interval, self.interval, self.floor, self.burst)

    @property
    def claimable_at(self) -> float:
        """From when on one more request may be handed out, to be sent at once.

        Those that wait at the gate go first. Of those on their way only the last one
        counts: one that is delayed, say by a slow robots.txt, must not hold up all
        others.
        """
        if not self.has_room:
            return math.inf
        if self.permits.is_joined:
            return self._metered_at
        slowest = max(self.interval, self.floor)
        ready_at = self.ready_at - HEAD_START + self.waiting * slowest
        if self._last_claim is None:
            return ready_at
        return max(ready_at, self._claimed_at + slowest)

    def claim(self, claimant: object, now: float) -> None:
        self._last_claim = claimant
        self._claimed_at = now

    def unclaim(self, claimant: object) -> None:
        if self._last_claim is claimant:
            self._last_claim = None

    def is_idle(self, now: float) -> bool:
        busy = self.waiting or self.in_flight or self._last_claim is not None
        idle_at = self.permits.pace.idle_at(self.interval, self.floor)
        return not busy and max(self.ready_at, idle_at) <= now

    def take(self, now: float) -> Permit:
        """Let one request through. One that is early, because it was not known to
        belong here, is paid for by the next ones."""
        return (
            self._permit(now, math.inf)
            if self.permits.is_joined
            else self.take_unseen(now)
        )

    def take_unseen(self, now: float) -> Permit:
        late = self.permits.take(now, self.interval, self.floor)
        return self._permit(now, late)

    def _permit(self, now: float, late: float) -> Permit:
        slowest = max(self.interval, self.floor)
        kept_up = late <= max(slowest, PROMPT)
        rate = 1 / slowest if kept_up and slowest else None
        return Permit(now, kept_up, rate=rate, late=late)

    def settle(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> bool:
        """A request that was let through is over; return whether that has made it
        slower."""
        self.in_flight -= 1
        if self._governor is None:
            return False
        # A pause, and what is left of a quota, is the host's alone.
        bare = Outcome(outcome.verdict, outcome.reason)
        return self._governor.observe(permit, bare, now, chance).cut
