"""The extension: the heart of one crawl, and what a spider may ask of it."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.extensions.telnet import update_telnet_vars
from scrapy.utils.asyncio import is_asyncio_available

from scrapy_politeness import rules
from scrapy_politeness.alarm import Alarm, Watch
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.engine import Engine
from scrapy_politeness.gate import Gate
from scrapy_politeness.journeys import Journeys
from scrapy_politeness.layers import Layers
from scrapy_politeness.observe.census import Census, Stock
from scrapy_politeness.observe.news import News
from scrapy_politeness.observe.observers import Observers
from scrapy_politeness.observe.reporter import publish, report_of
from scrapy_politeness.observe.sampler import Sampler
from scrapy_politeness.observe.terms import tell_terms
from scrapy_politeness.policy import Policy, is_enabled
from scrapy_politeness.records import Records
from scrapy_politeness.robots import Robots
from scrapy_politeness.stores.state import State

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.statscollectors import StatsCollector
    from typing_extensions import Self

    from scrapy_politeness.core.health import Status
    from scrapy_politeness.core.hours import Hours
    from scrapy_politeness.core.lessons import Change
    from scrapy_politeness.core.route import Flight, Route
    from scrapy_politeness.core.scope import Scope
    from scrapy_politeness.fleet import Fleet
    from scrapy_politeness.slot_queue import SlotQueue

# Seconds. The wall clock, which robots.txt means, and the monotonic one drift apart: a
# little may be missing when a silence of hours ends, which is no news.
_SAME_SILENCE = 60.0


class PolitenessExtension:
    """Spiders and the other components find it through ``crawler.get_extension``.

    For spiders there are ``set_rate``, ``hold``, ``release``, ``reset``, ``status``
    and ``census``; a slot is named by its host, or as ``politeness_slot`` or
    ``download_slot`` name it. In the telnet console it is called ``politeness``.
    """

    def __init__(self, crawler: Crawler) -> None:
        if not is_enabled(crawler.settings):
            raise NotConfigured
        assert crawler.stats is not None
        self.policy = Policy.read(crawler.settings, crawler.spider)
        self.stats: StatsCollector = crawler.stats
        self.engine = Engine(crawler)
        self.alarm = Alarm(self.engine.wake)
        self._records = _open_records(self.policy, crawler.spider)
        self._queues: list[SlotQueue] = []
        self.fleet = self._open_fleet(crawler.spider)
        self.layers = Layers(
            self.policy, self.engine, self._is_pending, self._recall, self.fleet
        )
        self.journeys = Journeys(self.engine.is_under_way, self._tell_queues)
        self._watch = Watch(self._look)
        self.gate = Gate(
            self.journeys, self._watch.start, self._want_permits, crawler.spider
        )
        self._stock = Stock(
            self.layers, self.gate, self._queues, self.engine, self.stats
        )
        self._sampler = Sampler(time.monotonic()) if self.policy.report_path else None
        self.news = News(crawler, self._stock.tallies, self._sampler)
        self.robots = Robots(
            self.policy,
            self.engine,
            crawler.spider,
            scope_of=self.layers.slot_for,
            released=self._tell_queues,
            watch=self._watch.start,
            remembered=self.policy.max_slots,
        )
        # Requests whose last answer was a refusal, until they are rescheduled.
        self.refused: WeakSet[Request] = WeakSet()
        self._resume_pauses()
        self._observers = Observers(
            self.policy, self.census, self._stock.tallies.waits, crawler.spider
        )
        crawler.signals.connect(self._spider_opened, signals.spider_opened)
        crawler.signals.connect(self._spider_closed, signals.spider_closed)
        crawler.signals.connect(self._response_received, signals.response_received)
        crawler.signals.connect(self._telnet_opened, update_telnet_vars)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def set_rate(self, slot: str, rate: float) -> None:
        """Replace the slot's own limits: from now on so many requests per second, or
        fewer where the host or its robots.txt wants fewer."""
        rate = rules.checked("rate", rate, rules.positive)
        scope = self._limited(slot)
        self.layers.set_rate(scope.key, rate)
        self.news.reconfigured(scope, rate)
        self._scope_changed(scope)

    def hold(self, slot: str, seconds: float) -> None:
        """Send nothing for so long; of several holds the one that ends last counts."""
        seconds = rules.checked("seconds", seconds, rules.not_negative)
        scope = self._limited(slot)
        if scope.hold(time.monotonic() + seconds):
            self.news.held(scope, seconds)
            self._scope_changed(scope)

    def release(self, slot: str) -> None:
        """End a hold. What the host itself has asked for still counts."""
        scope = self._limited(slot)
        if scope.release():
            self.news.resumed(scope)
            self._scope_changed(scope)

    def reset(self, slot: str) -> None:
        """Return to the settings, and forget all that was learned of the host, its
        pause included."""
        scope = self._limited(slot)
        self.layers.reset(scope.key)
        was_silent = scope.reset()
        self._save_pause(scope)
        if self._records is not None:
            self._records.forget(scope.key)
        if self.fleet is not None:
            self.fleet.forget(scope)
        self.news.reconfigured(scope, None)
        if was_silent:
            self.news.resumed(scope)
        self._scope_changed(scope)

    def status(self, slot: str) -> Status:
        """Tell how a slot is doing."""
        return self._limited(slot).status(time.monotonic())

    def census(self, max_age: float = 0.0) -> Census:
        """Take stock of the crawl; a census that is not older will do, and costs
        nothing."""
        return self._stock.census(max_age)

    def end(self, request: Request, outcome: Outcome) -> Route | None:
        """A request is over; return which way it was sent, if it was."""
        flight = self.journeys.arrive(request)
        if flight is None:
            return None
        self._settle(flight, outcome)
        return flight.route

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
            self._scope_changed(scope)
            self.news.robots_delay(scope, terms.delay)
        if terms.hours is not None:
            self._keep_hours(terms.hours, scope)

    def _keep_hours(self, hours: Hours, scope: Scope) -> None:
        wait = hours.begin_in(time.time())
        if not wait:
            return
        until = time.monotonic() + wait
        is_known = until - scope.paused_until < _SAME_SILENCE
        scope.pause(until)
        if is_known:
            return
        self._scope_changed(scope)
        self.news.outside_hours(scope, hours, wait)

    def add_queue(self, queue: SlotQueue) -> None:
        """The scheduler's queues, in memory and on disk, share the slots."""
        self._queues.append(queue)

    def queued(self, queue_key: str, now: float) -> None:
        """The queue has a request of a slot that it had none of."""
        self.news.queued(self.layers.seen(queue_key), now)

    def claimable_at(self, queue_key: str) -> float:
        """Return from when on its slot lets the queue hand out a request."""
        slot = self.layers.seen(queue_key)
        if slot is None:
            return -math.inf
        if self.robots.holds(slot):
            return math.inf
        if self.fleet is None:
            return slot.claimable_at
        return max(slot.claimable_at, self._worth_asking_at(slot))

    def _worth_asking_at(self, slot: Scope) -> float:
        """Return when the budgets that a slot shares with others may have something
        for it, if it needs that."""
        if not slot.is_joined or not self.policy.has_shared_limits:
            return -math.inf
        if slot.leases is not None and len(slot.leases) > slot.claims:
            return -math.inf
        route = self.layers.queue_route(slot.key)
        told = () if route is None else (b.told_at for b in route.shared)
        return max((at for at in told if at is not None), default=-math.inf)

    def handed_out(self, request: Request, queue_key: str, now: float) -> None:
        """The queue has given a request to the engine."""
        route = self.layers.queue_route(queue_key)
        if route is not None:
            self.journeys.claim(request, route, now, by_queue=True)

    def _settle(self, flight: Flight, outcome: Outcome) -> None:
        slot = flight.route.slot
        outcome = self._cap_wait(slot, outcome)
        now = time.monotonic()
        chance = random.random()
        for budget, permit in zip(flight.route.budgets, flight.shared, strict=True):
            if budget.settle(permit, outcome, now, chance):
                self.news.proxy_slowed(budget, outcome)
        if self.fleet is not None and slot.is_joined:
            self.fleet.settled(slot, flight.permit, outcome, now, chance)
        else:
            change = slot.settle(flight.permit, outcome, now, chance)
            self._learned(slot, outcome, change)
        self._scope_changed(slot)

    def _learned(self, slot: Scope, outcome: Outcome, change: Change) -> None:
        """It is known what an outcome has changed."""
        if self._records is not None and not self.layers.has_set_rate(slot.key):
            self._records.changed(slot)
        if change.pause:
            self._save_pause(slot)
        self.news.settled(slot, outcome, change, time.monotonic())

    def _open_fleet(self, spider: Spider | None) -> Fleet | None:
        if self.policy.redis_url is None:
            return None
        if not is_asyncio_available():
            raise self.policy.bad_redis(
                "needs asyncio, so TWISTED_REACTOR must be left as it is, or be "
                "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
            )
        # Only who has asked for it needs the package redis.
        from scrapy_politeness.fleet import Fleet

        return Fleet(
            self.policy.redis_url,
            self.policy,
            changed=self._scope_changed,
            learned=self._learned,
            silenced=lambda slot, wait: self.news.silenced(slot, wait),
            pending=self._waiting,
            count=lambda name, number: self.stats.inc_value(name, number),
            spider=spider,
        )

    def _waiting(self, slot: Scope) -> int:
        """Return how many requests wait for a slot."""
        queued = sum(queue.count(slot.key) for queue in self._queues)
        return queued + self.gate.waiting(slot)

    def _want_permits(self, route: Route) -> None:
        if self.fleet is not None:
            self.fleet.want(route)

    def sent(self, route: Route) -> None:
        """A request was sent, and more may follow."""
        if self.fleet is not None and self._waiting(route.slot):
            self.fleet.want(route)

    def may_hand_out(self, queue_key: str, now: float) -> bool:
        """Tell whether a request of this slot, which is due, is paid for. If not, it
        is asked for, and the queue will be told."""
        slot = self.layers.seen(queue_key)
        if self.fleet is None or slot is None or not slot.is_joined:
            return True
        route = self.layers.queue_route(queue_key)
        if slot.leases is None or route is None:
            return True
        if slot.leases.has_lease_for(slot.claims, now, route.shared):
            return True
        if not self.fleet.is_full:
            self.fleet.want(route)
        return False

    @property
    def asks_enough(self) -> bool:
        """Tell whether the queue had better wait for the answers to what was asked."""
        return self.fleet is not None and self.fleet.is_full

    def _limited(self, slot: str) -> Scope:
        key = rules.checked("slot", slot, rules.one_slot)
        scope = None if self.policy.is_exempt(key) else self.layers.slot(key)
        if scope is None:
            raise ValueError(f"{slot!r} is exempt, or its rate is 0: nothing limits it")
        return scope

    def _is_pending(self, slot: Scope) -> bool:
        return (
            self.gate.has_line(slot)
            or self.robots.holds(slot)
            or any(slot.key in queue for queue in self._queues)
        )

    def _scope_changed(self, slot: Scope) -> None:
        self.gate.advance(slot)
        self._tell_queues(slot)

    def _tell_queues(self, slot: Scope) -> None:
        for queue in self._queues:
            queue.slot_changed(slot)

    def _cap_wait(self, slot: Scope, outcome: Outcome) -> Outcome:
        longest = self.policy.retry_after_max
        if outcome.wait is None or outcome.wait <= longest:
            return outcome
        self.news.wait_capped(slot, outcome.wait, longest)
        return replace(outcome, wait=longest)

    def _recall(self, slot: Scope, start_rate: float) -> None:
        learned = self._records and self._records.recall(slot.key, start_rate)
        if learned:
            shared = self.fleet is not None and slot.is_joined
            now = self.fleet.server_now if shared and self.fleet else time.monotonic()
            slot.recall(learned, now)
            self.news.recalled(slot, learned)

    def _save_pause(self, slot: Scope) -> None:
        if self._records is not None:
            left = max(0.0, slot.paused_until - time.monotonic())
            self._records.paused(slot.key, time.time() + left)

    def _resume_pauses(self) -> None:
        if self._records is None:
            return
        # A clock that was set back must not turn a pause of minutes into one of days.
        longest = self.policy.longest_silence
        for key, left in self._records.pauses().items():
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
        return self.gate.is_busy or self.robots.is_busy

    async def _spider_closed(self, spider: Spider, reason: str) -> None:
        self._stop()
        census = self.census()
        self.news.closed(census)
        if self.fleet is not None:
            await self.fleet.close()
        if self._records is not None:
            await self._records.wait_closed()
        if self._sampler is not None and self.policy.report_path is not None:
            tallies = self._stock.tallies
            report = report_of(census, tallies, self._sampler, spider.name, reason)
            await publish(report, self.policy.report_path, spider)
        await self._observers.close()

    def _stop(self) -> None:
        self.alarm.stop()
        self._watch.stop()
        self.robots.wake()
        if self._records is not None:
            self._records.close()

    def _spider_opened(self, spider: Spider) -> None:
        tell_terms(self.policy, spider, by_queue=bool(self._queues))
        if self.fleet is not None:
            self.fleet.start()
        self._observers.start()

    def _telnet_opened(self, telnet_vars: dict[str, Any]) -> None:
        telnet_vars["politeness"] = self

    def _response_received(self, response: Response, request: Request) -> None:
        if self.policy.robots:
            self.robots.response_received(response, request)


def _open_records(policy: Policy, spider: Spider | None) -> Records | None:
    if policy.state_path is None:
        return None
    try:
        return Records(State(policy.state_path, spider), spider)
    except ValueError as error:
        raise policy.bad_state(str(error)) from error
