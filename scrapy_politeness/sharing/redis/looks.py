"""When to look at a budget again."""

from __future__ import annotations

import heapq
import math
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.slot import Slot


class Looks:
    """At each slot or budget, there is a look when more should be asked for, or when
    it is time to call at the latest, whichever is earlier."""

    def __init__(self) -> None:
        self._call_at: WeakKeyDictionary[Slot | Budget, float] = WeakKeyDictionary()
        self._look_at: WeakKeyDictionary[Slot | Budget, float] = WeakKeyDictionary()
        # Those that were planned otherwise since then are still in here.
        self._heap: list[tuple[float, int, ref[Slot | Budget]]] = []
        self._order = count()

    @property
    def next_at(self) -> float:
        while self._heap:
            at, _, source_ref = self._heap[0]
            source = source_ref()
            if source is not None and self._look_at.get(source) == at:
                return at
            heapq.heappop(self._heap)
        return math.inf

    def due(self, now: float) -> Iterator[Slot | Budget]:
        while self.next_at <= now:
            source = heapq.heappop(self._heap)[2]()
            assert source is not None
            del self._look_at[source]
            yield source

    def is_call_due(self, source: Slot | Budget, now: float) -> bool:
        return self._call_at.get(source, math.inf) <= now

    def plan(self, source: Slot | Budget, ask_at: float = math.inf) -> None:
        at = min(ask_at, self._call_at.get(source, math.inf))
        if at < math.inf:
            self._look_at[source] = at
            heapq.heappush(self._heap, (at, next(self._order), ref(source)))

    def plan_call(self, source: Slot | Budget, at: float) -> None:
        self._call_at[source] = at
        self.plan(source)

    def hasten_call(self, source: Slot | Budget, at: float) -> None:
        """Call then, unless a call is planned for an earlier time."""
        self.plan_call(source, min(at, self._call_at.get(source, math.inf)))

    def forget_call(self, source: Slot | Budget) -> None:
        self._call_at.pop(source, None)

    def clear(self) -> None:
        self._heap.clear()
        self._look_at.clear()
        self._call_at.clear()
