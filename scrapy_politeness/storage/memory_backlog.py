"""Requests that wait in memory, slot by slot."""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from scrapy.pqueues import ScrapyPriorityQueue

from scrapy_politeness.storage.placement import Where

if TYPE_CHECKING:
    from collections.abc import Collection

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.pqueues import QueueProtocol

    from scrapy_politeness.storage.placement import Placement

# Among requests of one priority.
_IN_FRONT, _AS_USUAL, _BEHIND = range(3)


class _Moved:
    """A request that is not where new ones are. ``key`` is its present place in the
    order of its slot, None while it is held and once it is gone."""

    __slots__ = ("early", "failing", "key", "request", "slot")

    def __init__(self, slot_key: str, request: Request, *, failing: bool) -> None:
        self.slot = slot_key
        self.failing = failing
        self.request: Request | None = request
        self.early = False
        self.key: tuple[bool, int, int, int] | None = None


class _Usual(ScrapyPriorityQueue):
    @property
    def first_priority(self) -> int | None:
        """Of the next one to pop; the lowest comes first."""
        first = self.curprio
        if first in self.queues or first in self._start_queues:
            return first
        # Where there are start requests, it is set only with the next pop.
        return min((*self.queues, *self._start_queues), default=None)


class _Slot:
    """What is ``ready`` to pop: in one of Scrapy's own priority queues, and the
    ``moved`` ones in a heap. Entries that were overtaken stay there until they come
    first."""

    __slots__ = ("held", "moved", "ready", "usual")

    def __init__(self, usual: _Usual) -> None:
        self.usual = usual
        self.moved: list[tuple[tuple[bool, int, int, int], _Moved]] = []
        self.ready = 0
        self.held = 0

    def add(self, moved: _Moved, place: int, order: int, *, last: bool) -> None:
        assert moved.request is not None
        moved.key = (last, -moved.request.priority, place, order)
        heappush(self.moved, (moved.key, moved))

    @property
    def has_other(self) -> bool:
        return self.usual.first_priority is not None or any(
            moved.key == key and not moved.failing for key, moved in self.moved
        )

    def next_moved(self) -> _Moved | None:
        """Return the moved one that comes next, None if a usual one does."""
        while self.moved and self.moved[0][1].key != self.moved[0][0]:
            heappop(self.moved)
        if not self.moved:
            return None
        key, moved = self.moved[0]
        first = self.usual.first_priority
        if first is not None and (False, first, _AS_USUAL) < key[:3]:
            return None
        return moved


class MemoryBacklog:
    def __init__(
        self,
        crawler: Crawler,
        queue_cls: type[QueueProtocol],
        start_queue_cls: type[QueueProtocol] | None,
    ) -> None:
        self._crawler = crawler
        self._queue_cls = queue_cls
        self._start_queue_cls = start_queue_cls
        self._slots: dict[str, _Slot] = {}
        self._size = 0
        self._held = 0
        self._order = count()
        # When each goes to the front; some are gone by then.
        self._ends: list[tuple[float, int, _Moved]] = []
        # How many are held that may go early.
        self._early = 0

    def push(
        self, slot_key: str, request: Request, placement: Placement, now: float
    ) -> None:
        waiting = self._slots.get(slot_key) or self._new_slot()
        if placement.where is Where.USUAL:
            waiting.usual.push(request)  # may fail
        else:
            moved = _Moved(slot_key, request, failing=placement.failing)
            self._place(waiting, moved, placement, now)
        self._slots[slot_key] = waiting
        self._size += 1
        if placement.is_held:
            waiting.held += 1
            self._held += 1
        else:
            waiting.ready += 1

    def _place(
        self, waiting: _Slot, moved: _Moved, placement: Placement, now: float
    ) -> None:
        where = placement.where
        order = next(self._order)
        if where is Where.HELD:
            moved.early = placement.early
            self._early += moved.early
        else:
            place = _IN_FRONT if where is Where.FRONT else _BEHIND
            waiting.add(moved, place, order, last=where is Where.LAST)
        if placement.ends:
            heappush(self._ends, (now + placement.seconds, order, moved))

    def pop(self, slot_key: str) -> Request | None:
        waiting = self._slots[slot_key]
        moved = waiting.next_moved()
        if moved is None:
            request = waiting.usual.pop()
        else:
            heappop(waiting.moved)
            request, moved.request, moved.key = moved.request, None, None
        self._size -= 1
        waiting.ready -= 1
        if not waiting.ready and not waiting.held:
            del self._slots[slot_key]
        return request

    def peek(self, slot_key: str) -> Request | None:
        waiting = self._slots[slot_key]
        moved = waiting.next_moved()
        return waiting.usual.peek() if moved is None else moved.request

    def release(self, now: float) -> Collection[str]:
        slots: list[str] = []
        while self._ends and self._ends[0][0] <= now:
            self._release(heappop(self._ends)[2], slots)
        return slots

    @property
    def has_early(self) -> bool:
        return bool(self._early)

    def release_early(self, now: float) -> Collection[str]:
        slots: list[str] = []
        if self._early:
            early = [end for end in self._ends if end[2].early]
            self._ends = [end for end in self._ends if not end[2].early]
            heapify(self._ends)
            for _, _, moved in sorted(early, key=lambda end: end[:2]):
                self._release(moved, slots)
        return slots

    def _release(self, moved: _Moved, slots: list[str]) -> None:
        if moved.request is None:
            return
        waiting = self._slots[moved.slot]
        if moved.key is None:
            self._early -= moved.early
            self._held -= 1
            waiting.held -= 1
            waiting.ready += 1
            if waiting.ready == 1:
                slots.append(moved.slot)
        waiting.add(moved, _IN_FRONT, next(self._order), last=False)

    @property
    def next_release(self) -> float:
        while self._ends and self._ends[0][2].request is None:
            heappop(self._ends)
        return self._ends[0][0] if self._ends else math.inf

    def slots(self) -> Collection[str]:
        return [slot_key for slot_key, waiting in self._slots.items() if waiting.ready]

    def has_ready(self, slot_key: str) -> bool:
        waiting = self._slots.get(slot_key)
        return waiting is not None and waiting.ready > 0

    def has_other(self, slot_key: str) -> bool:
        waiting = self._slots.get(slot_key)
        return waiting is not None and waiting.has_other

    @property
    def any_ready(self) -> bool:
        return self._size > self._held

    def count(self, slot_key: str) -> int:
        waiting = self._slots.get(slot_key)
        return 0 if waiting is None else waiting.ready + waiting.held

    def rest(self) -> None:
        pass

    def __contains__(self, slot_key: str) -> bool:
        return slot_key in self._slots

    def __len__(self) -> int:
        return self._size

    def close(self) -> None:
        for waiting in self._slots.values():
            waiting.usual.close()

    def _new_slot(self) -> _Slot:
        return _Slot(
            _Usual(
                self._crawler,
                self._queue_cls,
                "",
                start_queue_cls=self._start_queue_cls,
            )
        )
