"""Requests that wait slot by slot, and leave when their slot may send."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from scrapy_politeness.extension import PolitenessExtension
from scrapy_politeness.marks import MARK
from scrapy_politeness.placement import USUAL, placement_of, take_off
from scrapy_politeness.turns import Turns

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_politeness.backlog import Backlog
    from scrapy_politeness.conduct import Conduct
    from scrapy_politeness.core.scope import Scope


def conduct_of(crawler: Crawler, queue: str) -> Conduct:
    extension = crawler.get_extension(PolitenessExtension)
    if extension is None:
        raise ValueError(
            f"{queue} needs scrapy_politeness.PolitenessExtension in EXTENSIONS, and "
            "POLITENESS_ENABLED"
        )
    return extension.conduct


class SlotQueue:
    """Pops only what may be sent now; the rest stays where it is, outside the
    downloader.

    Slots take turns: the one that has been ready longest goes first. Within a slot,
    requests go by priority. When nothing may go, ``pop`` returns None, and the engine
    is woken as soon as that changes.

    ``is_stored`` says that the requests may have been put into their slots under other
    settings than those of today.
    """

    # So many requests may be damaged or in the wrong slot before a pop gives the event
    # loop a chance; the next one goes on.
    _most_passed_over = 100

    # Nothing is put into its backlog but by ``push``.
    _may_doze = True

    def __init__(
        self,
        conduct: Conduct,
        backlog: Backlog,
        *,
        is_stored: bool = False,
    ) -> None:
        self._conduct = conduct
        self._layers = conduct.layers
        self._tickets = conduct.tickets
        self._has_all = conduct.engine.has_all
        self._alarm = conduct.alarm
        self._backlog = backlog
        self._is_stored = is_stored
        # Whether anything in the backlog may have to be released.
        self._holds = True
        # Until then nothing may go, unless something changes.
        self._nothing_before = -math.inf
        self._turns = Turns(conduct.layers, conduct.permits, backlog)
        now = time.monotonic()
        for slot in backlog.slots():
            self._turns.plan(slot, now)
        conduct.add_queue(self)

    def push(self, request: Request) -> None:
        slot = self._layers.queue_key(request)
        was_ready = self._backlog.has_ready(slot)
        now = time.monotonic()
        placement = placement_of(request)
        # May fail: a request that cannot be stored.
        self._backlog.push(slot, request, placement, now)
        if placement is not USUAL:
            self._tickets.queued(request)
            self._holds = True
            self._nothing_before = -math.inf
        if not was_ready and self._backlog.has_ready(slot):
            self._plan(slot)

    def pop(self) -> Request | None:
        now = time.monotonic()
        if now < self._nothing_before and self._has_all(self._tickets.keys()):
            # The alarm that led here may have been for something else.
            if self._nothing_before < self._alarm.at:
                self._alarm.set(self._nothing_before)
            return None
        self._nothing_before = -math.inf
        self._release(now)
        for _ in range(self._most_passed_over):
            slot = self._turns.next_slot(now)
            if slot is None and not self._has_all(self._tickets.keys()):
                self._conduct.feedback.sweep()
                slot = self._turns.next_slot(now)
            if slot is None:
                break
            request = self._backlog.pop(slot)
            if request is None:
                continue
            if MARK in request.meta:
                take_off(request)
            if self._is_stored and self._layers.queue_key(request) != slot:
                # Stored by a run with another POLITENESS_EXEMPT.
                self.push(request)
                now = time.monotonic()
                continue
            route = self._layers.queue_route(slot)
            if route is not None:
                self._tickets.hand_out(request, route, now)
            self._turns.over(slot)
            if self._backlog.has_ready(slot):
                self._turns.plan(slot, now)
            return request
        self._backlog.rest()
        next_time, next_release = self._turns.next_time, self._backlog.next_release
        next_time = min(next_time, next_release)
        if next_time < self._alarm.at:
            self._alarm.set(next_time)
        self._holds = next_release < math.inf
        # Some may go early, when there is nothing else to do.
        if self._may_doze and not (self._holds and self._backlog.has_early):
            self._nothing_before = next_time
        return None

    def __len__(self) -> int:
        return len(self._backlog)

    def __contains__(self, slot: str) -> bool:
        return slot in self._backlog

    def count(self, slot: str) -> int:
        return self._backlog.count(slot)

    def has_work(self, slot: str) -> bool:
        """Tell whether the slot has something to do but pages that fail."""
        return self._backlog.has_other(slot)

    @property
    def any_ready(self) -> bool:
        return self._backlog.any_ready

    def slot_changed(self, slot: Scope) -> None:
        """The slot, or what it shares with others, may be ready at another time than
        was planned."""
        ready_at = self._turns.changed(slot.key, time.monotonic())
        self._nothing_before = min(self._nothing_before, ready_at)
        if ready_at < self._alarm.at:
            self._alarm.set(ready_at)

    def _release(self, now: float) -> None:
        if not self._holds:
            return
        released = self._backlog.release(now)
        if self._backlog.has_early and self._is_idle:
            released = (*released, *self._backlog.release_early(now))
        for slot in released:
            self._plan(slot)

    @property
    def _is_idle(self) -> bool:
        """Tell whether the crawl has nothing to do but what is held."""
        return not self._conduct.engine.in_progress() and not any(
            queue.any_ready for queue in self._conduct.queues
        )

    def _plan(self, slot: str) -> None:
        """The slot has requests, which it had not before."""
        now = time.monotonic()
        self._nothing_before = -math.inf
        self._turns.plan(slot, now)
        self._conduct.news.queued(self._layers.seen(slot), now)
