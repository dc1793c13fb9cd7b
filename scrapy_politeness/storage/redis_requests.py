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

# Milliseconds after which a process that was at work, and is not heard of, is taken for
# dead: others get its requests. It is heard of every second, unless its event loop is
# blocked.
_AT_WORK_MS = 10_000


class PopReply(NamedTuple):
    """The request, if one was popped, and its ``number``; how many are ``left`` in its
    slot, and how many of these are ``failing``; the ``size`` of the queue, and the last
    ``place`` in it; the slots that are ``new``, complete up to the place ``known``;
    which of the doubtful slots are ``gone``; how many ``others`` are at work; and in
    how many seconds the next request goes to the front of its slot."""

    body: bytes | None
    number: int
    left: int
    size: int
    place: int
    new: list[str]
    known: int
    gone: list[str]
    others: int
    ends_in: float
    failing: int


class Fingerprint(NamedTuple):
    """Of a request, and the key of all that were seen."""

    key: str
    value: str


class SharedQueue:
    """``server`` is a blocking client that does not decode what it gets.

    What this process has popped stays with the server until it is ``done``. When the
    process is not heard of any more, the others get it.
    """

    def __init__(self, server: Redis, key: str) -> None:
        self._server = server
        self._key = key
        self._slots = f"{{{key}}}:slots"
        self._at_work = f"{{{key}}}:at_work"
        self._ends = f"{{{key}}}:ends"
        self._heard = f"{{{key}}}:heard"
        self._process = uuid4().hex
        self._taken = self._taken_by(self._process)
        self._last_call = f"{{{key}}}:call:{self._process}"
        self._number = 0
        self._done: list[int] = []
        # No answer: they may have popped something.
        self._unsure: list[int] = []
        self._push = self._script("push")
        self._pop = self._script("pop")
        self._drop = self._script("drop")

    def is_foreign(self) -> bool:
        """Tell whether another program has stored something under this key."""
        return self._server.type(self._key) not in (b"none", b"hash")

    def next_number(self) -> int:
        """Return the number of the next call."""
        self._number += 1
        return self._number

    def push(
        self,
        slot_key: str,
        rank: float,
        body: bytes,
        placement: Placement = USUAL,
        *,
        number: int | None = None,
        fingerprint: Fingerprint | None = None,
    ) -> tuple[int, int]:
        """Return how many requests there are to pop in the slot, and how many in all.
        The lowest rank is the first to go, of equals the oldest. Repeated with the same
        number, it is pushed once; with a fingerprint that was seen, not at all."""
        requests = self._requests(slot_key)
        keys = [self._key, self._slots, requests, self._ends, self._last_call]
        milliseconds = min(round(placement.seconds * 1000), _LARGEST)
        where, failing = placement.where.value, int(placement.failing)
        number = number or self.next_number()
        value = ""
        if fingerprint is not None:
            keys.append(fingerprint.key)
            value = fingerprint.value
        request = (_raw(slot_key), rank, body, where, milliseconds, failing)
        waiting, size = self._push(keys, [*request, number, value])
        return waiting, size

    def done(self, number: int) -> None:
        """The request that was popped with that number need not be kept; the server
        gets to know with the next pop."""
        self._done.append(number)

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
        keys += (self._taken, self._last_call, self._heard)
        if slot_key is not None:
            keys.append(self._requests(slot_key))
        number = self.next_number()
        done, unsure = self._done, self._unsure
        about_us = (self._process, int(at_work), _AT_WORK_MS, number)
        numbers = (len(done), len(unsure), *done, *unsure)
        slot, *rest = map(_raw, (slot_key or "", *doubtful))
        if slot_key is not None:
            self._unsure = [*unsure, number]
        body, left, size, place, new, gone, others, ends_in, failing = self._pop(
            keys, [*about_us, known, most_new, slot, *numbers, *rest]
        )
        self._done, self._unsure = self._done[len(done) :], []
        return PopReply(
            body=body,
            number=number,
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
        processes: list[bytes] = self._server.zrange(self._at_work, 0, -1)  # type: ignore[assignment]
        taken = [self._taken_by(_name(raw) or "") for raw in processes]
        own = (self._taken, self._last_call, self._heard)
        self._server.delete(self._key, self._ends, self._at_work, *own, *taken)

    def _first_slots(self) -> list[bytes]:
        return self._server.zrange(self._slots, 0, _DROPPED_AT_ONCE - 1)  # type: ignore[return-value]

    def _taken_by(self, process: str) -> str:
        return f"{{{self._key}}}:taken:{process}"

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
