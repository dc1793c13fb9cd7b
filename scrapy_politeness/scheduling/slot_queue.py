"""Requests that wait slot by slot, and leave when their slot may send."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Protocol

from scrapy_politeness.http.names import public_request
from scrapy_politeness.scheduling.ready_slots import ReadySlots
from scrapy_politeness.storage.marks import MARK, USUAL, placement_of, take_off
from scrapy_politeness.storage.not_before import (
    NOT_BEFORE,
    TIMES,
    forget_time,
    held_until,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy import Request, Spider

    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.http.scrapy_internals import Engine
    from scrapy_politeness.scheduling.feedback import Feedback
    from scrapy_politeness.scheduling.listener import Listener
    from scrapy_politeness.scheduling.registry import SlotRegistry
    from scrapy_politeness.scheduling.tickets import Tickets
    from scrapy_politeness.scheduling.timers import Alarm
    from scrapy_politeness.sharing.port import Sharing
    from scrapy_politeness.storage.backlog import Backlog
    from scrapy_politeness.storage.marks import Placement

logger = logging.getLogger(__name__)


class CrawlParts(Protocol):
    """The parts of its crawl that a queue needs."""

    spider: Spider | None
    engine: Engine
    alarm: Alarm
    registry: SlotRegistry
    tickets: Tickets
    sharing: Sharing
    feedback: Feedback

    @property
    def events(self) -> Listener: ...
    @property
    def queues(self) -> Sequence[SlotQueue]: ...
    def add_queue(self, queue: SlotQueue) -> None: ...


class SlotQueue:
    """Pops only what may be sent now; the rest stays where it is, outside the
    downloader.

    Slots take turns: the one that has been ready longest goes first. Within a slot,
    requests go by priority. When nothing may go, ``pop`` returns None, and the engine
    is woken as soon as that changes.

    ``is_stored`` says that the requests may have been put into their slots under other
    settings than those of today.
    """

    # How many requests may be damaged or in the wrong slot before a pop gives the event
    # loop a chance to run.
    _most_passed_over = 100

    # Whether other processes push requests, too.
    _is_shared = False

    def __init__(
        self, parts: CrawlParts, backlog: Backlog, *, is_stored: bool = False
    ) -> None:
        self._parts = parts
        self._registry = parts.registry
        self._tickets = parts.tickets
        self._has_all = parts.engine.has_all
        self._alarm = parts.alarm
        self.backlog = backlog
        self._is_stored = is_stored
        self._has_warned = False
        self._next_release = backlog.next_release
        # Until then nothing may go, unless something changes.
        self._nothing_before = -math.inf
        self._ready_slots = ReadySlots(parts.registry, parts.sharing, backlog)
        now = time.monotonic()
        for slot_key in backlog.ready:
            self._ready_slots.add(slot_key, now)
        parts.add_queue(self)

    def push(self, request: Request) -> None:
        backlog, meta = self.backlog, request.meta
        slot_key = self._registry.queue_key(request)
        was_ready = slot_key in backlog.ready
        now = time.monotonic()
        placement = placement_of(request) if MARK in meta else USUAL
        if placement is USUAL and not TIMES.isdisjoint(meta):
            placement = self._placement(request)
        # May fail: a request that cannot be stored.
        backlog.push(slot_key, request, placement, now)
        if placement is not USUAL:
            self._tickets.queued(request)
            self._next_release = backlog.next_release
            at = -math.inf if placement.early else self._next_release
            self._nothing_before = min(self._nothing_before, at)
        if not was_ready and slot_key in backlog.ready:
            self._plan(slot_key)

    def pop(self) -> Request | None:
        now = time.monotonic()
        if now < self._nothing_before and not self._has_lost():
            # The alarm that led here may have been for something else.
            if self._nothing_before < self._alarm.at:
                self._alarm.set(self._nothing_before)
            return None
        if not (self.backlog.ready or self._is_shared or self.backlog):
            if self._nothing_before < math.inf:
                self._nothing_before = math.inf
                self.backlog.tidy()
            return None
        self._nothing_before = -math.inf
        self._release(now)
        for _ in range(self._most_passed_over):
            slot_key = self._ready_slots.next_slot(now)
            if slot_key is None and self._has_lost():
                self._parts.feedback.sweep()
                slot_key = self._ready_slots.next_slot(now)
            if slot_key is None:
                break
            request = self.backlog.pop(slot_key)
            if request is None:
                continue
            meta = request.meta
            if MARK in meta:
                take_off(request)
            if not TIMES.isdisjoint(meta):
                forget_time(request)
            may_be_moved = self._is_stored or self._registry.has_splits
            if may_be_moved and self._registry.queue_key(request) != slot_key:
                # Stored by a run with another POLITENESS_EXEMPT, or before a split.
                self.push(request)
                self.backlog.done(request)
                now = time.monotonic()
                continue
            route = self._registry.queue_route(slot_key)
            if route is not None:
                self._tickets.hand_out(request, route, now)
            self._ready_slots.sent(slot_key, now)
            return request
        self.backlog.tidy()
        self._next_release = self.backlog.next_release
        next_time = min(self._ready_slots.next_time, self._next_release)
        if next_time < self._alarm.at:
            self._alarm.set(next_time)
        # Some may go early, when there is nothing else to do.
        if not self._is_shared and not self.backlog.early:
            self._nothing_before = next_time
        return None

    def _has_lost(self) -> bool:
        """Tell whether the downloader lacks a request that has a ticket."""
        tickets = self._tickets
        return bool(tickets) and not self._has_all(tickets.keys())

    def __len__(self) -> int:
        return len(self.backlog)

    def __contains__(self, slot_key: str) -> bool:
        return self.backlog.count(slot_key) > 0

    def has_work(self, slot_key: str) -> bool:
        """Tell whether the slot has requests for pages that do not fail."""
        return self.backlog.has_other(slot_key)

    @property
    def any_ready(self) -> bool:
        return bool(self.backlog.ready)

    def slot_changed(self, slot: Slot) -> None:
        """The slot, or what it shares with others, may be ready at another time than
        planned."""
        ready_at = self._ready_slots.changed(slot.key)
        self._nothing_before = min(self._nothing_before, ready_at)
        if ready_at < self._alarm.at:
            self._alarm.set(ready_at)

    def _release(self, now: float) -> None:
        if now >= self._next_release:
            for slot_key in self.backlog.release(now):
                self._plan(slot_key)
            self._next_release = self.backlog.next_release
        if self.backlog.early and self._is_idle:
            for slot_key in self.backlog.release_early():
                self._plan(slot_key)

    @property
    def _is_idle(self) -> bool:
        """Tell whether the crawl has nothing left but held requests."""
        return not self._parts.engine.in_progress() and not any(
            queue.any_ready for queue in self._parts.queues
        )

    def _placement(self, request: Request) -> Placement:
        """Of a request with a time of its own."""
        try:
            return held_until(request, time.time()) or USUAL
        except ValueError as error:
            self._warn(request, error)
            return USUAL

    def _warn(self, request: Request, error: ValueError) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        logger.warning(
            "%(request)s: ignored meta[%(key)r]=%(value).200r: %(error)s. Further "
            "requests like this are not logged",
            {
                "request": public_request(request),
                "key": NOT_BEFORE,
                "value": request.meta[NOT_BEFORE],
                "error": error,
            },
            extra={"spider": self._parts.spider},
        )

    def _plan(self, slot_key: str) -> None:
        """The slot has got requests."""
        now = time.monotonic()
        self._nothing_before = -math.inf
        self._ready_slots.add(slot_key, now)
        self._parts.events.queued(self._registry.seen(slot_key), now)
