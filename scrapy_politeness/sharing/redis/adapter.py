"""Sharing through a Redis server."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy_politeness.core.slot import Slot
from scrapy_politeness.sharing.redis.connection import Connection, UnavailableError
from scrapy_politeness.sharing.redis.exchange import Exchange, too_far
from scrapy_politeness.sharing.redis.keys import Keys
from scrapy_politeness.sharing.redis.learning import Observation, SharedLearning
from scrapy_politeness.sharing.redis.outage_log import OutageLog
from scrapy_politeness.sharing.redis.places import Places
from scrapy_politeness.sharing.redis.reservations import Reservations
from scrapy_politeness.sharing.redis.server_clock import (
    LONGEST_ROUND_TRIP,
    RoundTrip,
    ServerClock,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider
    from scrapy.statscollectors import StatsCollector

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.outcome import Outcome, Permit
    from scrapy_politeness.core.route import Route
    from scrapy_politeness.sharing.port import Hearer
    from scrapy_politeness.sharing.redis.keys import BudgetKeys

logger = logging.getLogger(__name__)

# Seconds between two attempts to reconnect. They differ so that not all processes come
# back at once.
_RECONNECT_EVERY = (0.5, 1.5)

# Seconds, and round trips, that the last reports of a crawl may take.
_CLOSING_TIME = 1.0
_LAST_TRIES = 3

# Where a round trip takes longer than this, so many may be under way at the same time:
# what is reserved in time must not wait for another answer first.
_NEAR = 0.02
_LANES = 4


class RedisSharing:
    """One task exchanges everything with the server: it asks for leases and reports
    what came of them, in one round trip after the other where the server is near.

    While the server is unavailable, every slot goes on alone, with its share.
    ``pending`` returns how many requests wait for a slot.
    """

    is_remote = True
    _hearer: Hearer

    def __init__(
        self,
        url: str,
        policy: Policy,
        stats: StatsCollector,
        pending: Callable[[Slot], int],
        spider: Spider | None = None,
    ) -> None:
        self._connection = Connection(url)
        self._stats = stats
        self._pending = pending
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        self._outage_log = OutageLog(self._log, self._connection.where)
        self._clock = ServerClock()
        self._places = Places(url, pending)
        self._round_trip = RoundTrip()
        self._keys = Keys(one_node=policy.has_shared_limits)
        self._names: WeakKeyDictionary[Slot | Budget, str] = WeakKeyDictionary()
        self._reservations = Reservations(
            self._keys_of, self._clock, self._round_trip, policy, pending
        )
        self._learning = SharedLearning(self._keys_of, self._clock, policy, self._log)
        self._exchange = Exchange(
            self._clock, self._round_trip, self._reservations, self._learning, stats
        )
        # None until the server has answered for the first time.
        self._is_connected: bool | None = None
        self._has_work = asyncio.Event()
        self._is_closing = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._reservations.is_full

    @property
    def now(self) -> float:
        return self._clock.now

    def share_concurrency(self, slot: Slot, name: str) -> None:
        self._places.join(slot, f"{self._keys.of(name).members}:places")

    def start(self) -> None:
        self._places.start()
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        await self._places.close()
        self._is_closing = True
        if self._task is None:
            return
        self._has_work.set()
        patience = _CLOSING_TIME + (_LAST_TRIES + 1) * self._round_trip.usual
        done, _ = await asyncio.wait({self._task}, timeout=patience)
        if not done:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._connection.close()

    def join(self, source: Slot | Budget, name: str) -> None:
        self._names[source] = name
        source.join(self._exchange.members)
        if self._is_connected is False:
            source.part(time.monotonic(), random.random(), self._clock.offset)

    def reserve(self, route: Route, *, ahead: bool = False) -> None:
        if self._is_connected is False or self._is_closing:
            return
        if ahead and not self._pending(route.slot):
            return
        if self._reservations.want(route, time.monotonic()):
            self._has_work.set()

    def save(
        self, slot: Slot, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> None:
        if not slot.permits.is_joined:
            change = slot.settle(permit, outcome, now, chance)
            self._hearer.learned(slot, outcome, change)
            return
        otherwise = slot.hand_in(permit, outcome, now)
        self._learning.add(slot, Observation(permit, outcome, now, chance, otherwise))
        self._has_work.set()

    def hear(self, hearer: Hearer) -> None:
        self._hearer = self._exchange.hearer = hearer

    def forget(self, slot: Slot) -> None:
        if slot.permits.leases is not None:
            slot.permits.leases.clear()
        self._learning.forget(slot)
        self._has_work.set()

    def _keys_of(self, source: Slot | Budget) -> BudgetKeys:
        return self._keys.of(self._names[source])

    async def _run(self) -> None:
        while not self._is_closing:
            try:
                if not self._is_connected:
                    await self._connect()
                await self._work()
            except UnavailableError as error:
                if self._is_connected is not False:
                    self._part(error)
                await self._wait_to_reconnect()
        if self._is_connected:
            with suppress(UnavailableError):
                await self._say_farewell()
        self._learn_alone()

    async def _say_farewell(self) -> None:
        for _ in range(_LAST_TRIES):
            if self._learning.has_unsaved:
                await self._exchange.run(self._connection, self._names, is_last=True)
        farewells = self._reservations.farewells(time.monotonic())
        if farewells:
            await self._connection.run(farewells)

    async def _connect(self) -> None:
        """Only a server that lets scripts write is there, and only a near one."""
        seconds = await self._connection.check()
        if seconds > LONGEST_ROUND_TRIP:
            raise too_far(seconds)
        if seconds > _NEAR:
            await self._connection.open(_LANES)
        self._round_trip.start(seconds)
        self._connected()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Whatever went wrong, no request may wait for it."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._log.error("Sharing rate limits has failed", exc_info=error)
        if self._is_connected is not False:
            self._part(UnavailableError("sharing has failed"))

    async def _work(self) -> None:
        """Exchange what there is, until the server fails."""
        under_way: set[asyncio.Task[None]] = set()
        try:
            while not self._is_closing:
                lanes = 1 if self._round_trip.usual < _NEAR else _LANES
                if await self._wait_for_work(is_full=len(under_way) >= lanes):
                    exchange = self._exchange.run(self._connection, self._names)
                    task = asyncio.ensure_future(exchange)
                    task.add_done_callback(lambda _: self._has_work.set())
                    under_way.add(task)
                done = {task for task in under_way if task.done()}
                under_way -= done
                # All are looked at, or asyncio complains about the others.
                errors = [task.exception() for task in done]
                for error in filter(None, errors):
                    raise error
            await asyncio.gather(*under_way)
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _wait_for_work(self, *, is_full: bool) -> bool:
        """Return whether there is something to exchange and a connection free for it,
        at the latest when one becomes free."""
        now = time.monotonic()
        self._reservations.look(now)
        due_at = min(self._learning.due_at, self._reservations.next_look_at)
        if not is_full and (self._reservations or due_at <= now):
            return True
        timeout = None if is_full or due_at == math.inf else due_at - now
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._has_work.wait(), timeout)
        self._has_work.clear()
        return False

    def _connected(self) -> None:
        was_connected, self._is_connected = self._is_connected, True
        sources = list(self._names)
        if was_connected is None:
            self._outage_log.connected()
        else:
            self._outage_log.back()
            self._learning.reconnected()
            for source in sources:
                source.join()
        self._reservations.announce_pauses(sources, time.monotonic())
        self._announce()

    def _part(self, error: UnavailableError) -> None:
        now = time.monotonic()
        was_connected, self._is_connected = self._is_connected, False
        self._outage_log.lost(error, now, was_connected=bool(was_connected))
        self._stats.inc_value("politeness/redis/outages")
        self._reservations.clear()
        for source in list(self._names):
            source.part(now, random.random(), self._clock.offset)
        self._learn_alone()
        self._announce()

    def _announce(self) -> None:
        for source in list(self._names):
            if isinstance(source, Slot):
                source.announce()

    def _learn_alone(self) -> None:
        """Learn here from what could not be reported."""
        for slot, reports in self._learning.left():
            if slot.permits.is_joined:
                # The shared model goes by the server's clock, and reports do not.
                slot.part(time.monotonic(), random.random(), self._clock.offset)
            for report in reports:
                change = slot.conclude(
                    report.permit, report.outcome, report.at, report.chance
                )
                self._hearer.learned(slot, report.outcome, change)

    async def _wait_to_reconnect(self) -> None:
        self._has_work.clear()
        with suppress(asyncio.TimeoutError):
            wait = random.uniform(*_RECONNECT_EVERY)
            await asyncio.wait_for(self._wait_for_closing(), wait)

    async def _wait_for_closing(self) -> None:
        while not self._is_closing:
            await self._has_work.wait()
            self._has_work.clear()
