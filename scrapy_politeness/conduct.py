"""How one crawl behaves: all that has a part in it, and what they tell each other."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakSet

from scrapy_politeness.alarm import Alarm, Watch
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.engine import Engine
from scrapy_politeness.failing_pages import FailingPages
from scrapy_politeness.gate import Gate
from scrapy_politeness.giving_up import GivingUp
from scrapy_politeness.journeys import Journeys
from scrapy_politeness.layers import Layers
from scrapy_politeness.observe.census import Stock
from scrapy_politeness.observe.news import News
from scrapy_politeness.observe.sampler import Sampler
from scrapy_politeness.permits import Permits, open_fleet
from scrapy_politeness.pulse import Pulse
from scrapy_politeness.records import Records
from scrapy_politeness.robots import Robots
from scrapy_politeness.stores.state import State

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.statscollectors import StatsCollector

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.hours import Hours
    from scrapy_politeness.core.lessons import Change
    from scrapy_politeness.core.route import Flight, Route
    from scrapy_politeness.core.scope import Scope
    from scrapy_politeness.slot_queue import SlotQueue

# Seconds. The wall clock, which robots.txt means, and the monotonic one drift apart: a
# little may be missing when a silence of hours ends, which is no news.
_SAME_SILENCE = 60.0

# A request takes five turns of the event loop or more. Where one turn takes more than
# this share of the time until the answer, and more than a few milliseconds, that time
# says nothing of the host.
_OWN_SHARE = 0.1
_OWN_LEAST = 0.01


class Conduct:
    """The middlewares and the scheduler's queues find it in the extension."""

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
        self.permits = Permits(self.fleet, self.layers, self.waiting)
        self.journeys = Journeys(self.engine.is_under_way, self._tell_queues)
        self._watch = Watch(self._look)
        self._pulse = Pulse(lambda: self.journeys.any_sent)
        self.gate = Gate(self.journeys, self._watch.start, self.permits.want, spider)
        self.stock = Stock(self.layers, self.gate, self.queues, self.engine, self.stats)
        self.sampler = Sampler(time.monotonic()) if policy.report_path else None
        self.news = News(crawler, self.stock.tallies, self.sampler)
        self.giving_up = GivingUp(
            policy, self.news, self.stock.pending, self.layers.seen, spider
        )
        self.robots = Robots(
            policy,
            self.engine,
            spider,
            scope_of=self.layers.slot_for,
            released=self._tell_queues,
            watch=self._watch.start,
            remembered=policy.max_slots,
        )
        self.failing_pages = FailingPages(
            policy, self.engine, self.layers, self._has_work, crawler
        )
        # Requests whose last answer was a refusal, until they are rescheduled.
        self.refused: WeakSet[Request] = WeakSet()
        self._resume_pauses()

    def end(self, request: Request, outcome: Outcome) -> Route | None:
        """A request is over; return which way it was sent, if it was."""
        flight = self.journeys.arrive(request)
        if flight is None:
            return None
        self._settle(flight, outcome)
        return flight.route

    def departed(self) -> None:
        """A request was sent."""
        self._pulse.start()

    def sweep(self) -> bool:
        """End what the downloader has lost; return whether there was any."""
        lost = self.journeys.lost()
        for request in lost:
            self.end(request, Outcome(Verdict.IGNORED, "lost on the way"))
        return bool(lost)

    def obey_robots(self, request: Request, scope: Scope) -> None:
        """Whatever scope a request goes through keeps the delay and the hours of its
        site."""
        terms = self.robots.terms_for(request)
        if terms is None:
            return
        if terms.delay and scope.obey_robots(terms.delay, terms.since):
            self.scope_changed(scope)
            self.news.robots_delay(scope, terms.delay)
        if terms.hours is not None:
            self._keep_hours(terms.hours, scope)

    def queued(self, queue_key: str, now: float) -> None:
        """The queue has a request of a slot that it had none of."""
        self.news.queued(self.layers.seen(queue_key), now)

    def claimable_at(self, queue_key: str) -> float:
        """Return from when on its slot lets the queue hand out a request."""
        slot = self.layers.seen(queue_key)
        if slot is not None:
            if self.giving_up.is_beyond_hope(slot):
                return -math.inf
            if self.robots.holds(slot):
                return math.inf
        if self.layers.is_free(queue_key):
            return -math.inf
        return self.permits.claimable_at(slot)

    def is_beyond_hope(self, queue_key: str) -> bool:
        slot = self.layers.seen(queue_key)
        return slot is not None and self.giving_up.is_beyond_hope(slot)

    def give_up_hopeless(self, request: Request, slot: Scope) -> None:
        """Raise GivenUp where there is no hope; not when the spider closes, because
        the next run may have more luck."""
        if self.giving_up.is_beyond_hope(slot) and not self.engine.is_closing:
            raise self.giving_up.give_up(request, slot)

    def handed_out(self, request: Request, queue_key: str, now: float) -> None:
        """The queue has given a request to the engine."""
        route = self.layers.queue_route(queue_key)
        if route is not None:
            self.journeys.claim(request, route, now, by_queue=True)

    def waiting(self, slot: Scope) -> int:
        return self.stock.pending(slot.key)

    @property
    def is_idle(self) -> bool:
        """Tell whether there is nothing to do but what is held."""
        return not self.engine.in_progress() and not any(
            queue.any_ready for queue in self.queues
        )

    def scope_changed(self, slot: Scope) -> None:
        """It may be ready earlier or later than before."""
        self.gate.advance(slot)
        self._tell_queues(slot)

    def learned(self, slot: Scope, outcome: Outcome, change: Change) -> None:
        """It is known what an outcome has changed."""
        if self.records is not None and not self.layers.has_set_rate(slot.key):
            self.records.changed(slot)
        if change.pause:
            self.save_pause(slot)
        self.news.settled(slot, outcome, change, time.monotonic())
        self.giving_up.learned(slot, outcome, change)

    def save_pause(self, slot: Scope) -> None:
        if self.records is not None:
            left = max(0.0, slot.paused_until - time.monotonic())
            self.records.paused(slot.key, time.time() + left)

    def forget(self, slot: Scope) -> bool:
        """Return to the settings; return whether that has ended a silence."""
        self.layers.reset(slot.key)
        slot.forget()
        self.giving_up.forget(slot)
        was_silent = slot.reset()
        self.save_pause(slot)
        if self.records is not None:
            self.records.forget(slot.key)
        if self.fleet is not None:
            self.fleet.forget(slot)
        return was_silent

    def stop(self) -> None:
        self.alarm.stop()
        self._watch.stop()
        self._pulse.stop()
        self.robots.wake()

    async def wait_stopped(self) -> None:
        # What the last answers mean is known only when they are reported.
        if self.fleet is not None:
            await self.fleet.close()
        if self.records is not None:
            self.records.close()
            await self.records.wait_closed()

    def _settle(self, flight: Flight, outcome: Outcome) -> None:
        slot = flight.route.slot
        outcome = self._cap_wait(slot, outcome)
        now = time.monotonic()
        own = max(_OWN_LEAST, _OWN_SHARE * (now - flight.permit.sent_at))
        if self._pulse.slowest_turn > own:
            outcome = replace(outcome, is_timely=False)
        chance = random.random()
        for budget, permit in zip(flight.route.budgets, flight.shared, strict=True):
            if budget.settle(permit, outcome, now, chance):
                self.news.proxy_slowed(budget, outcome)
        if self.fleet is not None and slot.is_joined:
            self.fleet.settled(slot, flight.permit, outcome, now, chance)
        else:
            change = slot.settle(flight.permit, outcome, now, chance)
            self.learned(slot, outcome, change)
        self.scope_changed(slot)

    def _cap_wait(self, slot: Scope, outcome: Outcome) -> Outcome:
        longest = self.policy.retry_after_max
        if outcome.wait is None or outcome.wait <= longest:
            return outcome
        self.news.wait_capped(slot, outcome.wait, longest)
        return replace(outcome, wait=longest)

    def _keep_hours(self, hours: Hours, scope: Scope) -> None:
        wait = hours.begin_in(time.time())
        if not wait:
            return
        until = time.monotonic() + wait
        is_known = until - scope.paused_until < _SAME_SILENCE
        scope.pause(until)
        if is_known:
            return
        self.scope_changed(scope)
        self.news.outside_hours(scope, hours, wait)

    def _is_pending(self, slot: Scope) -> bool:
        return (
            self.gate.has_line(slot)
            or self.robots.holds(slot)
            or any(slot.key in queue for queue in self.queues)
        )

    def _has_work(self, slot: Scope) -> bool:
        return self.gate.has_line(slot) or any(
            queue.has_work(slot.key) for queue in self.queues
        )

    def _tell_queues(self, slot: Scope) -> None:
        for queue in self.queues:
            queue.slot_changed(slot)

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
                slot.pause(time.monotonic() + seconds)
                self.news.still_silent(slot, seconds)

    def _look(self) -> bool:
        self.sweep()
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
