"""Builds the parts of one crawl."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import is_asyncio_available

from scrapy_politeness.components.rescheduler import Rescheduler
from scrapy_politeness.core.cause import Block
from scrapy_politeness.http.scrapy_internals import Engine
from scrapy_politeness.observe.census import CensusTaker
from scrapy_politeness.observe.events import Events
from scrapy_politeness.observe.timeline import Sampler
from scrapy_politeness.robots.fetching import Robots
from scrapy_politeness.scheduling.dead_hosts import DeadHosts
from scrapy_politeness.scheduling.doubts import Doubts
from scrapy_politeness.scheduling.failing_pages import FailingPages
from scrapy_politeness.scheduling.feedback import Feedback
from scrapy_politeness.scheduling.gate import Gate
from scrapy_politeness.scheduling.loop_lag import LoopLag
from scrapy_politeness.scheduling.registry import SlotRegistry
from scrapy_politeness.scheduling.splits import Splits
from scrapy_politeness.scheduling.tickets import Tickets
from scrapy_politeness.scheduling.timers import Alarm, Watch
from scrapy_politeness.sharing.alone import Alone
from scrapy_politeness.storage.records import Records
from scrapy_politeness.storage.state_file import StateFile, reject_other_files

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.statscollectors import StatsCollector

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.scheduling.slot_queue import SlotQueue
    from scrapy_politeness.sharing.port import Sharing
    from scrapy_politeness.storage.seen import SeenRequests


class Parts:
    """Builds the parts, and introduces them to each other. The middlewares and the
    scheduler's queues find them here, through the extension."""

    def __init__(self, policy: Policy, crawler: Crawler) -> None:
        assert crawler.stats is not None
        self.spider = spider = crawler.spider
        self.policy = policy
        self.stats: StatsCollector = crawler.stats
        self.engine = Engine(crawler)
        self.alarm = Alarm(self.engine.wake)
        self.queues: list[SlotQueue] = []
        # Set by the queue on disk.
        self.seen: SeenRequests | None = None
        self.records = _open_records(policy, spider)
        self.sharing = self._open_sharing(spider)
        splits = None
        if policy.split and policy.group_by == "host":
            is_applied = policy.redis_url is None
            splits = Splits(policy.max_slots, spider, is_applied=is_applied)
        self.registry = SlotRegistry(
            policy,
            self.engine,
            self._is_pending,
            self._recall,
            self.sharing,
            splits,
        )
        self.tickets = Tickets(self.engine)
        self._watch = Watch(self._look)
        self.loop_lag = LoopLag(lambda: self.tickets.sent > 0)
        self.gate = Gate(self._watch.start, self.sharing, spider)
        self.registry.listeners.append(self.gate.advance)
        self.census_taker = CensusTaker(
            self.registry, self.gate, self.queues, self.engine, self.stats
        )
        self.sampler = Sampler(time.monotonic()) if policy.report_path else None
        self.events = Events(crawler, self.census_taker.tallies, self.sampler)
        self.dead_hosts = DeadHosts(
            policy,
            self.engine,
            self.events,
            self.census_taker.pending,
            self.registry.seen,
            spider,
        )
        self.robots = Robots(
            policy,
            self.engine,
            self.registry,
            self.events,
            spider,
            watch=self._watch.start,
            remembered=policy.max_slots,
        )
        self.failing_pages = FailingPages(
            policy, self.engine, self.registry, self._has_work, crawler
        )
        self.feedback = Feedback(
            policy,
            self.tickets,
            self.registry,
            self.sharing,
            self.records,
            self.events,
            self.dead_hosts,
            self.loop_lag,
            splits,
        )
        self.doubts = Doubts(self.engine, self._has_work, self._watch.start)
        self.rescheduler = Rescheduler(self, crawler)
        self._resume_pauses()

    def add_queue(self, queue: SlotQueue) -> None:
        """The queues in memory and on disk share the slots."""
        self.queues.append(queue)
        self.registry.listeners.append(queue.slot_changed)
        self.tickets.has_own_queue = True

    def pending(self, slot: Slot) -> int:
        return self.census_taker.pending(slot.key)

    def bytes_received(self, data: bytes, request: Request) -> None:
        ticket = self.tickets.get(request)
        if ticket is not None and ticket.flight is not None:
            ticket.flight.receive(len(data), time.monotonic())

    def stop(self) -> None:
        self.alarm.stop()
        self._watch.stop()
        self.loop_lag.stop()
        self.robots.wake()

    async def wait_stopped(self) -> None:
        # First: what the last answers mean is known only when they have been reported.
        await self.sharing.close()
        if self.records is not None:
            self.records.close()
            await self.records.wait_closed()

    def _open_sharing(self, spider: Spider | None) -> Sharing:
        if self.policy.redis_url is None:
            return Alone()
        if not is_asyncio_available():
            raise self.policy.error(
                "redis_url",
                "needs asyncio, so TWISTED_REACTOR must be left as it is, or be "
                "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
            )
        # Optional: needs the package redis.
        from scrapy_politeness.sharing.redis.adapter import RedisSharing
        from scrapy_politeness.sharing.redis.first_contact import (
            reject_permanent_errors,
        )

        try:
            reject_permanent_errors(self.policy.redis_url)
        except ValueError as error:
            raise self.policy.error(
                "redis_url", f"the server rejects it: {error}"
            ) from error
        return RedisSharing(
            self.policy.redis_url, self.policy, self.stats, self.pending, spider
        )

    def _is_pending(self, slot: Slot) -> bool:
        return self.gate.has_line(slot) or any(slot.key in q for q in self.queues)

    def _has_work(self, slot: Slot) -> bool:
        return self.gate.has_line(slot) or any(
            queue.has_work(slot.key) for queue in self.queues
        )

    def _recall(self, slot: Slot, start_rate: float) -> None:
        learned = self.records and self.records.recall(slot.key, start_rate)
        if learned:
            slot.recall(learned, self.sharing.now)
            self.events.recalled(slot, learned)

    def _resume_pauses(self) -> None:
        if self.records is None:
            return
        # A clock that was set back must not turn a pause of minutes into one of days.
        longest = self.policy.longest_pause
        for key, left in self.records.pauses().items():
            slot = self.registry.slot(key)
            if slot is not None:
                seconds = min(left, longest)
                slot.block(Block.PAUSE, time.monotonic() + seconds)
                self.events.still_paused(slot, seconds)

    def _look(self) -> bool:
        self.feedback.sweep()
        self.doubts.look()
        if self.engine.is_closing:
            self.robots.wake()
            self.gate.reconsider()
        return self.gate.is_busy or self.robots.is_busy or bool(self.doubts.held)


def _open_records(policy: Policy, spider: Spider | None) -> Records | None:
    if policy.state_path is None:
        return None
    try:
        if policy.state:
            # In a job directory, the name is ours; here, it may be a slip.
            reject_other_files(policy.state_path)
        return Records(StateFile(policy.state_path, spider), spider)
    except ValueError as error:
        raise policy.bad_state(str(error)) from error
