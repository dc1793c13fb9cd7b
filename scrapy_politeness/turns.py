"""Which slot's turn it is."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from scrapy_politeness.core.agenda import Agenda

if TYPE_CHECKING:
    from scrapy_politeness.backlog import Backlog
    from scrapy_politeness.conduct import Conduct
    from scrapy_politeness.core.budget import Budget

# Seconds.
_A_MOMENT = 0.01


class Turns:
    """Slots take turns: the one that has been ready longest goes first.

    A slot whose server address has no permit left waits in that address's line, so
    that thousands of slots at one address cost no more than one.
    """

    def __init__(self, conduct: Conduct, backlog: Backlog) -> None:
        self._conduct = conduct
        self._layers = conduct.layers
        self._permits = conduct.permits
        self._backlog = backlog
        # By slot, by slot where nothing limits it, and by address.
        self._limited = Agenda()
        self._free = Agenda()
        self._servers = Agenda()
        self._lines: dict[str, deque[str]] = {}
        self._in_line: set[str] = set()

    def plan(self, slot: str, now: float) -> None:
        """The slot has requests, and may be ready at another time than before."""
        if slot in self._in_line:
            return
        agenda = self._agenda_of(slot)
        ready_at = self._conduct.claimable_at(slot)
        if ready_at <= now and agenda.time_of(slot) <= now:
            return  # it has its place in line
        # Never in the past: who has been idle for long has no right to go first.
        agenda.put(slot, max(now, ready_at))

    def server_changed(self, slot: str) -> None:
        """A request of this slot no longer counts at its address."""
        server = self._layers.server_of(slot)
        if server is not None and server.key in self._lines:
            self._servers.put(server.key, server.claimable_at)

    def over(self, slot: str) -> None:
        """The slot has had its turn."""
        self._agenda_of(slot).discard(slot)

    @property
    def next_time(self) -> float:
        """When there may be a turn, at the earliest, if no answer comes before."""
        if self._permits.asks_enough:
            return self._free.next_time
        limited = min(self._limited.next_time, self._servers.next_time)
        overall = self._layers.overall
        if overall is not None:
            limited = max(limited, overall.claimable_at)
        return min(limited, self._free.next_time)

    def next_slot(self, now: float) -> str | None:
        overall = self._layers.overall
        held = overall is not None and overall.claimable_at > now
        while True:
            first = self._free if held else self._first_agenda()
            key = first.due(now)
            if key is None:
                return None
            slot = self._of_line(key, now) if first is self._servers else key
            if slot is not None and self._may_go(slot, now, first):
                return slot
            if self._permits.asks_enough:
                return None

    def _first_agenda(self) -> Agenda:
        first, at = self._limited, self._limited.next_time
        if self._lines and self._servers.next_time < at:
            first, at = self._servers, self._servers.next_time
        return self._free if self._free.next_time < at else first

    def _agenda_of(self, slot: str) -> Agenda:
        return self._free if self._layers.is_free(slot) else self._limited

    def _may_go(self, slot: str, now: float, found_in: Agenda) -> bool:
        if not self._backlog.has_ready(slot):
            self.over(slot)
            return False
        ready_at = self._conduct.claimable_at(slot)
        if ready_at > now:
            self._agenda_of(slot).put(slot, ready_at)
            return False
        if self._conduct.is_beyond_hope(slot):
            return True  # it needs no permit, since it will not be sent
        if not self._permits.may_hand_out(slot, now):
            # At least a moment later, or the search would find it for ever.
            at = max(now + _A_MOMENT, self._conduct.claimable_at(slot))
            self._agenda_of(slot).put(slot, at)
            return False
        server = self._layers.server_of(slot)
        if server is None or found_in is not self._limited:
            return True
        if server.key not in self._lines and server.claimable_at <= now:
            return True
        self._join_line(slot, server)
        return False

    def _join_line(self, slot: str, server: Budget) -> None:
        self.over(slot)
        self._in_line.add(slot)
        self._lines.setdefault(server.key, deque()).append(slot)
        self._servers.put(server.key, server.claimable_at)

    def _of_line(self, address: str, now: float) -> str | None:
        """Return the first in an address's line, if that may go."""
        ready_at = self._layers.server_at(address).claimable_at
        if ready_at > now:
            self._servers.put(address, ready_at)
            return None
        line = self._lines[address]
        slot = line.popleft()
        self._in_line.discard(slot)
        if not line:
            del self._lines[address]
            self._servers.discard(address)
        self._limited.put(slot, now)
        server = self._layers.server_of(slot)
        return slot if server is not None and server.key == address else None
