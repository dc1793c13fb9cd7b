"""Leases of shared budgets: asked for in time, no more than can be used."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4
from weakref import WeakKeyDictionary

from scrapy_politeness.core.cause import Block
from scrapy_politeness.core.leases import HORIZON, Lease, worth_asking
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.sharing.redis import Call, micros, slot_name
from scrapy_politeness.sharing.replies import Granted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.leases import Leases, LeaseTerms
    from scrapy_politeness.core.route import Route
    from scrapy_politeness.sharing.redis import Keys
    from scrapy_politeness.sharing.server_clock import ServerClock

# With so many asks open, the queue waits for answers before it asks for more slots.
_MOST_ASKS = 32

# Seconds. Who got nothing does not ask again at once.
_SHORTEST_WAIT = 0.005

# A silence that is known already is no news if it is longer by no more than this.
_SAME_SILENCE = 0.5


class Ask(NamedTuple):
    """For a slot and the budgets that its requests need, too; or for a single budget.
    ``waiting`` are the slots to be told of the answer."""

    slot: Slot | None
    budgets: tuple[Budget, ...]
    leases: Leases
    waiting: set[Slot]

    @property
    def sources(self) -> tuple[Slot | Budget, ...]:
        return self.budgets if self.slot is None else (self.slot, *self.budgets)


class Leasing:
    def __init__(
        self,
        keys: Keys,
        clock: ServerClock,
        policy: Policy,
        pending: Callable[[Slot], int],
        silenced: Callable[[Slot, float], None],
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._longest = policy.longest_pause
        self._pending = pending
        self._silenced = silenced
        self._process = uuid4().hex
        self._names: WeakKeyDictionary[Budget, str] = WeakKeyDictionary()
        self._asks: dict[Slot | Budget, Ask] = {}
        self._expected: WeakKeyDictionary[Slot | Budget, int] = WeakKeyDictionary()
        self._expect_until = -math.inf

    @property
    def is_full(self) -> bool:
        return len(self._asks) >= _MOST_ASKS

    @property
    def has_asks(self) -> bool:
        return bool(self._asks)

    def name(self, budget: Budget, name: str) -> None:
        self._names[budget] = name

    def expect(self, sources: Iterable[Slot | Budget], until: float) -> None:
        """Until then, not all who shared these budgets may be back."""
        for source in sources:
            if source.leases is not None:
                self._expected[source] = source.leases.members
        self._expect_until = until

    def want(self, route: Route, now: float) -> bool:
        """Return whether there is something new to ask for."""
        slot = route.slot
        is_new = self._add(slot, slot, route.shared, slot.leases, now)
        for budget in route.unseen:
            if self._add(budget, None, (budget,), budget.leases, now):
                is_new = True
            if budget in self._asks:
                self._asks[budget].waiting.add(slot)
        return is_new

    def _add(
        self,
        source: Slot | Budget,
        slot: Slot | None,
        budgets: tuple[Budget, ...],
        leases: Leases | None,
        now: float,
    ) -> bool:
        if leases is None or not source.is_joined or leases.is_asked:
            return False
        if slot is not None:
            leases.need(budgets)
        if not leases.wants_more(now):
            return False
        leases.is_asked = True
        self._asks[source] = Ask(slot, budgets, leases, {slot} if slot else set())
        return True

    def forget_asks(self) -> None:
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
        revision = 0 if slot is None else revision_of(slot)
        silence = 0.0
        if slot is not None and revision < 0:
            # The server may not know of it: it is new here, or has been away.
            silence = max(0.0, slot.paused_until - now)
        finished = -1
        if slot is not None and slot.finished_at is not None:
            finished = micros(now - slot.finished_at)
        arguments: list[str | int] = [
            self._process,
            self._how_many(ask),
            micros(HORIZON),
            revision,
            micros(self._longest),
            micros(min(silence, self._longest)),
            finished,
        ]
        keys: list[str] = []
        for source in ask.sources:
            own = self._keys.of(self._name(source))
            keys += [] if keys else [own.lore, own.gist]
            keys += [own.times, own.members]
            terms = source.terms
            known = slot is not None and source is slot and revision > 0
            spacing = terms.fastest if known else terms.interval
            arguments += [micros(spacing), micros(terms.gap), terms.burst]
            is_known = now < self._expect_until
            arguments.append(self._expected.get(source, 1) if is_known else 1)
        return Call("grant", keys, arguments)

    def _name(self, source: Slot | Budget) -> str:
        if isinstance(source, Slot):
            return slot_name(source.key)
        return self._names[source]

    def _how_many(self, ask: Ask) -> int:
        """An equal share of what there is up to the horizon, but no more than there is
        a use for."""
        terms: LeaseTerms = ask.sources[0].terms
        fair = math.ceil(HORIZON / terms.slowest / ask.leases.members)
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
    ) -> int:
        """Return how many were granted."""
        there, _, cuts, _, silence, late, waits, nexts, members = answer
        leases = ask.leases
        leases.is_asked = False
        leases.members = max(1, members[0])
        if leases.is_blocked:
            return 0
        leases.cuts = cuts

        def local(wait: int) -> float:
            return self._clock.local(there, wait / 1e6, sent_at, received_at)

        if ask.slot is not None and silence:
            # Before the leases, which begin when it ends.
            self._be_silent(ask.slot, local(silence), received_at)
        lates = [late / 1e6] + [0.0] * len(waits)
        terms = ask.sources[0].terms
        granted = [
            Lease(leases.not_too_early(local(wait), terms), late)
            for wait, late in zip(waits, lates, strict=False)
        ]
        next_at = max(local(max(nexts)), received_at + _SHORTEST_WAIT)
        leases.grant(granted, next_at, terms.slowest)
        for budget, wait, number in zip(
            ask.budgets,
            nexts[-len(ask.budgets) :],
            members[-len(ask.budgets) :],
            strict=False,
        ):
            budget.told(worth_asking(local(wait), budget.terms.slowest))
            if budget.leases is not None:
                budget.leases.members = max(1, number)
        return len(granted)

    def _be_silent(self, slot: Slot, until: float, now: float) -> None:
        is_news = until - max(slot.paused_until, now) > _SAME_SILENCE
        if until > slot.paused_until:
            slot.block(Block.PAUSE, until)
        if is_news:
            self._silenced(slot, until - now)
