"""A mapping that forgets what was not used for longest."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_K = TypeVar("_K")
_V = TypeVar("_V")

# Of those that may not go yet, so many are passed over with each new one: enough to
# find the others in time, few enough never to be felt.
_MOST_PASSED_OVER = 8


class Memory(Generic[_K, _V]):
    """Keeps the ``most`` entries used last, and those that ``may_go`` returns False
    for, however many they are."""

    def __init__(self, most: int, may_go: Callable[[_K, _V], bool]) -> None:
        self._most = most
        self._may_go = may_go
        self._entries: OrderedDict[_K, _V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[_K]:
        return iter(self._entries)

    def __contains__(self, key: _K) -> bool:
        return key in self._entries

    def __getitem__(self, key: _K) -> _V:
        self._entries.move_to_end(key)
        return self._entries[key]

    def __setitem__(self, key: _K, value: _V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._make_room()

    def __delitem__(self, key: _K) -> None:
        del self._entries[key]

    def get(self, key: _K) -> _V | None:
        """Look an entry up without using it."""
        return self._entries.get(key)

    def _make_room(self) -> None:
        entries = self._entries
        newest = next(reversed(entries))
        for _ in range(_MOST_PASSED_OVER):
            oldest = next(iter(entries))
            if oldest == newest or len(entries) <= self._most:
                return
            if self._may_go(oldest, entries[oldest]):
                del entries[oldest]
            else:
                entries.move_to_end(oldest)
