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

from scrapy_politeness.core.cause import Block
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.http.names import printable
from scrapy_politeness.sharing.redis.connection import Connection, UnavailableError
from scrapy_politeness.sharing.redis.keys import Keys
from scrapy_politeness.sharing.redis.learning import Observation, SharedLearning
from scrapy_politeness.sharing.redis.places import Places
from scrapy_politeness.sharing.redis.replies import Saved
from scrapy_politeness.sharing.redis.reservations import Reservations
from scrapy_politeness.sharing.redis.server_clock import ServerClock

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

# Seconds after a failure within which some processes may not have come back yet.
_ALL_ARE_BACK_AFTER = 3.0

# Seconds, and round trips, that the last reports of a crawl may take.
_CLOSING_TIME = 1.0
_LAST_TRIES = 3


class RedisSharing:
    """One task exchanges everything with the server, in one round trip after the
    other: it asks for leases and reports what came of them.

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
        self._clock = ServerClock()
        self._places = Places(url, pending)
        self._keys = Keys(one_node=policy.has_shared_limits)
        self._names: WeakKeyDictionary[Slot | Budget, str] = WeakKeyDictionary()
        self._reservations = Reservations(self._keys_of, self._clock, policy, pending)
        self._learning = SharedLearning(self._keys_of, self._clock, policy, self._log)
        # None until the server has answered for the first time.
        self._is_connected: bool | None = None
        self._members = 1
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
        done, _ = await asyncio.wait({self._task}, timeout=_CLOSING_TIME)
        if not done:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._connection.close()

    def join(self, source: Slot | Budget, name: str) -> None:
        self._names[source] = name
        source.join(self._members)
        if self._is_connected is False:
            source.part(time.monotonic(), random.random())

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
        self._hearer = hearer

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
                await self._wait_for_work()
                await self._exchange(time.monotonic())
            except UnavailableError as error:
                self._part(error)
                await self._reconnect()
        with suppress(UnavailableError):
            for _ in range(_LAST_TRIES):
                if self._is_connected is not False and self._learning.has_unsaved:
                    await self._exchange(math.inf)
        self._learn_alone()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Whatever went wrong, no request may wait for it."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._log.error("Sharing rate limits has failed", exc_info=error)
        if self._is_connected is not False:
            self._part(UnavailableError("sharing has failed"))

    async def _wait_for_work(self) -> None:
        while not self._reservations and not self._is_closing:
            timeout = self._learning.due_in(time.monotonic())
            if timeout == 0:
                return
            self._has_work.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._has_work.wait(), timeout)

    async def _exchange(self, now: float) -> None:
        """``now`` decides what is due to be reported."""
        reports = self._learning.calls(now)
        asks = self._reservations.calls(self._learning.revision_of)
        calls = [call for _, call in reports] + [call for _, call in asks]
        sent_at = time.monotonic()
        if not calls:
            return
        answers = await self._connection.run(calls)
        received_at = time.monotonic()
        self._connected()
        self._stats.inc_value("politeness/redis/round_trips")
        for (slot, _), answer in zip(reports, answers, strict=False):
            saved = Saved.read(answer)
            self._clock.learn(sent_at, received_at, saved.there)
            for report, change in self._learning.answered(slot, saved):
                if change.pause:
                    slot.block(Block.PAUSE, report.at + change.pause)
                self._hearer.learned(slot, report.outcome, change)
            slot.announce()
        for (ask, call), answer in zip(asks, answers[len(reports) :], strict=True):
            granted = self._reservations.read(ask, call, answer)
            self._clock.learn(sent_at, received_at, granted.there)
            if ask.slot is not None:
                self._learning.hear(ask.slot, granted.revision, granted.model)
            pause = self._reservations.answered(ask, granted, sent_at, received_at)
            if ask.slot is not None and pause:
                self._hearer.paused_elsewhere(ask.slot, pause)
            self._stats.inc_value("politeness/redis/permits", len(granted.waits))
            self._members = max(self._members, *granted.members)
            for slot in ask.waiting:
                slot.announce()

    def _connected(self) -> None:
        was_connected, self._is_connected = self._is_connected, True
        if was_connected:
            return
        where = {"where": self._connection.where}
        if was_connected is None:
            self._log.info("Sharing rate limits through Redis at %(where)s", where)
            return
        self._log.info("Redis at %(where)s is back: sharing rate limits again", where)
        sources = list(self._names)
        self._reservations.expect(sources, time.monotonic() + _ALL_ARE_BACK_AFTER)
        self._learning.reconnected()
        for source in sources:
            source.join()
        self._announce()

    def _part(self, error: UnavailableError) -> None:
        pace = (
            "no faster than the start rate"
            if self._is_connected is None
            else "with an equal share of each limit"
        )
        self._log.warning(
            "Redis at %(where)s is unavailable (%(error)s): the crawl continues alone, "
            "%(pace)s, and keeps trying to reconnect",
            {
                "where": self._connection.where,
                "error": printable(str(error)),
                "pace": pace,
            },
        )
        self._stats.inc_value("politeness/redis/outages")
        self._is_connected = False
        self._reservations.clear()
        now = time.monotonic()
        for source in list(self._names):
            source.part(now, random.random())
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
                slot.part(time.monotonic(), random.random())
            for report in reports:
                change = slot.conclude(
                    report.permit, report.outcome, report.at, report.chance
                )
                self._hearer.learned(slot, report.outcome, change)

    async def _reconnect(self) -> None:
        while not self._is_closing:
            self._has_work.clear()
            with suppress(asyncio.TimeoutError):
                wait = random.uniform(*_RECONNECT_EVERY)
                await asyncio.wait_for(self._wait_for_closing(), wait)
            with suppress(UnavailableError):
                await self._connection.ping()
                self._connected()
                return

    async def _wait_for_closing(self) -> None:
        while not self._is_closing:
            await self._has_work.wait()
            self._has_work.clear()
