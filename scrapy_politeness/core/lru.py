"""A mapping that forgets its least recently used entries."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_K = TypeVar("_K")
_V = TypeVar("_V")

# How many entries that may not go are passed over with each new one.
_MOST_PASSED_OVER = 8


class LRU(OrderedDict[_K, _V]):
    """Keeps the ``most`` entries used last, and those for which ``may_go`` returns
    False, however many they are. ``get`` does not count as use."""

    def __init__(self, most: int, may_go: Callable[[_K, _V], bool]) -> None:
        super().__init__()
        self._most = most
        self._may_go = may_go

    def __getitem__(self, key: _K) -> _V:
        self.move_to_end(key)
        return super().__getitem__(key)

    def __setitem__(self, key: _K, value: _V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self._make_room()

    def _make_room(self) -> None:
        newest = next(reversed(self))
        for _ in range(_MOST_PASSED_OVER):
            oldest = next(iter(self))
            if oldest == newest or len(self) <= self._most:
                return
            value = super().__getitem__(oldest)
            if self._may_go(oldest, value):
                del self[oldest]
            else:
                self.move_to_end(oldest)
