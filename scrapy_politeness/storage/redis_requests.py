"""Requests in Redis, slot by slot, that several processes push and pop.

All keys of a queue have the same hash tag: a Redis Cluster keeps it on one node. No
call depends on how many slots there are.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from scrapy_politeness.sharing.redis.keys import escaped
from scrapy_politeness.storage.marks import USUAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis import Redis
    from redis.commands.core import Script

    from scrapy_politeness.storage.marks import Placement

_DROPPED_AT_ONCE = 1000

# No count is larger.
_LARGEST = 2**53

# Milliseconds for which a process counts as working after it was last heard of.
_AT_WORK_MS = 5000


class PopReply(NamedTuple):
    """The request, if one was popped; how many are ``left`` in its slot, and how many
    of these are ``failing``; the ``size`` of the queue, and the last ``place`` in it;
    the slots that are ``new``, complete up to the place ``known``; which of the
    doubtful slots are ``gone``; how many ``others`` are at work; and in how many
    seconds the next request goes to the front of its slot."""

    body: bytes | None
    left: int
    size: int
    place: int
    new: list[str]
    known: int
    gone: list[str]
    others: int
    ends_in: float
    failing: int


class SharedQueue:
    """``server`` is a blocking client that does not decode what it gets."""

    def __init__(self, server: Redis, key: str) -> None:
        self._server = server
        self._key = key
        self._slots = f"{{{key}}}:slots"
        self._at_work = f"{{{key}}}:at_work"
        self._ends = f"{{{key}}}:ends"
        self._process = uuid4().hex
        self._push = self._script("push")
        self._pop = self._script("pop")
        self._drop = self._script("drop")

    def is_foreign(self) -> bool:
        """Tell whether another program has stored something under this key."""
        return self._server.type(self._key) not in (b"none", b"hash")

    def push(
        self, slot_key: str, rank: float, body: bytes, placement: Placement = USUAL
    ) -> tuple[int, int]:
        """Return how many requests there are to pop in the slot, and how many in all.
        The lowest rank is the first to go, of equals the oldest."""
        keys = [self._key, self._slots, self._requests(slot_key), self._ends]
        milliseconds = min(round(placement.seconds * 1000), _LARGEST)
        where, failing = placement.where.value, int(placement.failing)
        waiting, size = self._push(
            keys, [_raw(slot_key), rank, body, where, milliseconds, failing]
        )
        return waiting, size

    def pop(
        self,
        slot_key: str | None,
        known: int,
        most_new: int,
        doubtful: Sequence[str],
        *,
        at_work: bool,
    ) -> PopReply:
        """Without a slot, only ask what is new: which slots got requests after the
        place ``known``, and which of the ``doubtful`` ones have none. ``at_work``
        says whether this process may produce more requests."""
        keys = [self._key, self._slots, self._at_work, self._ends]
        if slot_key is not None:
            keys.append(self._requests(slot_key))
        about_us = (self._process, int(at_work), _AT_WORK_MS)
        names = map(_raw, (slot_key or "", *doubtful))
        body, left, size, place, new, gone, others, ends_in, failing = self._pop(
            keys, [*about_us, known, most_new, *names]
        )
        return PopReply(
            body=body,
            left=left,
            # __len__ must not return a negative number.
            size=max(0, min(size, _LARGEST)),
            place=place,
            new=[name for raw in new[::2] if (name := _name(raw)) is not None],
            known=int(min(float(new[-1]), _LARGEST)) if new else known,
            gone=[name for raw in gone if (name := _name(raw)) is not None],
            others=others,
            ends_in=math.inf if ends_in < 0 else ends_in / 1000,
            failing=failing,
        )

    def clear(self) -> None:
        while slots := self._first_slots():
            requests = [self._requests(_name(raw) or "") for raw in slots]
            self._drop([self._key, self._slots, *requests], slots)
        self._server.delete(self._key, self._ends)

    def _first_slots(self) -> list[bytes]:
        return self._server.zrange(self._slots, 0, _DROPPED_AT_ONCE - 1)  # type: ignore[return-value]

    def _requests(self, slot_key: str) -> str:
        return f"{{{self._key}}}:of:{escaped(slot_key)}"

    def _script(self, name: str) -> Script:
        folder = Path(__file__).parent
        files = (folder / f"queue_{part}.lua" for part in ("places", name))
        text = "".join(file.read_text("utf-8") for file in files)
        return self._server.register_script(text)


def _raw(slot_key: str) -> bytes:
    return slot_key.encode("utf-8", "surrogatepass")


def _name(raw: bytes) -> str | None:
    """None for what another program has put there."""
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
