"""What a process asks the server for, and what it promises in return."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakSet

from scrapy_politeness.core.leases import HORIZON
from scrapy_politeness.core.turns import Seat
from scrapy_politeness.sharing.redis.connection import PATIENCE, Call, micros
from scrapy_politeness.sharing.redis.server_clock import seconds_asleep

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.leases import Leases, LeaseTerms
    from scrapy_politeness.core.permits import Permits
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.sharing.redis.keys import BudgetKeys
    from scrapy_politeness.sharing.redis.server_clock import RoundTrip, ServerClock

# Seconds. What a process promises that wants nothing grows from call to call, once all
# others have heard of its pause.
FIRST_STAY, _LONGEST_STAY = 2.0, 60.0
_LONGEST_LINE, _GROWTH = 120.0, 1.5
# It may be late by this much.
_LATE = 1.0

# Seconds. The server keeps what it knows for a little longer than this, and seats for
# no longer than that. If it has lost everything, it waits this long for all to call.
_REMEMBERED = 50.0
_SEAT_KEPT = 120.0
_HOLD = 3.0

# Seconds. A machine that was suspended for longer than this knows the time no more.
_ASLEEP = 0.2

# No more are reserved at once, however fast they may go.
_SHORTEST, _MOST_LEASES = 1e-6, 1000


@dataclass(eq=False, slots=True)
class Ask:
    """For a slot and the other budgets that its requests need, or for one budget.
    ``waiting`` are the slots that wait for the answer. One that ``is_call`` wants
    nothing, but says that this process is still there.

    When it is sent, ``wanted`` is for how many, ``stay`` for how many seconds nothing
    is wanted, ``horizon`` up to how many seconds ahead, ``uncounted`` up to when it
    reports what was sent otherwise, ``doubted`` of which sources it says that the
    server's clock was set."""

    slot: Slot | None
    budgets: tuple[Budget, ...]
    leases: Leases
    waiting: set[Slot]
    is_call: bool = False
    wanted: int = 0
    needs: int = 0
    stay: float = 0.0
    horizon: float = 0.0
    uncounted: tuple[float | None, ...] = ()
    doubted: tuple[bool, ...] = ()

    @property
    def sources(self) -> tuple[Slot | Budget, ...]:
        return self.budgets if self.slot is None else (self.slot, *self.budgets)

    @property
    def is_outdated(self) -> bool:
        """Tell whether the server's clock was set while it was on its way."""
        doubtful = (source.permits.is_doubtful for source in self.sources)
        return any(
            now and not then for now, then in zip(doubtful, self.doubted, strict=True)
        )


