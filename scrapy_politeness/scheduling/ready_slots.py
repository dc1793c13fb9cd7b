"""Which slot may send next."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.core.time_heap import TimeHeap

if TYPE_CHECKING:
    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.scheduling.registry import SlotRegistry
    from scrapy_politeness.sharing.port import Sharing
    from scrapy_politeness.storage.backlog import Backlog

# Seconds.
_A_MOMENT = 0.01
# After which to look again whether a budget has room.
_LOOK_AGAIN = 0.1


class _Line(NamedTuple):
    budget: Budget
    slots: deque[str]


class ReadySlots:
    """Slots take turns: the one that has been ready longest goes first.

    A slot whose server address, or whose host with several slots, has no permit left
    waits in the line of that budget, so that thousands of slots at one address cost no
    more than one.
    """

    def __init__(
        self, registry: SlotRegistry, sharing: Sharing, backlog: Backlog
    ) -> None:
        self._registry = registry
        self._sharing = sharing
        self._is_remote = sharing.is_remote
        self._backlog = backlog
        # By slot, by slot where nothing limits it, and by budget with a line. The first
        # two differ only where there is something that all limited slots wait for.
        self._limited = TimeHeap()
        has_common = registry.overall is not None or sharing.is_remote
        self._free = TimeHeap() if has_common else self._limited
        self._has_common = has_common
        self._budgets = TimeHeap()
        self._lines: dict[str, _Line] = {}
        self._in_line: set[str] = set()

    def add(self, slot_key: str, now: float) -> None:
        """The slot has got requests; whether it may send is looked up when its turn
        comes."""
        if slot_key not in self._in_line:
            self._heap_of(slot_key).put_due(slot_key, now)

    def plan(self, slot_key: str, now: float) -> float:
        """The slot has requests, and may be ready at another time than before. Return
        that time."""
        if slot_key in self._in_line:
            return math.inf
        heap = self._heap_of(slot_key)
        ready_at = self._claimable_at(slot_key, now)
        if ready_at > now:
            heap.put(slot_key, ready_at)
        else:
            # Never in the past: a slot that was idle for long does not go first.
            heap.put_due(slot_key, now)
        return ready_at

    @property
    def _are_independent(self) -> bool:
        """Tell whether no slot has to wait for another."""
        return not self._has_common and not self._lines

    def changed(self, slot_key: str) -> float:
        """The slot, or what it shares with others, may be ready at another time than
        planned. Return when a slot may send because of that."""
        is_ready = slot_key in self._backlog.ready
        if not is_ready and self._are_independent:
            return math.inf
        now = time.monotonic()
        ready_at = math.inf
        if self._lines:
            for budget in self._registry.lined_up_for(slot_key):
                if budget.key in self._lines:
                    self._budgets.put(budget.key, _claimable_at(budget, now))
        if is_ready:
            ready_at = self.plan(slot_key, now)
        return ready_at if self._are_independent else self.next_time

    def over(self, slot_key: str) -> None:
        """The slot has nothing to send."""
        self._heap_of(slot_key).discard(slot_key)

    def sent(self, slot_key: str, now: float) -> None:
        """The slot has just sent, and goes behind those that are ready."""
        self.over(slot_key)
        if slot_key in self._backlog.ready:
            self.plan(slot_key, now)

    @property
    def next_time(self) -> float:
        """When a slot may send at the earliest, unless an answer comes before."""
        if self._are_independent:
            return self._limited.next_time
        if self._sharing.is_busy:
            return self._free.next_time
        limited = min(self._limited.next_time, self._budgets.next_time)
        overall = self._registry.overall
        if overall is not None:
            limited = max(limited, overall.claimable_at)
        return min(limited, self._free.next_time)

    def next_slot(self, now: float) -> str | None:
        overall = self._registry.overall
        held = overall is not None and overall.claimable_at > now
        while True:
            first = self._limited
            if self._has_common or self._lines:
                first = self._free if held else self._first_heap()
            key = first.due(now)
            if key is None:
                return None
            slot_key = self._of_line(key, now) if first is self._budgets else key
            if slot_key is not None and self._may_go(slot_key, now, first):
                return slot_key
            if self._sharing.is_busy:
                return None

    def _first_heap(self) -> TimeHeap:
        first = self._limited
        at = first.next_time
        if self._lines and self._budgets.next_time < at:
            first, at = self._budgets, self._budgets.next_time
        return self._free if self._free.next_time < at else first

    def _heap_of(self, slot_key: str) -> TimeHeap:
        is_free = self._has_common and self._registry.is_free(slot_key)
        return self._free if is_free else self._limited

    def _claimable_at(self, slot_key: str, now: float) -> float:
        """Return from when on a request of the slot may be handed out."""
        known = self._registry.slots.get(slot_key)
        if known is None:
            overall = self._registry.overall
            if overall is None or self._registry.is_free(slot_key):
                return -math.inf
            return overall.permits.ask_at
        if known.is_dead and known.is_given_up(now):
            return -math.inf
        if not known.permits.is_joined:
            return known.claimable_at
        return max(known.claimable_at, self._reservable_at(known))

    def _reservable_at(self, slot: Slot) -> float:
        """Return when the budgets that a slot shares with others may have something
        for it, if it needs that."""
        leases = slot.permits.leases
        if leases is not None and len(leases) > slot.claims:
            return -math.inf
        route = self._registry.queue_route(slot.key)
        budgets = () if route is None else route.shared
        return max((b.permits.ask_at for b in budgets), default=-math.inf)

    def _may_go(self, slot_key: str, now: float, found_in: TimeHeap) -> bool:
        if slot_key not in self._backlog.ready:
            self.over(slot_key)
            return False
        ready_at = self._claimable_at(slot_key, now)
        if ready_at > now:
            self._heap_of(slot_key).put(slot_key, ready_at)
            return False
        if self._is_remote and not self._has_permit(slot_key, now):
            # At least a moment later, or the search would never end.
            at = max(now + _A_MOMENT, self._claimable_at(slot_key, now))
            self._heap_of(slot_key).put(slot_key, at)
            return False
        if not self._registry.has_lines or self._is_given_up(slot_key, now):
            return True
        if self._has_common and found_in is self._free:
            return True
        for budget in self._registry.lined_up_for(slot_key):
            is_newcomer = found_in is self._limited and budget.key in self._lines
            if is_newcomer or budget.claimable_at > now:
                self._join_line(slot_key, budget, now)
                return False
        return True

    def _has_permit(self, slot_key: str, now: float) -> bool:
        """Tell whether a request of this slot, which is due, has a permit, or needs
        none to be handed out. If not, one is reserved, and the slot announces it."""
        if self._registry.is_free(slot_key):
            return True
        slot = self._registry.seen(slot_key)
        if slot is None and self._registry.overall is not None:
            # Its own budget is untouched, but that of the whole crawl may not be.
            slot = self._registry.slot(slot_key)
        # On a long way, a lease would lapse; what is given up is not sent.
        if slot is None or slot.way or slot.is_given_up(now):
            return True
        leases = slot.permits.leases
        route = self._registry.queue_route(slot_key)
        if leases is None or not slot.permits.is_joined or route is None:
            return True
        if leases.has_lease_for(slot.claims, now, route.shared):
            return True
        if not self._sharing.is_busy:
            self._sharing.reserve(route)
        return False

    def _is_given_up(self, slot_key: str, now: float) -> bool:
        known = self._registry.slots.get(slot_key)
        return known is not None and known.is_given_up(now)

    def _join_line(self, slot_key: str, budget: Budget, now: float) -> None:
        self.over(slot_key)
        self._in_line.add(slot_key)
        line = self._lines.setdefault(budget.key, _Line(budget, deque()))
        line.slots.append(slot_key)
        self._budgets.put(budget.key, _claimable_at(budget, now))

    def _of_line(self, key: str, now: float) -> str | None:
        """Return the first in a budget's line, if it may go."""
        budget, slots = self._lines[key]
        ready_at = _claimable_at(budget, now)
        if ready_at > now:
            self._budgets.put(key, ready_at)
            return None
        slot_key = slots.popleft()
        self._in_line.discard(slot_key)
        if not slots:
            del self._lines[key]
            self._budgets.discard(key)
        self._limited.put(slot_key, now)
        is_still_needed = budget in self._registry.lined_up_for(slot_key)
        return slot_key if is_still_needed else None


def _claimable_at(budget: Budget, now: float) -> float:
    """A slot that is not in line here may make room in it."""
    at = budget.claimable_at
    return now + _LOOK_AGAIN if at == math.inf else at
