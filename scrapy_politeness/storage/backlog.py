"""Where requests wait until their slot may send: the contract."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Protocol

from scrapy_politeness.storage.marks import Where

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scrapy import Request

    from scrapy_politeness.storage.marks import Placement

# Raised when damaged bytes are unpickled, or when the fields of a request no longer fit
# the spider.
DAMAGE = (
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    OverflowError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
)


class Backlog(Protocol):
    """Within a slot the highest priority comes first; among equals, requests from the
    spider's callbacks come before its start requests. A ``placement`` may put a request
    elsewhere; those in front are first in, first out, and so are those behind.

    Held requests count, but cannot be popped before they are released. ``now`` is the
    monotonic clock's.
    """

    @property
    def ready(self) -> Mapping[str, int]:
        """How many requests each slot has to pop; slots without any are left out."""

    @property
    def early(self) -> int:
        """How many held requests ``release_early`` would release."""

    @property
    def next_release(self) -> float:
        """The earliest time at which there is something to release, or infinity."""

    def push(
        self, slot_key: str, request: Request, placement: Placement, now: float
    ) -> None: ...

    def pop(self, slot_key: str) -> Request | None:
        """Return None where the next one was damaged, and has been dropped."""

    def has_other(self, slot_key: str) -> bool:
        """Tell whether the slot has a request to pop that is not failing."""

    def count(self, slot_key: str) -> int:
        """Return how many requests the slot has, held ones included."""

    def release(self, now: float) -> Collection[str]:
        """Move requests whose time has come to the front. Return the slots that had
        nothing to pop before."""

    def release_early(self) -> Collection[str]:
        """The same for those that may go when there is nothing else to do."""

    def done(self, request: Request) -> None:
        """The engine has ended its work on a request. Others than those that were
        popped are ignored."""

    def tidy(self) -> None:
        """Called when nothing may be sent."""

    def __len__(self) -> int: ...


class OwnBacklog(Backlog, Protocol):
    """Used by this process alone."""

    def peek(self, slot_key: str) -> Request | None: ...

    def close(self) -> None: ...


class Counted:
    """The counts of a backlog that this process alone uses."""

    def __init__(self) -> None:
        # Slots whose count is 0 are left out.
        self.ready: dict[str, int] = {}
        self.held: dict[str, int] = {}
        self.early = 0
        self._size = 0

    def count(self, slot_key: str) -> int:
        return self.ready.get(slot_key, 0) + self.held.get(slot_key, 0)

    def __len__(self) -> int:
        return self._size

    def _count_pushed(self, slot_key: str, placement: Placement) -> None:
        self._size += 1
        counts = self.ready
        if placement.where is Where.HELD:
            counts = self.held
            self.early += placement.early
        counts[slot_key] = counts.get(slot_key, 0) + 1

    def _count_gone(
        self, counts: dict[str, int], slot_key: str, number: int = 1
    ) -> None:
        self._size -= number
        counts[slot_key] = left = counts.get(slot_key, 0) - number
        if left <= 0:
            del counts[slot_key]

    def _count_released(self, slot_key: str, *, early: bool) -> bool:
        """Return whether the slot had nothing to pop before."""
        self._count_gone(self.held, slot_key)
        self._size += 1
        self.early -= early
        self.ready[slot_key] = self.ready.get(slot_key, 0) + 1
        return self.ready[slot_key] == 1