class Asking:
    """Makes calls of asks. ``pending`` returns how many requests wait for a slot, and
    ``longest`` is the longest pause in seconds."""

    def __init__(
        self,
        keys_of: Callable[[Slot | Budget], BudgetKeys],
        clock: ServerClock,
        round_trip: RoundTrip,
        longest: float,
        pending: Callable[[Slot], int],
    ) -> None:
        self._keys_of = keys_of
        self._clock = clock
        self._round_trip = round_trip
        self._longest = longest
        self._pending = pending
        self._process = uuid4().hex
        # Which slots need a budget.
        self._users: WeakKeyDictionary[Budget, WeakSet[Slot]] = WeakKeyDictionary()
        # The clock of a machine that is suspended stands still.
        self._asleep = seconds_asleep()
        # Since when it has wanted nothing, if it has.
        self._calls_since: WeakKeyDictionary[Slot | Budget, float] = WeakKeyDictionary()
        self._promises: WeakKeyDictionary[Slot | Budget, float] = WeakKeyDictionary()
        # The host has asked this process for a pause, and not all may have heard of it.
        self.paused_here: WeakSet[Slot | Budget] = WeakSet()

    def used(self, budget: Budget, slot: Slot) -> None:
        self._users.setdefault(budget, WeakSet()).add(slot)

    def promised(self, source: Slot | Budget, seconds: float) -> None:
        """For how long the others may count on nothing being sent without a lease."""
        self._promises[source] = seconds

    def call(self, ask: Ask, now: float, revision: int, resets: int) -> Call:
        """``revision`` and ``resets`` are what this process knows of the slot."""
        slot = ask.slot
        pause = 0.0
        if slot is not None:
            pause = slot.paused_until - now - self._round_trip.usual / 2
        source = ask.sources[0]
        ask.needs = self._needs(ask)
        ask.wanted = 0 if ask.is_call else self._how_many(ask)
        ask.horizon = HORIZON + self._round_trip.usual
        if ask.is_call:
            self._calls_since[source] = min(self._calls_since.get(source, now), now)
            known_for = now - self._calls_since[source]
            if source in self.paused_here:
                known_for -= _line(source)
            ask.stay = max(FIRST_STAY, min(known_for, _LONGEST_STAY))
        else:
            self._calls_since[source] = math.inf
            self.paused_here.discard(source)
        lead = micros(self._round_trip.back)
        patience = PATIENCE + 2 * self._round_trip.usual
        heard_until = self._clock.at(now + patience) if self._clock.is_known else 0.0
        promise = self._longest_promise(source, ask.stay)
        keys = [self._keys_of(source).summary]
        arguments: list[str | int] = [
            *(self._process, ask.wanted, ask.needs, micros(ask.horizon), lead),
            *(micros(ask.stay), revision, micros(self._longest)),
            *(micros(max(0.0, min(pause, self._longest))), resets),
            *(micros(heard_until), micros(promise), self._turns_now(source, now)),
        ]
        ask.uncounted = tuple(source.permits.uncounted for source in ask.sources)
        ask.doubted = tuple(source.permits.is_doubtful for source in ask.sources)
        for source in ask.sources:
            own = self._keys_of(source)
            keys += [own.record, own.members]
            # Once the server knows the learned interval, it goes by that.
            is_known = source is slot and revision > 0
            arguments += _arguments(
                source.terms, source.permits, now, ask.horizon, is_known=is_known
            )
            if source.terms.step:
                # If the answer is lost, this is what the others count on.
                until = now + patience + promise + _LATE
                permits = source.permits
                permits.promised_until = max(permits.promised_until, until)
        ask.horizon += lead / 1e6
        return Call("grant", keys, arguments)

    def farewells(self, now: float) -> list[Call]:
        """Say that this process is gone, wherever it may be remembered."""
        calls = []
        for source in list(self._calls_since):
            permits = source.permits
            if now < max(permits.promised_until, permits.answered_at) + _SEAT_KEPT:
                keys = [self._keys_of(source).record, self._keys_of(source).members]
                calls.append(Call("leave", keys, [self._process]))
        return calls

    def _turns_now(self, source: Slot | Budget, now: float) -> str | int:
        """Return what time it will be by the clock of turns when an ask arrives."""
        if (asleep := seconds_asleep()) - self._asleep > _ASLEEP:
            self._asleep = asleep
            for known in self._calls_since:
                known.permits.turns_offset = None
        offset = source.permits.turns_offset
        if offset is None:
            return ""
        return micros(now + self._round_trip.usual / 2 + offset)

    def _longest_promise(self, source: Slot | Budget, stay: float) -> float:
        """Return how long to promise at most to send nothing without a lease: if the
        answer is lost, nothing is sent for that long."""
        if not source.terms.step:
            return _LONGEST_LINE
        last = self._promises.get(source, 0.0)
        growing = max(FIRST_STAY, _GROWTH * last, _GROWTH * _line(source))
        return min(max(stay, growing), _LONGEST_LINE)

    def _needs(self, ask: Ask) -> int:
        """Return for how many there is a use that have no lease yet."""
        if ask.is_call and ask.slot is None:
            users = self._users.get(ask.budgets[0], ())
            return int(any(self._pending(slot) for slot in users))
        use = sum(self._pending(slot) + slot.claims for slot in ask.waiting)
        return max(0 if ask.is_call else 1, use - len(ask.leases))

    def _how_many(self, ask: Ask) -> int:
        """What there is up to the horizon, but no more than there is a use for."""
        batch = self.batch(ask.sources[0].terms) - len(ask.leases)
        if ask.slot is not None:
            for budget in ask.budgets:
                users = len(self._users.get(budget, ()))
                batch = min(batch, self.batch(budget.terms) // max(1, users))
        return max(1, min(batch, ask.needs))

    def batch(self, terms: LeaseTerms) -> int:
        """Return how many there are from now to the horizon."""
        reach = HORIZON + self._round_trip.usual + self._round_trip.most
        evenly = math.ceil(min(reach / max(terms.slowest, _SHORTEST), _MOST_LEASES))
        return evenly + terms.burst - 1


def _line(source: Slot | Budget) -> float:
    """Return how long it takes until all processes have had their turn, in seconds."""
    members = source.permits.seat.of if source.permits.seat else 1
    return min(members * source.terms.slowest, _LONGEST_LINE)


def _arguments(
    terms: LeaseTerms, permits: Permits, now: float, horizon: float, *, is_known: bool
) -> list[str | int]:
    """Of one budget, as ``grant.lua`` has them."""
    # Where the record is lost, the leases of before have to lapse first. But one that
    # is lost again and again must not starve a process whose turn was long ago.
    members = permits.seat.of if permits.seat else 1
    longest = max(horizon, _HOLD) + 2 * members * terms.slowest
    has_lapsed = now - permits.vain_since > longest
    answered_at = max(permits.answered_at, min(now, permits.promised_until))
    is_remembered = now - answered_at < _REMEMBERED
    certainty = 2 if permits.is_doubtful else int(is_remembered and not has_lapsed)
    spacing = terms.fastest if is_known else terms.interval
    seat = permits.seat or Seat(-1, 1)
    uncounted = permits.uncounted
    return [
        *(micros(spacing), micros(terms.gap), terms.burst, micros(terms.step)),
        *(micros(terms.crawl_delay), seat.number, seat.of),
        "" if uncounted is None else micros(uncounted - now),
        certainty,
    ]
