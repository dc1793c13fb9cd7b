"""Which slot may send next."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from scrapy_politeness.core.time_heap import TimeHeap

if TYPE_CHECKING:
    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.scheduling.permits import Permits
    from scrapy_politeness.scheduling.registry import SlotRegistry
    from scrapy_politeness.storage.backlog import Backlog

# Seconds.
_A_MOMENT = 0.01


class ReadySlots:
    """Slots take turns: the one that has been ready longest goes first.

    A slot whose server address has no permit left waits in that address's line, so
    that thousands of slots at one address cost no more than one.
    """

    def __init__(
        self, registry: SlotRegistry, permits: Permits | None, backlog: Backlog
    ) -> None:
        self._registry = registry
        self._permits = permits
        self._backlog = backlog
        # By slot, by slot where nothing limits it, and by address. The first two differ
        # only where there is something that all limited slots wait for.
        self._limited = TimeHeap()
        has_common = registry.overall is not None or permits is not None
        self._free = TimeHeap() if has_common else self._limited
        self._servers = TimeHeap()
        self._lines: dict[str, deque[str]] = {}
        self._in_line: set[str] = set()

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
        return self._free is self._limited and not self._lines

    def changed(self, slot_key: str, now: float) -> float:
        """The slot, or what it shares with others, may be ready at another time than
        planned. Return when a slot may send because of that."""
        ready_at = math.inf
        if self._lines:
            server = self._registry.server_of(slot_key)
            if server is not None and server.key in self._lines:
                self._servers.put(server.key, server.claimable_at)
        if slot_key in self._backlog.ready:
            ready_at = self.plan(slot_key, now)
        return ready_at if self._are_independent else self.next_time

    def over(self, slot_key: str) -> None:
        """The slot has nothing to send, or has just sent."""
        self._heap_of(slot_key).discard(slot_key)

    @property
    def next_time(self) -> float:
        """When a slot may send at the earliest, unless an answer comes before."""
        if self._are_independent:
            return self._limited.next_time
        if self._permits is not None and self._permits.asks_enough:
            return self._free.next_time
        limited = min(self._limited.next_time, self._servers.next_time)
        overall = self._registry.overall
        if overall is not None:
            limited = max(limited, overall.claimable_at)
        return min(limited, self._free.next_time)

    def next_slot(self, now: float) -> str | None:
        overall = self._registry.overall
        held = overall is not None and overall.claimable_at > now
        while True:
            first = self._free if held else self._first_heap()
            key = first.due(now)
            if key is None:
                return None
            slot_key = self._of_line(key, now) if first is self._servers else key
            if slot_key is not None and self._may_go(slot_key, now, first):
                return slot_key
            if self._permits is not None and self._permits.asks_enough:
                return None

    def _first_heap(self) -> TimeHeap:
        first = self._limited
        if self._are_independent:
            return first
        at = first.next_time
        if self._lines and self._servers.next_time < at:
            first, at = self._servers, self._servers.next_time
        return self._free if self._free.next_time < at else first

    def _heap_of(self, slot_key: str) -> TimeHeap:
        if self._free is self._limited:
            return self._limited
        return self._free if self._registry.is_free(slot_key) else self._limited

    def _claimable_at(self, slot_key: str, now: float) -> float:
        """Return from when on a request of the slot may be handed out."""
        known = self._registry.slots.get(slot_key)
        if known is not None and known.is_dead and known.is_given_up(now):
            return -math.inf
        if self._permits is not None and not self._registry.is_free(slot_key):
            return self._permits.claimable_at(known)
        return -math.inf if known is None else known.claimable_at

    def _may_go(self, slot_key: str, now: float, found_in: TimeHeap) -> bool:
        if slot_key not in self._backlog.ready:
            self.over(slot_key)
            return False
        ready_at = self._claimable_at(slot_key, now)
        if ready_at > now:
            self._heap_of(slot_key).put(slot_key, ready_at)
            return False
        if self._permits is not None and not self._is_paid_for(slot_key, now):
            # At least a moment later, or the search would never end.
            at = max(now + _A_MOMENT, self._claimable_at(slot_key, now))
            self._heap_of(slot_key).put(slot_key, at)
            return False
        if not self._registry.has_servers or self._is_given_up(slot_key, now):
            return True
        server = self._registry.server_of(slot_key)
        if server is None or found_in is not self._limited:
            return True
        if server.key not in self._lines and server.claimable_at <= now:
            return True
        self._join_line(slot_key, server)
        return False

    def _is_paid_for(self, slot_key: str, now: float) -> bool:
        # What will not be sent needs no permit.
        assert self._permits is not None
        if self._is_given_up(slot_key, now):
            return True
        return self._permits.may_hand_out(slot_key, now)

    def _is_given_up(self, slot_key: str, now: float) -> bool:
        known = self._registry.slots.get(slot_key)
        return known is not None and known.is_given_up(now)

    def _join_line(self, slot_key: str, server: Budget) -> None:
        self.over(slot_key)
        self._in_line.add(slot_key)
        self._lines.setdefault(server.key, deque()).append(slot_key)
        self._servers.put(server.key, server.claimable_at)

    def _of_line(self, address: str, now: float) -> str | None:
        """Return the first in an address's line, if it may go."""
        ready_at = self._registry.server_at(address).claimable_at
        if ready_at > now:
            self._servers.put(address, ready_at)
            return None
        line = self._lines[address]
        slot_key = line.popleft()
        self._in_line.discard(slot_key)
        if not line:
            del self._lines[address]
            self._servers.discard(address)
        self._limited.put(slot_key, now)
        server = self._registry.server_of(slot_key)
        return slot_key if server is not None and server.key == address else None
