"""When may the next request go, where several processes share one budget."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_politeness.core.pace import HEAD_START, is_enough

if TYPE_CHECKING:
    from collections.abc import Sequence

# Seconds. How far ahead send times are reserved. It is also how long the others take to
# notice that one of them was refused, and for how long they lose what a process had
# reserved that was killed.
HORIZON = 0.2
# For a process whose time has come it may be up to this, where others with a longer way
# reserve earlier.
FURTHEST = 1.2

# When what is reserved lasts for less than this, it is time to ask for more. A single
# one is asked for only this much before it can be used.
_LOW_WATER = HORIZON / 2
_JUST_IN_TIME = 0.02

# A lease that is not used within this time lapses: requests of other processes follow.
# Where there is time between them, it may be a little longer.
_GRACE = 0.03
_LONGEST_GRACE = 0.1
_GRACE_SHARE = 0.03

# By how much two leases of many may come closer to each other on their way here: the
# server's time is known only to within a round trip.
_TOLERANCE = HORIZON


class Lease(NamedTuple):
    """One request may go ``at`` that time. It could have gone ``late`` seconds earlier
    if a process had asked."""

    at: float
    late: float


class LeaseTerms(NamedTuple):
    """What a process asks leases on: one every ``interval`` seconds on average, but
    if others have learned together that it may be faster, up to one every ``fastest``;
    no two closer than ``gap``, and up to ``burst`` at once after a time of rest.

    ``step`` is how long the turns are of processes that were cut off, and
    ``crawl_delay`` the part of the gap that holds for a process that has not read
    robots.txt yet."""

    interval: float
    fastest: float
    gap: float
    burst: int = 1
    step: float = 0.0
    crawl_delay: float = 0.0

    @property
    def slowest(self) -> float:
        return max(self.interval, self.gap)


@dataclass(eq=False, slots=True)
class Leases:
    """Answers the same questions as a ``Pace``, from send times that were reserved for
    this process. How they are spaced is decided where they are reserved.

    ``members`` is how many processes share the budget, ``cuts`` how often its rate
    had been cut when the leases were granted, ``taken_from`` which other budgets they
    were taken from, too. ``lead`` is what it takes from asking for leases until they
    can be used, ``reach`` how far ahead they may be.
    """

    members: int = 1
    cuts: int = 0
    lead: float = 0.0
    reach: float = HORIZON
    taken_from: tuple[Any, ...] = ()
    is_asked: bool = False
    # Until it is known what a refusal means for all.
    is_blocked: bool = False
    _leases: deque[Lease] = field(default_factory=deque)
    _ask_at: float = -math.inf
    _grace: float = _GRACE
    # When the next one would be due if all were evenly spread.
    _alone_at: float = -math.inf
    # Others wait for them, too, and it was said when to ask again.
    _in_line: bool = False
    # What was asked for is out of date.
    _is_outdated: bool = False

    def __len__(self) -> int:
        return len(self._leases)

    def grant(
        self,
        leases: Sequence[Lease],
        next_at: float,
        interval: float = 0.0,
        *,
        in_line: bool = False,
    ) -> None:
        """Some were reserved, or none; there will be more from ``next_at`` on, one in
        every ``interval``; see ``worth_asking``."""
        if self._is_outdated:
            self._is_outdated = False
            self._ask_at = -math.inf
            return
        self._leases.extend(leases)
        self._in_line = in_line
        self._ask_at = worth_asking(next_at, interval, self.lead, in_line=in_line)
        self._grace = grace(interval)

    def not_too_early(self, at: float, terms: LeaseTerms, last: float) -> float:
        """Return when to use a lease for that time, after the ``last`` request. What-
        ever happens to what was counted where leases are reserved, no process sends
        more than all together may."""
        interval = max(terms.fastest, terms.gap)
        spare = (terms.burst - 1) * interval
        if interval < HORIZON or terms.burst > 1:
            spare += _TOLERANCE
        else:
            # A lease that was used late does not put off the next one.
            at = max(at, last + interval - grace(interval))
        at = max(at, self._alone_at - spare, last + terms.gap - grace(terms.gap))
        self._alone_at = max(self._alone_at, at) + interval
        return at

    def void(self, ask_at: float) -> None:
        self._leases.clear()
        self._ask_at = ask_at

    def clear(self) -> None:
        self.is_asked = self.is_blocked = self._is_outdated = False
        self.void(-math.inf)

    def renew(self) -> None:
        """They are needed on other terms from now on."""
        self._is_outdated = self.is_asked
        self._alone_at = -math.inf
        self.void(-math.inf)

    def refused(self, cuts: int) -> bool:
        """A request that was sent after that many cuts was refused. Return whether it
        is the first of its flight."""
        if cuts < self.cuts or self.is_blocked:
            return False
        self.is_blocked = True
        self._leases.clear()
        return True

    def wants_more(self, now: float) -> bool:
        if self.is_asked or self.is_blocked or now < self._ask_at:
            return False
        self._lapse(now)
        return now >= self.ask_at

    @property
    def ask_at(self) -> float:
        """From when on it is of use to ask for more, if nothing else is in the way."""
        if not self._leases or self._in_line:
            return self._ask_at
        return max(self._ask_at, self._leases[-1].at - _LOW_WATER - self.lead)

    def has_permit(self, now: float, shared: object = ()) -> bool:
        """Tell whether one request may go that needs those other budgets, too."""
        self._lapse(now)
        is_due = bool(self._leases) and self._leases[0].at <= now
        return is_due and self.taken_from == shared

    def has_lease_for(self, claims: int, now: float, shared: object = ()) -> bool:
        """Tell whether one more can be handed out with those ``claims`` under way."""
        self._lapse(now)
        return len(self._leases) > claims and self.taken_from == shared

    def need(self, shared: tuple[Any, ...]) -> None:
        """They are needed for requests that need those other budgets, too."""
        if self.taken_from != shared:
            self.taken_from = shared
            self.void(-math.inf)

    def ready_at(self, interval: float, floor: float = 0.0) -> float:
        return self._leases[0].at if self._leases else self._ask_at

    def claimable_at(
        self,
        claims: int,
        since: float,
        interval: float,
        floor: float = 0.0,
        way: float = 0.0,
    ) -> float:
        if way:
            # No lease lasts that long: it is asked for when the request is there.
            return (
                math.inf if is_enough(claims, max(interval, floor), way) else -math.inf
            )
        if len(self._leases) > claims:
            return self._leases[claims].at - HEAD_START
        is_unsure = self.is_asked or self.is_blocked
        return math.inf if is_unsure or claims else self._ask_at

    def idle_at(self, interval: float, floor: float = 0.0) -> float:
        return self.ready_at(interval, floor)

    def take(self, now: float, interval: float, floor: float = 0.0) -> float:
        if not self._leases:
            return math.inf
        lease = self._leases.popleft()
        return now - lease.at + lease.late

    def restart(self, now: float) -> None:
        self.void(now)

    def pause_until(self, until: float, interval: float) -> None:
        self.void(until - _LOW_WATER - self.lead)

    def forget_pause(self) -> None:
        self.void(-math.inf)

    def _lapse(self, now: float) -> None:
        while self._leases and self._leases[0].at + self._grace < now:
            self._leases.popleft()


def grace(interval: float) -> float:
    """Return for how long after its time a lease may be used. The next one is not put
    off for that: to keep an interval, add it."""
    return max(_GRACE, min(_GRACE_SHARE * interval, _LONGEST_GRACE))


def worth_asking(
    next_at: float, interval: float, lead: float, *, in_line: bool = False
) -> float:
    """Return from when on to ask for what there will be at ``next_at``: in time to
    reserve several at once; but a single one only when it can be used at once, or
    all processes might have to wait for the next; nor earlier than others that are
    ``in_line``."""
    is_early = interval < HORIZON and not in_line
    return next_at - lead - (_LOW_WATER if is_early else _JUST_IN_TIME)
