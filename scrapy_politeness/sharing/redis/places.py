"""How many requests may be in flight at once, shared by many processes."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4
from weakref import WeakKeyDictionary

from scrapy_politeness.sharing.redis.connection import (
    Call,
    Connection,
    UnavailableError,
    micros,
)
from scrapy_politeness.sharing.redis.replies import read_places

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_politeness.core.slot import Slot

# Seconds between two looks at what is needed.
_LOOK_EVERY = 0.2
# What is unchanged is renewed so often, and lapses after so long: a process that was
# killed keeps its places for no longer.
_RENEW_EVERY = 1.0
_LIFETIME = 5.0
# Seconds after which a place is left to a process that has none.
_TURN = 2.0
# Where requests come one by one, each finds its place still there.
_KEEP_ONE = 5.0

_CLOSING_TIME = 1.0

_NOTHING = (0, 0)


@dataclass(eq=False, slots=True)
class _Share:
    """Of one slot: ``renewed_at`` is when its process was last answered, ``asked`` what
    it had wanted and used then, ``needed_at`` when there was last a use for a place."""

    key: str
    total: int
    members: int = 1
    renewed_at: float = -math.inf
    needed_at: float = -math.inf
    asked: tuple[int, int] = _NOTHING


class Places:
    """Grants each process a part of the concurrency of a slot, and renews that while
    the process is alive. While the server is away, each has an equal share, from when
    on the grants of before have lapsed. ``pending`` returns how many requests wait for
    a slot."""

    def __init__(self, url: str, pending: Callable[[Slot], int]) -> None:
        self._url = url
        self._pending = pending
        self._process = uuid4().hex
        self._shares: WeakKeyDictionary[Slot, _Share] = WeakKeyDictionary()
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_started = False

    def start(self) -> None:
        self._is_started = True
        if self._shares and self._task is None:
            self._connection = Connection(self._url)
            self._task = asyncio.get_running_loop().create_task(self._run())

    def join(self, slot: Slot, key: str) -> None:
        """Share out the slot's concurrency from now on."""
        self._shares[slot] = _Share(key, slot.concurrency)
        slot.allow(0)
        if self._is_started:
            self.start()

    async def close(self) -> None:
        if self._task is None or self._connection is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        calls = [self._call(share, 0, 0) for share in self._shares.values()]
        with suppress(UnavailableError, asyncio.TimeoutError):
            await asyncio.wait_for(self._connection.run(calls), _CLOSING_TIME)
        await self._connection.close()

    async def _run(self) -> None:
        failed_at = math.inf
        while True:
            now = time.monotonic()
            due = [
                (slot, share)
                for slot, share in list(self._shares.items())
                if self._is_due(slot, share, now)
            ]
            try:
                if failed_at < math.inf and self._connection is not None:
                    # Nothing has to wait for an answer that may not come.
                    await self._connection.check()
                await self._exchange(due, now)
                failed_at = math.inf
            except UnavailableError:
                failed_at = min(failed_at, now)
                self._go_on_alone(now - failed_at)
            await asyncio.sleep(_LOOK_EVERY)

    def _is_due(self, slot: Slot, share: _Share, now: float) -> bool:
        asked = self._demand(slot, share, now)
        is_old = now - share.renewed_at > _RENEW_EVERY and asked != _NOTHING
        return is_old or asked != share.asked

    def _demand(self, slot: Slot, share: _Share, now: float) -> tuple[int, int]:
        """Return how many places there is a use for, and how many are in use."""
        used = slot.in_flight
        wanted = used + slot.claims + slot.aside + self._pending(slot)
        if wanted:
            share.needed_at = now
        elif now - share.needed_at < _KEEP_ONE:
            wanted = 1
        return min(wanted, share.total), min(used, share.total)

    async def _exchange(self, due: list[tuple[Slot, _Share]], now: float) -> None:
        if not due or self._connection is None:
            return
        demands = [self._demand(slot, share, now) for slot, share in due]
        calls = [
            self._call(share, *demand)
            for (_, share), demand in zip(due, demands, strict=True)
        ]
        # From here on until the answer, no more may be sent than was said.
        for (slot, _), (_, used) in zip(due, demands, strict=True):
            slot.allow(min(slot.allowed or 0, used))
        answers = await self._connection.run(calls)
        for (slot, share), demand, answer in zip(due, demands, answers, strict=True):
            granted, share.members = read_places(answer, share.total)
            share.renewed_at, share.asked = now, demand
            slot.allow(granted)

    def _call(self, share: _Share, wanted: int, used: int) -> Call:
        times = (micros(_LIFETIME), micros(_TURN))
        arguments = (self._process, wanted, used, share.total, *times)
        return Call("places", [share.key], arguments)

    def _go_on_alone(self, seconds: float) -> None:
        """The server has been away for that long."""
        for slot, share in list(self._shares.items()):
            alone = max(1, share.total // share.members)
            has_lapsed = seconds > _LIFETIME
            slot.allow(alone if has_lapsed else min(slot.allowed or 0, alone))
            share.asked = _NOTHING
