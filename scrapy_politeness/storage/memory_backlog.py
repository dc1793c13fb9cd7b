"""Requests that wait in memory, slot by slot."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from scrapy.pqueues import ScrapyPriorityQueue

from scrapy_politeness.storage.backlog import Counted
from scrapy_politeness.storage.marks import Where

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.pqueues import QueueProtocol

    from scrapy_politeness.storage.marks import Placement

    # Whether it is the last, the negative priority, the band, the order of arrival.
    _Key = tuple[bool, int, int, int]

# Bands among requests of one priority.
_IN_FRONT, _AS_USUAL, _BEHIND = range(3)


@dataclass(slots=True, eq=False)
class _Moved:
    """A request that is not where new ones are. ``key`` is its present place in the
    order of its slot, None while it is held; ``request`` is None once it is gone."""

    slot_key: str
    request: Request | None
    early: bool
    failing: bool
    key: _Key | None = None


class _Usual(ScrapyPriorityQueue):
    @property
    def first_priority(self) -> int | None:
        """Of the next one to pop; the lowest comes first."""
        first = self.curprio
        if first in self.queues or first in self._start_queues:
            return first
        # Where there are start requests, it is set only with the next pop.
        return min((*self.queues, *self._start_queues), default=None)


@dataclass(slots=True)
class _Slot:
    """What may be popped: in one of Scrapy's own priority queues, and the ``moved``
    ones in a heap. Outdated entries stay there until they come first."""

    usual: _Usual
    moved: list[tuple[_Key, _Moved]] = field(default_factory=list)

    def add(self, moved: _Moved, band: int, order: int, *, last: bool = False) -> None:
        assert moved.request is not None
        moved.key = (last, -moved.request.priority, band, order)
        heappush(self.moved, (moved.key, moved))

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


class MemoryBacklog(Counted):
    def __init__(
        self,
        crawler: Crawler,
        queue_cls: type[QueueProtocol],
        start_queue_cls: type[QueueProtocol] | None,
    ) -> None:
        super().__init__()
        self._crawler = crawler
        self._queue_cls = queue_cls
        self._start_queue_cls = start_queue_cls
        self._slots: dict[str, _Slot] = {}
        # One that has become empty is as good as new.
        self._spare: _Slot | None = None
        self._order = count()
        # When each goes to the front; some are gone by then.
        self._ends: list[tuple[float, int, _Moved]] = []

    def push(
        self, slot_key: str, request: Request, placement: Placement, now: float
    ) -> None:
        slot = self._slots.get(slot_key) or self._spare or self._new_slot()
        where = placement.where
        if where is Where.USUAL:
            slot.usual.push(request)  # may fail
        else:
            moved = _Moved(slot_key, request, placement.early, placement.failing)
            order = next(self._order)
            if where is not Where.HELD:
                band = _IN_FRONT if where is Where.FRONT else _BEHIND
                slot.add(moved, band, order, last=where is Where.LAST)
            if where is not Where.FRONT:
                heappush(self._ends, (now + placement.seconds, order, moved))
        self._slots[slot_key] = slot
        if slot is self._spare:
            self._spare = None
        self._count_pushed(slot_key, placement)

    def pop(self, slot_key: str) -> Request | None:
        slot = self._slots[slot_key]
        moved = slot.next_moved() if slot.moved else None
        if moved is None:
            request = slot.usual.pop()
        else:
            heappop(slot.moved)
            request, moved.request, moved.key = moved.request, None, None
        self._count_gone(self.ready, slot_key)
        if slot_key not in self.ready and slot_key not in self.held:
            self._spare = self._slots.pop(slot_key)
        return request

    def peek(self, slot_key: str) -> Request | None:
        slot = self._slots[slot_key]
        moved = slot.next_moved()
        return slot.usual.peek() if moved is None else moved.request

    def release(self, now: float) -> Collection[str]:
        ended = []
        while self._ends and self._ends[0][0] <= now:
            ended.append(heappop(self._ends)[2])
        return self._release(ended)

    def release_early(self) -> Collection[str]:
        early = sorted(end for end in self._ends if end[2].early)
        self._ends = [end for end in self._ends if not end[2].early]
        heapify(self._ends)
        return self._release(moved for _, _, moved in early)

    def _release(self, ended: Iterable[_Moved]) -> Collection[str]:
        slots = []
        for moved in ended:
            if moved.request is None:
                continue
            if moved.key is None and self._count_released(
                moved.slot_key, early=moved.early
            ):
                slots.append(moved.slot_key)
            self._slots[moved.slot_key].add(moved, _IN_FRONT, next(self._order))
        return slots

    @property
    def next_release(self) -> float:
        while self._ends and self._ends[0][2].request is None:
            heappop(self._ends)
        return self._ends[0][0] if self._ends else math.inf

    def has_other(self, slot_key: str) -> bool:
        return slot_key in self._slots and self._slots[slot_key].has_other()

    def done(self, request: Request) -> None:
        pass

    def tidy(self) -> None:
        pass

    def close(self) -> None:
        for slot in self._slots.values():
            slot.usual.close()

    def _new_slot(self) -> _Slot:
        start = self._start_queue_cls
        return _Slot(_Usual(self._crawler, self._queue_cls, "", start_queue_cls=start))
