"""Leases of shared budgets: reserved in time, no more than can be used."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from scrapy_politeness.core.cause import Block
from scrapy_politeness.core.leases import FURTHEST, Lease, grace, worth_asking
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.core.turns import Seat
from scrapy_politeness.sharing.redis.asks import FIRST_STAY, Ask, Asking
from scrapy_politeness.sharing.redis.connection import Call, micros
from scrapy_politeness.sharing.redis.looks import Looks
from scrapy_politeness.sharing.redis.replies import Granted

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.leases import Leases
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
# it. Where there is none, all processes together call no more than once in this time.
_EARLY = 0.6
_CALL_EVERY = 30.0
_CALLS_APART = 2.0

# This many answers in a row that came too late to be used are no accident.
_TOO_LATE = 3


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
        longest = policy.longest_pause
        self._asking = Asking(keys_of, clock, round_trip, longest, pending)
        self._looks = Looks()
        self._clock = clock
        self._round_trip = round_trip
        self._longest = longest
        self._pending = pending
        self._asks: dict[Slot | Budget, Ask] = {}
        # How many asks need a budget, on their way included.
        self._open: Counter[Budget] = Counter()
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
                self._asking.used(budget, slot)
                if self._open[budget] >= self._asking.batch(budget.terms):
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
        self._asking.paused_here.add(slot)
        self._looks.hasten_call(slot, now + FIRST_STAY)

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
        return self._looks.next_at

    def look(self, now: float) -> None:
        """Ask for what will be needed soon; or say that this process is still there."""
        for source in self._looks.due(now):
            leases = source.permits.leases
            if leases is None or not source.permits.is_joined or leases.is_asked:
                continue
            if isinstance(source, Slot) and self._wants_more(source, leases, now):
                budgets = leases.taken_from
                self._ask(source, Ask(source, budgets, leases, {source}))
            elif not self._looks.is_call_due(source, now):
                self._looks.plan(source)
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

    def clear(self) -> None:
        for ask in self._asks.values():
            ask.leases.is_asked = False
        self._asks.clear()
        self._open.clear()
        self._looks.clear()
        self._too_late = 0

    def calls(
        self,
        now: float,
        revision_of: Callable[[Slot], int],
        resets_of: Callable[[Slot], int],
    ) -> list[tuple[Ask, Call]]:
        asks = list(self._asks.values())
        self._asks.clear()
        calls = []
        for ask in asks:
            revision = resets = 0
            if ask.slot is not None:
                revision, resets = revision_of(ask.slot), resets_of(ask.slot)
            calls.append((ask, self._asking.call(ask, now, revision, resets)))
        return calls

    def farewells(self, now: float) -> list[Call]:
        return self._asking.farewells(now)

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
            self._looks.plan(ask.slot, leases.ask_at)
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
            self._looks.plan_call(ask.sources[0], now)
        else:
            self._looks.plan(ask.sources[0], now)

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
            self._looks.forget_call(source)
            self._asking.promised(source, promise / 1e6)
            if promise:
                every = _CALL_EVERY
                if source in self._asking.paused_here:
                    every = min(every, max(FIRST_STAY, ask.stay))
                elif not answer.pause:
                    every = max(every, of * _CALLS_APART)
                at = min(permits.promised_until - _EARLY, now + every)
                self._looks.plan_call(source, at)
