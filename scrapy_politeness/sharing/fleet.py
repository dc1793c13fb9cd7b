"""All processes that share budgets through one Redis server, as seen from this one."""

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
from scrapy_politeness.core.leases import Leases
from scrapy_politeness.http.names import printable
from scrapy_politeness.sharing.learning import Observation, SharedLearning
from scrapy_politeness.sharing.leasing import Leasing
from scrapy_politeness.sharing.redis import Away, Keys, Link
from scrapy_politeness.sharing.replies import Saved
from scrapy_politeness.sharing.server_clock import ServerClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.governor.host_model import Change
    from scrapy_politeness.core.outcome import Outcome, Permit
    from scrapy_politeness.core.route import Route
    from scrapy_politeness.core.slot import Slot

logger = logging.getLogger(__name__)

# Seconds. After a failure the server is looked for so often, each time a little
# differently: not all processes shall come at once.
_LOOK_EVERY = (0.5, 1.5)

# For so long after a failure, those who have not come back may still be on their own.
_ALL_ARE_BACK_AFTER = 3.0

# The last words of a crawl may take so long.
_FAREWELL = 1.0
_LAST_TRIES = 3


class Fleet:
    """One task exchanges everything with the server, in one round trip after the
    other: it asks for leases and reports what came of them.

    While the server is away, every slot goes on alone, with its share.

    ``learned`` is called with each outcome when it is known what that has changed,
    ``silenced`` with a slot that another process was told to leave alone, and for how
    long, and ``count`` with a stat and what to add to it. ``pending`` returns how many
    requests wait for a slot.
    """

    def __init__(
        self,
        url: str,
        policy: Policy,
        *,
        learned: Callable[[Slot, Outcome, Change], None],
        silenced: Callable[[Slot, float], None],
        pending: Callable[[Slot], int],
        count: Callable[[str, int], None],
        spider: Spider | None = None,
    ) -> None:
        self._link = Link(url)
        self._where = self._link.where
        self._learned = learned
        self._count = count
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        self._clock = ServerClock()
        keys = Keys(alone=not policy.has_shared_limits)
        self._leasing = Leasing(keys, self._clock, policy, pending, silenced)
        self._learning = SharedLearning(keys, self._clock, policy, self._log)
        # None until the server has answered for the first time.
        self._is_away: bool | None = None
        self._members = 1
        self._slots: WeakKeyDictionary[Slot, None] = WeakKeyDictionary()
        self._budgets: WeakKeyDictionary[Budget, None] = WeakKeyDictionary()
        self._news = asyncio.Event()
        self._is_closing = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        """Tell whether so much was asked that more had better wait for answers."""
        return self._leasing.is_full

    @property
    def server_now(self) -> float:
        return self._clock.at(time.monotonic())

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Whatever went wrong here, nobody shall wait for it."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._log.error("Sharing budgets has failed", exc_info=error)
        if not self._is_away:
            self._part(Away("it is not asked any more"))

    def join(self, slot: Slot) -> None:
        """From now on, others share this slot."""
        slot.join(self._new_leases())
        self._slots[slot] = None
        if self._is_away:
            slot.part(time.monotonic(), random.random())

    def join_budget(self, budget: Budget, name: str) -> None:
        self._leasing.name(budget, name)
        budget.join(self._new_leases())
        self._budgets[budget] = None
        if self._is_away:
            budget.part(time.monotonic(), random.random())

    def _new_leases(self) -> Leases:
        leases = Leases()
        leases.members = self._members
        return leases

    def want(self, route: Route) -> None:
        """A request waits for its permits, or another one may follow soon."""
        if self._is_away or self._is_closing:
            return
        if self._leasing.want(route, time.monotonic()):
            self._news.set()

    def settled(
        self, slot: Slot, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> None:
        otherwise = slot.hand_in(permit, outcome, now)
        self._learning.add(slot, Observation(permit, outcome, now, chance, otherwise))
        self._news.set()

    def forget(self, slot: Slot) -> None:
        """What is known of this slot is out of date, for all of them."""
        if slot.leases is not None:
            slot.leases.start_anew()
        self._learning.forget(slot)
        self._news.set()

    async def close(self) -> None:
        self._is_closing = True
        if self._task is None:
            return
        self._news.set()
        done, _ = await asyncio.wait({self._task}, timeout=_FAREWELL)
        if not done:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._link.close()

    async def _run(self) -> None:
        while not self._is_closing:
            try:
                await self._until_news()
                await self._exchange(time.monotonic())
            except Away as error:
                self._part(error)
                await self._until_back()
        with suppress(Away):
            for _ in range(_LAST_TRIES):
                if not self._is_away and self._learning.has_unsaved:
                    await self._exchange(math.inf)
        self._conclude_alone()

    async def _until_news(self) -> None:
        while not self._leasing.has_asks and not self._is_closing:
            timeout = self._learning.due_in(time.monotonic())
            if timeout == 0:
                return
            self._news.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), timeout)

    async def _exchange(self, now: float) -> None:
        """``now`` decides what is due to be reported."""
        reports = self._learning.calls(now)
        asks = self._leasing.calls(self._learning.revision_of)
        calls = [call for _, call in reports] + [call for _, call in asks]
        sent_at = time.monotonic()
        if not calls:
            return
        answers = await self._link.run(calls)
        received_at = time.monotonic()
        self._joined()
        self._count("politeness/redis/round_trips", 1)
        for (slot, _), answer in zip(reports, answers, strict=False):
            saved = Saved.read(answer)
            self._clock.learn(sent_at, received_at, saved.there)
            for report, change in self._learning.answered(slot, saved):
                if change.pause:
                    slot.block(Block.PAUSE, report.at + change.pause)
                self._learned(slot, report.outcome, change)
            slot.announce()
        for (ask, call), answer in zip(asks, answers[len(reports) :], strict=True):
            granted = self._leasing.read(ask, call, answer)
            self._clock.learn(sent_at, received_at, granted.there)
            if ask.slot is not None:
                self._learning.heard(ask.slot, granted.revision, granted.model)
            number = self._leasing.answered(ask, granted, sent_at, received_at)
            self._count("politeness/redis/permits", number)
            self._members = max(self._members, *granted.members)
            for slot in ask.waiting:
                slot.announce()

    def _joined(self) -> None:
        was_away, self._is_away = self._is_away, False
        if was_away is False:
            return
        where = {"where": self._where}
        if was_away is None:
            self._log.info("Budgets are shared with all at Redis, %(where)s", where)
            return
        self._log.info("Redis at %(where)s is back: budgets are shared again", where)
        sources: list[Slot | Budget] = [*self._slots, *self._budgets]
        self._leasing.expect(sources, time.monotonic() + _ALL_ARE_BACK_AFTER)
        self._learning.start_anew()
        for source in sources:
            assert source.leases is not None
            source.leases.start_anew()
            source.join(source.leases)
        for slot in list(self._slots):
            slot.announce()

    def _part(self, error: Away) -> None:
        never_joined = self._is_away is None
        manner = (
            "alone, no faster than the start rate"
            if never_joined
            else "with an equal share of each budget"
        )
        self._log.warning(
            "Redis at %(where)s cannot be used now (%(error)s): the crawl goes on "
            "%(manner)s, and looks for Redis again and again",
            {"where": self._where, "error": printable(str(error)), "manner": manner},
        )
        self._count("politeness/redis/outages", 1)
        self._is_away = True
        self._leasing.forget_asks()
        now = time.monotonic()
        for budget in list(self._budgets):
            budget.part(now, random.random())
        for slot in list(self._slots):
            slot.part(now, random.random())
        self._conclude_alone()
        for slot in list(self._slots):
            slot.announce()

    def _conclude_alone(self) -> None:
        """What could not be reported has to be learned here."""
        for slot, reports in self._learning.left():
            for report in reports:
                change = slot.conclude(
                    report.permit, report.outcome, report.at, report.chance
                )
                self._learned(slot, report.outcome, change)

    async def _until_back(self) -> None:
        while not self._is_closing:
            self._news.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._closing(), random.uniform(*_LOOK_EVERY))
            try:
                await self._link.ping()
            except Away:
                continue
            self._joined()
            return

    async def _closing(self) -> None:
        while not self._is_closing:
            await self._news.wait()
            self._news.clear()
