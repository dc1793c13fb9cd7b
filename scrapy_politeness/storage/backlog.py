"""What waits for its slot to send: the contract of where requests are kept."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from scrapy import Request

    from scrapy_politeness.storage.placement import Placement

# What unpickling bytes that were damaged can raise, and making a request of fields
# that do not fit the spider any more.
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
    elsewhere. Of those in front, the first comes first; so it is with those behind.

    Some requests are held: they count, but nothing else is to be seen of them until
    they are released. ``now`` is the monotonic clock's.
    """

    def push(
        self, slot_key: str, request: Request, placement: Placement, now: float
    ) -> None: ...

    def pop(self, slot_key: str) -> Request | None:
        """Return None where the next one was damaged, and has been dropped."""

    def slots(self) -> Collection[str]:
        """Return the slots that have requests to pop."""

    def has_ready(self, slot_key: str) -> bool:
        """Tell whether the slot has a request to pop."""

    def has_other(self, slot_key: str) -> bool:
        """Tell whether one of those is not failing."""

    @property
    def any_ready(self) -> bool: ...

    def count(self, slot_key: str) -> int:
        """Return how many requests the slot has, those that are held included."""

    def release(self, now: float) -> Collection[str]:
        """Bring to the front whose time has come. Return the slots that had nothing to
        pop, and now have."""

    def release_early(self, now: float) -> Collection[str]:
        """The same for those that may go when there is nothing else to do."""

    @property
    def has_early(self) -> bool:
        """Tell whether there are any of those."""

    @property
    def next_release(self) -> float:
        """When there is something to release, at the earliest; infinite for never."""

    def rest(self) -> None:
        """Nothing may go now: time to tidy up."""

    def __contains__(self, slot_key: str) -> bool: ...

    def __len__(self) -> int: ...


class OwnBacklog(Backlog, Protocol):
    """Of this process alone."""

    def peek(self, slot_key: str) -> Request | None: ...

    def close(self) -> None: ...
