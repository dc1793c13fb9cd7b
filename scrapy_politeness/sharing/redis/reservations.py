"""Leases of shared budgets: reserved in time, no more than can be used."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakSet, ref

from scrapy_politeness.core.cause import Block
from scrapy_politeness.core.leases import FURTHEST, HORIZON, Lease, grace, worth_asking
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.core.turns import Seat
from scrapy_politeness.sharing.redis.connection import PATIENCE, Call, micros
from scrapy_politeness.sharing.redis.replies import Granted

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.leases import Leases, LeaseTerms
    from scrapy_politeness.core.permits import Permits
    from scrapy_politeness.core.route import Route
    from scrapy_politeness.sharing.redis.keys import BudgetKeys
    from scrapy_politeness.sharing.redis.server_clock import RoundTrip, ServerClock

# From this many open asks on, the queue waits for answers before it asks for more.
_MOST_ASKS = 32

# Seconds. A process that got nothing does not ask again at once.
_SHORTEST_WAIT = 0.005

# A pause that is known already is no news if it is longer by no more than this.
_SAME_PAUSE = 0.5

# Seconds. A process that waits for something else calls this much before it is expected
# to, and at least so often: then it repeats its pause, in case that the server has lost
# it. What it promises grows from call to call, once all others have heard of the pause.
# Where there is none, all processes together call no more than once in this time.
_EARLY = 0.6
_CALL_EVERY = 30.0
_CALLS_APART = 2.0
_FIRST_STAY, _LONGEST_STAY = 2.0, 60.0
_LONGEST_LINE, _GROWTH = 120.0, 1.5
# It may be so much late.
_LATE = 1.0

# Seconds. The server keeps what it knows for a little longer than this, and seats for
# no longer than that. If it has lost everything, it waits so long for all to call.
_REMEMBERED = 50.0
_SEAT_KEPT = 120.0
_HOLD = 3.0

# No more are reserved at once, however fast they may go.
_SHORTEST, _MOST_LEASES = 1e-6, 1000

# This many answers in a row that came too late to be used are no accident.
_TOO_LATE = 3


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


class Reservations:
    """``pending`` returns how many requests wait for a slot."""

    def __init__(
        self,
        keys_of: Callable[[Slot | Budget], BudgetKeys],
        clock: ServerClock,
        round_trip: RoundTrip,
        policy: Policy,
        pending: Callable[[Slot], int],
    ) -> None:
        self._keys_of = keys_of
        self._clock = clock
        self._round_trip = round_trip
        self._longest = policy.longest_pause
        self._pending = pending
        self._process = uuid4().hex
        self._asks: dict[Slot | Budget, Ask] = {}
        # How many asks need a budget, on their way included; and which slots need it.
        self._open: Counter[Budget] = Counter()
        self._users: WeakKeyDictionary[Budget, WeakSet[Slot]] = WeakKeyDictionary()
        # When to ask for more, or to call at the latest; and the earlier of both.
        self._call_at: WeakKeyDictionary[Slot | Budget, float] = WeakKeyDictionary()
        self._look_at: WeakKeyDictionary[Slot | Budget, float] = WeakKeyDictionary()
        self._looks: list[tuple[float, int, ref[Slot | Budget]]] = []
        # Since when it has wanted nothing, if it has.
        self._calls_since: WeakKeyDictionary[Slot | Budget, float] = WeakKeyDictionary()
        self._paused_here: WeakSet[Slot | Budget] = WeakSet()
        self._promises: WeakKeyDictionary[Slot | Budget, float] = WeakKeyDictionary()
        self._order = count()
        self._too_late = 0
        self._late_at = -math.inf

    def __len__(self) -> int:
        return len(self._asks)

    @property
    def is_full(self) -> bool:
        return len(self._asks) >= _MOST_ASKS

    @property
    def come_too_late(self) -> bool:
        """Tell whether what is reserved has lapsed when it arrives, again and again."""
        return self._too_late >= _TOO_LATE

    def want(self, route: Route, now: float) -> bool:
        """Return whether there is something new to ask for."""
        slot = route.slot
        is_new = self._add(slot, slot, route.shared, now)
        for budget in route.unseen:
            is_new |= self._add(budget, None, (budget,), now)
            if budget in self._asks:
                self._asks[budget].waiting.add(slot)
        return is_new

    def _add(
        self,
        source: Slot | Budget,
        slot: Slot | None,
        budgets: tuple[Budget, ...],
        now: float,
    ) -> bool:
        leases = source.permits.leases
        if leases is None or not source.permits.is_joined or leases.is_asked:
            return False
        if slot is not None:
            leases.need(budgets)
        if not leases.wants_more(now):
            return False
        self._ask(source, Ask(slot, budgets, leases, {slot} if slot else set()))
        for budget in budgets:
            if slot is not None:
                self._users.setdefault(budget, WeakSet()).add(slot)
                if self._open[budget] >= self._batch(budget.terms):
                    # What there is was asked for: others wait for the answer.
                    wait = max(_SHORTEST_WAIT, self._round_trip.most)
                    budget.permits.ask_at = max(budget.permits.ask_at, now + wait)
        return True

    def _ask(self, source: Slot | Budget, ask: Ask) -> None:
        ask.leases.is_asked = True
        self._asks[source] = ask
        self._open.update(ask.budgets)

    def paused(self, slot: Slot, now: float) -> None:
        """The host has asked this process for a pause: until all have heard of it, it
        is repeated often, in case that the server loses it."""
        self._paused_here.add(slot)
        self._call_at[slot] = now + _FIRST_STAY
        self._plan_look(slot, math.inf)

    def announce_pauses(self, sources: list[Slot | Budget], now: float) -> None:
        """The server may not know of them."""
        for source in sources:
            if isinstance(source, Slot) and source.paused_until > now:
                leases = source.permits.leases
                if leases is not None and not leases.is_asked:
                    ask = Ask(source, (), leases, {source}, is_call=True)
                    self._ask(source, ask)

    @property
    def next_look_at(self) -> float:
        looks = self._looks
        while looks:
            at, _, source_ref = looks[0]
            source = source_ref()
            if source is not None and self._look_at.get(source) == at:
                return at
            heapq.heappop(looks)
        return math.inf

    def look(self, now: float) -> None:
        """Ask for what will be needed soon; or say that this process is still there."""
        while self.next_look_at <= now:
            source = heapq.heappop(self._looks)[2]()
            assert source is not None
            del self._look_at[source]
            leases = source.permits.leases
            if leases is None or not source.permits.is_joined or leases.is_asked:
                continue
            if isinstance(source, Slot) and self._wants_more(source, leases, now):
                budgets = leases.taken_from
                self._ask(source, Ask(source, budgets, leases, {source}))
            elif self._call_at.get(source, math.inf) > now:
                self._plan_look(source, math.inf)
            elif isinstance(source, Slot):
                self._ask(source, Ask(source, (), leases, {source}, is_call=True))
            else:
                self._ask(source, Ask(None, (source,), leases, set(), is_call=True))

    def _wants_more(self, slot: Slot, leases: Leases, now: float) -> bool:
        if not slot.is_open(now) or not leases.wants_more(now):
            return False
        if any(budget.permits.ask_at > now for budget in leases.taken_from):
            return False
        return self._pending(slot) + slot.claims > len(leases)

    def _plan_look(self, source: Slot | Budget, ask_at: float) -> None:
        at = min(ask_at, self._call_at.get(source, math.inf))
        if at < math.inf:
            self._look_at[source] = at
            heapq.heappush(self._looks, (at, next(self._order), ref(source)))

    def clear(self) -> None:
        for ask in self._asks.values():
            ask.leases.is_asked = False
        self._asks.clear()
        self._open.clear()
        self._looks.clear()
        self._look_at.clear()
        self._call_at.clear()
        self._too_late = 0

    def calls(
        self,
        now: float,
        revision_of: Callable[[Slot], int],
        resets_of: Callable[[Slot], int],
    ) -> list[tuple[Ask, Call]]:
        asks = list(self._asks.values())
        self._asks.clear()
        return [(ask, self._call(ask, now, revision_of, resets_of)) for ask in asks]

    def farewells(self, now: float) -> list[Call]:
        """Say that this process is gone, wherever it may be remembered."""
        calls = []
        for source in list(self._calls_since):
            permits = source.permits
            if now < max(permits.promised_until, permits.answered_at) + _SEAT_KEPT:
                keys = [self._keys_of(source).record, self._keys_of(source).members]
                calls.append(Call("leave", keys, [self._process]))
        return calls

    def _call(
        self,
        ask: Ask,
        now: float,
        revision_of: Callable[[Slot], int],
        resets_of: Callable[[Slot], int],
    ) -> Call:
        slot = ask.slot
        revision = resets = 0
        pause = 0.0
        if slot is not None:
            revision, resets = revision_of(slot), resets_of(slot)
            pause = slot.paused_until - now - self._round_trip.usual / 2
        source = ask.sources[0]
        ask.needs = self._needs(ask)
        ask.wanted = 0 if ask.is_call else self._how_many(ask)
        ask.horizon = HORIZON + self._round_trip.usual
        if ask.is_call:
            self._calls_since[source] = min(self._calls_since.get(source, now), now)
            known_for = now - self._calls_since[source]
            if source in self._paused_here:
                known_for -= _line(source)
            ask.stay = max(_FIRST_STAY, min(known_for, _LONGEST_STAY))
        else:
            self._calls_since[source] = math.inf
            self._paused_here.discard(source)
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

    def _turns_now(self, source: Slot | Budget, now: float) -> str | int:
        """Return what time it will be by the clock of turns when an ask arrives."""
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
        growing = max(_FIRST_STAY, _GROWTH * last, _GROWTH * _line(source))
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
        batch = self._batch(ask.sources[0].terms) - len(ask.leases)
        if ask.slot is not None:
            for budget in ask.budgets:
                users = len(self._users.get(budget, ()))
                batch = min(batch, self._batch(budget.terms) // max(1, users))
        return max(1, min(batch, ask.needs))

    def _batch(self, terms: LeaseTerms) -> int:
        """Return how many there are from now to the horizon."""
        reach = HORIZON + self._round_trip.usual + self._round_trip.most
        evenly = math.ceil(min(reach / max(terms.slowest, _SHORTEST), _MOST_LEASES))
        return evenly + terms.burst - 1

    def read(self, ask: Ask, answer: Any) -> Granted:
        return Granted.read(
            answer,
            wanted=ask.wanted,
            budgets=len(ask.sources),
            horizon=micros(max(ask.horizon, FURTHEST)) + 1,
            longest=micros(self._longest),
        )

    def answered(
        self, ask: Ask, answer: Granted, sent_at: float, received_at: float
    ) -> float:
        """Return for how many seconds the slot is paused, if that is news: a host has
        asked another process for it."""
        self._close(ask)
        leases = ask.leases
        leases.lead, leases.reach = self._round_trip.most, ask.horizon

        def local(wait: int) -> float:
            return self._clock.local(answer.there, wait / 1e6, sent_at, received_at)

        self._note_members(ask, answer, local, received_at)
        if leases.is_blocked:
            return 0.0
        leases.cuts = answer.cuts
        pause = 0.0
        if ask.slot is not None and answer.pause:
            until = local(answer.pause)
            known_until = max(ask.slot.paused_until, received_at)
            if until - known_until > _SAME_PAUSE:
                pause = until - received_at
            # Before the leases, which begin when it ends.
            ask.slot.block(Block.PAUSE, until)
        source = ask.sources[0]
        terms, last = source.terms, source.permits.last
        lates = [answer.late / 1e6] + [0.0] * len(answer.waits)
        granted = [
            Lease(leases.not_too_early(local(wait), terms, last), late)
            for wait, late in zip(answer.waits, lates, strict=False)
        ]
        if granted:
            is_late = granted[-1].at + grace(terms.slowest) < received_at
            if not is_late:
                self._too_late = 0
            elif received_at > self._late_at:  # of one answer to many, once
                self._too_late += 1
                self._late_at = received_at
        next_at = max(local(max(answer.nexts)), received_at + _SHORTEST_WAIT)
        in_line = answer.waiting > 1
        leases.grant(granted, next_at, terms.slowest, in_line=in_line)
        if ask.slot is not None and len(granted) < ask.needs:
            self._plan_look(ask.slot, leases.ask_at)
        for source, wait in zip(ask.sources, answer.nexts, strict=True):
            if source.permits.is_joined and source is not ask.slot:
                source.permits.ask_at = worth_asking(
                    local(wait), source.terms.slowest, leases.lead, in_line=in_line
                )
        return pause

    def withdraw(self, ask: Ask, now: float) -> None:
        """The answer is of no use: ask, or call, again."""
        self._close(ask)
        if ask.is_call:
            self._call_at[ask.sources[0]] = now
        self._plan_look(ask.sources[0], now)

    def doubt(self, sources: list[Slot | Budget]) -> None:
        """The server's clock was set forward: what it knows is younger than that."""
        for source in sources:
            source.permits.is_doubtful = True

    def _close(self, ask: Ask) -> None:
        ask.leases.is_asked = False
        for budget in ask.budgets:
            self._open[budget] -= 1
            if self._open[budget] <= 0:
                del self._open[budget]

    def _note_members(
        self, ask: Ask, answer: Granted, local: Callable[[int], float], now: float
    ) -> None:
        """What is promised to the others, and what they know."""
        ahead = (answer.there - answer.turns_now) / 1e6
        ask.sources[0].permits.turns_offset = self._clock.offset - ahead
        rows = zip(answer.seats, answer.members, answer.promises, strict=True)
        for source, uncounted, (number, of, promise) in zip(
            ask.sources, ask.uncounted, rows, strict=True
        ):
            permits = source.permits
            permits.counted(uncounted)
            permits.seat = Seat(number, of)
            permits.answered_at = now
            permits.is_doubtful = False
            is_vain = ask.wanted > 0 and not (answer.waits or answer.pause)
            permits.vain_since = min(permits.vain_since, now) if is_vain else math.inf
            permits.promised_until = local(promise) if promise else -math.inf
            if permits.leases is not None:
                permits.leases.members = of
            self._call_at.pop(source, None)
            self._promises[source] = promise / 1e6
            if promise:
                every = _CALL_EVERY
                if source in self._paused_here:
                    every = min(every, max(_FIRST_STAY, ask.stay))
                elif not answer.pause:
                    every = max(every, of * _CALLS_APART)
                at = min(permits.promised_until - _EARLY, now + every)
                self._call_at[source] = at
                self._plan_look(source, math.inf)


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
