"""A heap of keys by the time at which each is due."""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush

# Outdated entries stay in the heap until their time comes; past this many for each one
# that counts, they are removed together.
_MOST_STALE = 2
_SMALL = 64


class TimeHeap:
    """Has each key once, at one time, or not at all; ``put`` moves a key that is there
    already. Of keys due at the same time, the one put first comes first. All operations
    are O(log keys), amortised.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._current: dict[str, tuple[float, int, str]] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._current)

    def put(self, key: str, at: float) -> None:
        """Infinity removes the key."""
        entry = self._current.get(key)
        if entry is not None and at == entry[0]:
            return
        if at == math.inf:
            self.discard(key)
            return
        self._order += 1
        entry = (at, self._order, key)
        self._current[key] = entry
        heappush(self._heap, entry)
        if len(self._heap) > _SMALL + (1 + _MOST_STALE) * len(self._current):
            self._heap = list(self._current.values())
            heapify(self._heap)

    def put_due(self, key: str, now: float) -> None:
        """The key is due now, at the latest."""
        entry = self._current.get(key)
        if entry is None or entry[0] > now:
            self.put(key, now)

    def discard(self, key: str) -> None:
        self._current.pop(key, None)

    def due(self, now: float) -> str | None:
        """Return the key that has been due longest, and leave it where it is."""
        heap, current = self._heap, self._current
        while heap and heap[0][0] <= now:
            if current.get(heap[0][2]) is heap[0]:
                return heap[0][2]
            heappop(heap)
        return None

    @property
    def next_time(self) -> float:
        heap = self._heap
        while heap and self._current.get(heap[0][2]) is not heap[0]:
            heappop(heap)
        return heap[0][0] if heap else math.inf
