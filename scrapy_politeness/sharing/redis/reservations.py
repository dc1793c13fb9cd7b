"""Leases of shared budgets: reserved in time, no more than can be used."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4
from weakref import WeakKeyDictionary

from scrapy_politeness.core.cause import Block
from scrapy_politeness.core.leases import HORIZON, Lease, worth_asking
from scrapy_politeness.sharing.redis.connection import Call, micros
from scrapy_politeness.sharing.redis.replies import Granted

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.leases import Leases
    from scrapy_politeness.core.route import Route
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.sharing.redis.keys import BudgetKeys
    from scrapy_politeness.sharing.redis.server_clock import ServerClock

# From this many open asks on, the queue waits for answers before it asks for more.
_MOST_ASKS = 32

# Seconds. A process that got nothing does not ask again at once.
_SHORTEST_WAIT = 0.005

# A pause that is known already is no news if it is longer by no more than this.
_SAME_PAUSE = 0.5


class Ask(NamedTuple):
    """For a slot and the other budgets that its requests need, or for one budget.
    ``waiting`` are the slots that wait for the answer."""

    slot: Slot | None
    budgets: tuple[Budget, ...]
    leases: Leases
    waiting: set[Slot]

    @property
    def sources(self) -> tuple[Slot | Budget, ...]:
        return self.budgets if self.slot is None else (self.slot, *self.budgets)


class Reservations:
    """``pending`` returns how many requests wait for a slot."""

    def __init__(
        self,
        keys_of: Callable[[Slot | Budget], BudgetKeys],
        clock: ServerClock,
        policy: Policy,
        pending: Callable[[Slot], int],
    ) -> None:
        self._keys_of = keys_of
        self._clock = clock
        self._longest = policy.longest_pause
        self._pending = pending
        self._process = uuid4().hex
        self._asks: dict[Slot | Budget, Ask] = {}
        self._expected: WeakKeyDictionary[Slot | Budget, int] = WeakKeyDictionary()
        self._expect_until = -math.inf

    def __len__(self) -> int:
        return len(self._asks)

    @property
    def is_full(self) -> bool:
        return len(self._asks) >= _MOST_ASKS

    def expect(self, sources: list[Slot | Budget], until: float) -> None:
        """Until then, some of the processes that shared these may not be back."""
        for source in sources:
            if source.permits.leases is not None:
                self._expected[source] = source.permits.leases.members
        self._expect_until = until

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
        leases.is_asked = True
        self._asks[source] = Ask(slot, budgets, leases, {slot} if slot else set())
        return True

    def clear(self) -> None:
        for ask in self._asks.values():
            ask.leases.is_asked = False
        self._asks.clear()

    def calls(self, revision_of: Callable[[Slot], int]) -> list[tuple[Ask, Call]]:
        asks = list(self._asks.values())
        self._asks.clear()
        now = time.monotonic()
        return [(ask, self._call(ask, now, revision_of)) for ask in asks]

    def _call(self, ask: Ask, now: float, revision_of: Callable[[Slot], int]) -> Call:
        slot = ask.slot
        revision, pause, finished = 0, 0.0, -1
        if slot is not None:
            revision = revision_of(slot)
            if revision < 0:
                # The server may not know of it: it is new here, or has been away.
                pause = max(0.0, slot.paused_until - now)
            if slot.finished_at is not None:
                finished = micros(now - slot.finished_at)
        keys: list[str] = []
        arguments: list[str | int] = [
            self._process,
            self._how_many(ask),
            micros(HORIZON),
            revision,
            micros(self._longest),
            micros(min(pause, self._longest)),
            finished,
        ]
        may_be_missed = now < self._expect_until
        for source in ask.sources:
            own = self._keys_of(source)
            keys += [] if keys else [own.learned, own.summary]
            keys += [own.times, own.members]
            terms = source.terms
            # Once the server knows the learned interval, it goes by that.
            is_known = source is slot and revision > 0
            spacing = terms.fastest if is_known else terms.interval
            expected = self._expected.get(source, 1) if may_be_missed else 1
            arguments += [micros(spacing), micros(terms.gap), terms.burst, expected]
        return Call("grant", keys, arguments)

    def _how_many(self, ask: Ask) -> int:
        """An equal share of what there is up to the horizon, but no more than there is
        a use for."""
        slowest = ask.sources[0].terms.slowest
        fair = math.ceil(HORIZON / slowest / ask.leases.members)
        use = sum(self._pending(slot) + slot.claims for slot in ask.waiting)
        return max(1, min(fair, use) - len(ask.leases))

    def read(self, ask: Ask, call: Call, answer: Any) -> Granted:
        return Granted.read(
            answer,
            wanted=int(call.arguments[1]),
            budgets=len(ask.sources),
            horizon=micros(HORIZON),
            longest=micros(self._longest),
        )

    def answered(
        self, ask: Ask, answer: Granted, sent_at: float, received_at: float
    ) -> float:
        """Return for how many seconds the slot is paused, if that is news: a host has
        asked another process for it."""
        leases = ask.leases
        leases.is_asked = False
        leases.members = max(1, answer.members[0])
        if leases.is_blocked:
            return 0.0
        leases.cuts = answer.cuts

        def local(wait: int) -> float:
            return self._clock.local(answer.there, wait / 1e6, sent_at, received_at)

        pause = 0.0
        if ask.slot is not None and answer.pause:
            until = local(answer.pause)
            known_until = max(ask.slot.paused_until, received_at)
            if until - known_until > _SAME_PAUSE:
                pause = until - received_at
            # Before the leases, which begin when it ends.
            ask.slot.block(Block.PAUSE, until)
        terms = ask.sources[0].terms
        lates = [answer.late / 1e6] + [0.0] * len(answer.waits)
        granted = [
            Lease(leases.not_too_early(local(wait), terms), late)
            for wait, late in zip(answer.waits, lates, strict=False)
        ]
        next_at = max(local(max(answer.nexts)), received_at + _SHORTEST_WAIT)
        leases.grant(granted, next_at, terms.slowest)
        for source, wait, members in zip(
            ask.sources, answer.nexts, answer.members, strict=True
        ):
            permits = source.permits
            if permits.is_joined and source is not ask.slot:
                permits.ask_at = worth_asking(local(wait), source.terms.slowest)
            if permits.leases is not None:
                permits.leases.members = max(1, members)
        return pause
