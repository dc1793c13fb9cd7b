"""The extension: owns the scopes of one crawl, and tells what happens to them."""

from __future__ import annotations

import logging
import math
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakSet

from scrapy import signals
from scrapy.exceptions import NotConfigured

from scrapy_politeness.alarm import Alarm, Watch
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.scope import Scope
from scrapy_politeness.engine import Engine, host_of, is_local
from scrapy_politeness.gate import Gate
from scrapy_politeness.journeys import Journeys
from scrapy_politeness.policy import Policy, is_enabled
from scrapy_politeness.robots import Robots
from scrapy_politeness.stores.pauses import Pauses

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.statscollectors import StatsCollector
    from typing_extensions import Self

    from scrapy_politeness.core.outcome import Permit
    from scrapy_politeness.core.scope import Change
    from scrapy_politeness.pqueue import PolitePriorityQueue

logger = logging.getLogger(__name__)

# Lets one request pass without waiting.
EXEMPT = "politeness_exempt"
# Limits one request under this key instead of its download slot.
SLOT = "politeness_slot"

# Stands before the slot in the queue's keys of requests that nothing limits.
_FREE = "free "


class PolitenessExtension:
    """The middlewares find it through ``crawler.get_extension``."""

    def __init__(self, crawler: Crawler) -> None:
        if not is_enabled(crawler.settings):
            raise NotConfigured
        assert crawler.stats is not None
        self.policy = Policy.read(crawler.settings, crawler.spider)
        self.stats: StatsCollector = crawler.stats
        self.engine = Engine(crawler)
        self.alarm = Alarm(self.engine.wake)
        self.journeys = Journeys(self.engine.is_under_way, self._tell_queues)
        self._watch = Watch(self._look)
        self.gate = Gate(self.journeys, self._watch.start, crawler.spider)
        self.robots = Robots(
            self.policy,
            self.engine,
            crawler.spider,
            scope_of=self.scope_for,
            released=self._tell_queues,
            watch=self._watch.start,
        )
        # Requests whose last answer was a refusal, until they are rescheduled.
        self.refused: WeakSet[Request] = WeakSet()
        self._scopes: dict[str, Scope | None] = {}
        self._queues: list[PolitePriorityQueue] = []
        self._log = logging.LoggerAdapter(logger, {"spider": crawler.spider})
        self._pauses = (
            Pauses(self.policy.jobdir, crawler.spider) if self.policy.jobdir else None
        )
        self._resume_pauses()
        crawler.signals.connect(self._spider_opened, signals.spider_opened)
        crawler.signals.connect(self._spider_closed, signals.spider_closed)
        crawler.signals.connect(self._response_received, signals.response_received)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def scope_for(self, request: Request) -> Scope | None:
        """Return what limits this request; None where nothing does."""
        key = self.key_for(request)
        return None if self._is_free(request, key) else self._scope(key)

    def key_for(self, request: Request) -> str:
        slot = self.engine.slot_key(request)
        return request.meta.get(SLOT) or slot

    def end(self, request: Request, outcome: Outcome) -> bool:
        """A request is over; return False if it never passed the gate."""
        flight = self.journeys.arrive(request)
        if flight is None:
            return False
        self._settle(flight.scope, flight.permit, outcome)
        return True

    def sweep(self) -> bool:
        """End what the downloader has lost; return whether there was any."""
        lost = self.journeys.lost()
        for request in lost:
            self.end(request, Outcome(Verdict.IGNORED, "lost on the way"))
        return bool(lost)

    def obey_robots(self, request: Request, scope: Scope) -> None:
        """Whatever scope a request goes through keeps the delay of its site."""
        delay = self.robots.delay_for(request)
        if delay is None or not scope.obey_robots(delay.seconds, delay.since):
            return
        self._scope_changed(scope)
        self.stats.inc_value("politeness/robots_delays")
        self._log.info(
            "%(slot)s: robots.txt asks for %(delay).3g s between requests",
            {"slot": scope.key, "delay": delay.seconds},
        )

    def _settle(self, scope: Scope, permit: Permit, outcome: Outcome) -> None:
        outcome = self._cap_wait(scope, outcome)
        now = time.monotonic()
        change = scope.settle(permit, outcome, now, random.random())
        if change.pause and self._pauses:
            self._pauses.save(scope.key, time.time() + scope.paused_until - now)
        self._scope_changed(scope)
        self._report(scope, outcome, change)

    def add_queue(self, queue: PolitePriorityQueue) -> None:
        """The scheduler's queues, in memory and on disk, share the scopes."""
        self._queues.append(queue)

    def queue_key(self, request: Request) -> str:
        """Return under which slot a request waits in the queue."""
        key = self.key_for(request)
        if self._is_free(request, key) or request.meta.get(EXEMPT):
            return _FREE + key
        return key

    def claimable_at(self, queue_key: str) -> float:
        """Return from when on the queue may hand out a request of that slot."""
        scope = self._scopes.get(queue_key)
        if scope is None:
            return -math.inf
        return math.inf if self.robots.holds(scope) else scope.claimable_at

    def handed_out(self, request: Request, queue_key: str, now: float) -> None:
        """The queue has given a request to the engine."""
        if not queue_key.startswith(_FREE):
            scope = self._scope(queue_key)
            if scope is not None:
                self.journeys.claim(request, scope, now, by_queue=True)

    def _is_free(self, request: Request, key: str) -> bool:
        if SLOT not in request.meta and self.engine.names_by_host(request):
            return is_local(request) or self.policy.is_exempt(key)
        return is_local(request) or self.policy.is_exempt(host_of(request))

    def _scope(self, key: str) -> Scope | None:
        if key not in self._scopes:
            self._scopes[key] = self._new_scope(key)
        return self._scopes[key]

    def _scope_changed(self, scope: Scope) -> None:
        self.gate.advance(scope)
        self._tell_queues(scope)

    def _tell_queues(self, scope: Scope) -> None:
        for queue in self._queues:
            queue.scope_changed(scope)

    def _new_scope(self, key: str) -> Scope | None:
        own = self.policy.for_slot(key)
        if own is None:
            return None
        return Scope(key, own.bounds, spacing=own.spacing, concurrency=own.concurrency)

    def _cap_wait(self, scope: Scope, outcome: Outcome) -> Outcome:
        longest = self.policy.retry_after_max
        if outcome.wait is None or outcome.wait <= longest:
            return outcome
        self._log.warning(
            "%(slot)s: Retry-After of %(wait).6g s is longer than "
            "POLITENESS_RETRY_AFTER_MAX; waiting %(longest).6g s",
            {"slot": scope.key, "wait": outcome.wait, "longest": longest},
        )
        return replace(outcome, wait=longest)

    def _report(self, scope: Scope, outcome: Outcome, change: Change) -> None:
        if outcome.verdict.is_overload:
            self.stats.inc_value(f"politeness/{outcome.verdict.name.lower()}")
        details = {
            "slot": scope.key,
            "reason": outcome.reason or "its quota",
            "old": change.old_rate,
            "new": change.new_rate,
            "pause": change.pause,
        }
        if change.cut:
            self.stats.inc_value("politeness/slowdowns")
            self._log.warning(
                "%(slot)s: rate %(old).3g/s → %(new).3g/s because of %(reason)s; "
                "silent for %(pause).1f s",
                details,
            )
        elif change.new_rate > change.old_rate:
            self.stats.inc_value("politeness/speedups")
            self._log.debug(
                "%(slot)s: rate %(old).3g/s → %(new).3g/s after sustained success",
                details,
            )
        elif change.pause:
            self._log.info(
                "%(slot)s: silent for %(pause).1f s because of %(reason)s", details
            )

    def _resume_pauses(self) -> None:
        if self._pauses is None:
            return
        # A clock that was set back must not turn a pause of minutes into one of days.
        longest = max(self.policy.retry_after_max, self.policy.bounds.backoff_max)
        for key, left in self._pauses.load(time.time()).items():
            scope = self._scope(key)
            if scope is not None:
                seconds = min(left, longest)
                scope.hold(time.monotonic() + seconds)
                self._log.info(
                    "%(slot)s: still silent for %(seconds).1f s, since an earlier run",
                    {"slot": key, "seconds": seconds},
                )

    def _look(self) -> bool:
        self.sweep()
        self.robots.sweep()
        if self.engine.is_closing:
            self.robots.wake()
            self.gate.reconsider()
        return self.gate.is_busy or self.robots.is_busy

    def _spider_closed(self) -> None:
        self.alarm.stop()
        self._watch.stop()
        self.robots.wake()
        if self._pauses is not None:
            self._pauses.close()

    def _spider_opened(self) -> None:
        bounds = self.policy.bounds
        self._log.info(
            "Polite crawl: each slot starts at %(start).3g/s and adapts between "
            "%(low).3g/s and %(high).3g/s; robots.txt delays are %(robots)s; "
            "exempt: %(exempt)s",
            {
                "start": bounds.start_rate,
                "low": bounds.min_rate,
                "high": bounds.max_rate,
                "robots": "obeyed" if self.policy.robots else "not read",
                "exempt": ", ".join(sorted(self.policy.exempt)) or "nobody",
            },
        )
        if not self._queues:
            self._log.warning(
                "The scheduler does not use scrapy_politeness.PolitePriorityQueue: "
                "requests that must wait for their host wait in the downloader, where "
                "they count towards CONCURRENT_REQUESTS and hold up other hosts"
            )

    def _response_received(self, response: Response, request: Request) -> None:
        if self.policy.robots:
            self.robots.response_received(response, request)
