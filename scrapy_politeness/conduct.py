"""How one crawl behaves: all that has a part in it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy_politeness.alarm import Alarm, Watch
from scrapy_politeness.core.cause import Block
from scrapy_politeness.engine import Engine
from scrapy_politeness.failing_pages import FailingPages
from scrapy_politeness.feedback import Feedback
from scrapy_politeness.gate import Gate
from scrapy_politeness.giving_up import GivingUp
from scrapy_politeness.layers import Layers
from scrapy_politeness.observe.census import Stock
from scrapy_politeness.observe.news import News
from scrapy_politeness.observe.sampler import Sampler
from scrapy_politeness.permits import Permits, open_fleet
from scrapy_politeness.pulse import Pulse
from scrapy_politeness.records import Records
from scrapy_politeness.robots import Robots
from scrapy_politeness.stores.state import State
from scrapy_politeness.tickets import Tickets

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.statscollectors import StatsCollector

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.scope import Scope
    from scrapy_politeness.slot_queue import SlotQueue


class Conduct:
    """Makes the parts, and introduces them to each other. The middlewares and the
    scheduler's queues find them here, and it in the extension."""

    def __init__(self, policy: Policy, crawler: Crawler) -> None:
        assert crawler.stats is not None
        spider = crawler.spider
        self.policy = policy
        self.stats: StatsCollector = crawler.stats
        self.engine = Engine(crawler)
        self.alarm = Alarm(self.engine.wake)
        self.queues: list[SlotQueue] = []
        self.records = _open_records(policy, spider)
        self.fleet = open_fleet(policy, self, spider)
        self.layers = Layers(
            policy, self.engine, self._is_pending, self._recall, self.fleet
        )
        self.permits: Permits | None = None
        if self.fleet is not None:
            self.permits = Permits(self.fleet, self.layers, self.pending)
        self.tickets = Tickets(self.engine)
        self._watch = Watch(self._look)
        self.pulse = Pulse(lambda: self.tickets.sent > 0)
        self.gate = Gate(self._watch.start, self.permits, spider)
        self.layers.listeners.append(self.gate.advance)
        self.stock = Stock(self.layers, self.gate, self.queues, self.engine, self.stats)
        self.sampler = Sampler(time.monotonic()) if policy.report_path else None
        self.news = News(crawler, self.stock.tallies, self.sampler)
        self.giving_up = GivingUp(
            policy, self.engine, self.news, self.stock.pending, self.layers.seen, spider
        )
        self.robots = Robots(
            policy,
            self.engine,
            self.layers,
            self.news,
            spider,
            watch=self._watch.start,
            remembered=policy.max_slots,
        )
        self.failing_pages = FailingPages(
            policy, self.engine, self.layers, self._has_work, crawler
        )
        self.feedback = Feedback(
            policy,
            self.tickets,
            self.layers,
            self.fleet,
            self.records,
            self.news,
            self.giving_up,
            self.pulse,
        )
        self._resume_pauses()

    def add_queue(self, queue: SlotQueue) -> None:
        """In memory and on disk, they share the slots."""
        self.queues.append(queue)
        self.layers.listeners.append(queue.slot_changed)
        self.tickets.has_own_queue = True

    def pending(self, slot: Scope) -> int:
        """Return how many requests wait for a slot."""
        return self.stock.pending(slot.key)

    def stop(self) -> None:
        self.alarm.stop()
        self._watch.stop()
        self.pulse.stop()
        self.robots.wake()

    async def wait_stopped(self) -> None:
        # What the last answers mean is known only when they are reported.
        if self.fleet is not None:
            await self.fleet.close()
        if self.records is not None:
            self.records.close()
            await self.records.wait_closed()

    def _is_pending(self, slot: Scope) -> bool:
        return self.gate.has_line(slot) or any(slot.key in q for q in self.queues)

    def _has_work(self, slot: Scope) -> bool:
        return self.gate.has_line(slot) or any(
            queue.has_work(slot.key) for queue in self.queues
        )

    def _recall(self, slot: Scope, start_rate: float) -> None:
        learned = self.records and self.records.recall(slot.key, start_rate)
        if learned:
            # What is learned together is learned in the server's time.
            now = self.fleet.server_now if self.fleet else time.monotonic()
            slot.recall(learned, now)
            self.news.recalled(slot, learned)

    def _resume_pauses(self) -> None:
        if self.records is None:
            return
        # A clock that was set back must not turn a pause of minutes into one of days.
        longest = self.policy.longest_silence
        for key, left in self.records.pauses().items():
            slot = self.layers.slot(key)
            if slot is not None:
                seconds = min(left, longest)
                slot.block(Block.PAUSE, time.monotonic() + seconds)
                self.news.still_silent(slot, seconds)

    def _look(self) -> bool:
        self.feedback.sweep()
        self.robots.sweep()
        if self.engine.is_closing:
            self.robots.wake()
            self.gate.reconsider()
        elif self.fleet is not None:
            self.gate.look_again()
        return self.gate.is_busy or self.robots.is_busy


def _open_records(policy: Policy, spider: Spider | None) -> Records | None:
    if policy.state_path is None:
        return None
    try:
        return Records(State(policy.state_path, spider), spider)
    except ValueError as error:
        raise policy.bad_state(str(error)) from error
