"""Fetches robots.txt, and obeys its Crawl-delay, Request-rate and Visit-time.

It is fetched before the first request to its host, again after 24 hours, and then also
obeyed by Scrapy's own robots middleware, where that is on. Where it is unreachable:

    there is an earlier copy    that still applies
    that of the other scheme    those rules apply, as Scrapy has one set of rules for
    was read                    both
    it need not be obeyed, or   after a second attempt, the crawl goes on without it
    ..._UNREACHABLE is "allow"
    otherwise                   the requests of its host wait in the scheduler; after
                                some time, everything is disallowed (RFC 9309, 2.3.1.4)

It is requested again in each case, less and less often.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from http import HTTPStatus
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_politeness.core.cause import Block
from scrapy_politeness.http.scrapy_internals import go_the_same_way
from scrapy_politeness.robots.answer import ask
from scrapy_politeness.robots.known import Known, KnownSites
from scrapy_politeness.robots.log import RobotsLog
from scrapy_politeness.robots.request import robots_request, site_of
from scrapy_politeness.robots.rules import readable
from scrapy_politeness.robots.schedule import USE_FOR, Schedule
from scrapy_politeness.robots.terms import read_terms, user_agent_for
from scrapy_politeness.scheduling.gate import SHORT_WAIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request, Spider
    from scrapy.http import Response

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.http.scrapy_internals import Engine
    from scrapy_politeness.robots.terms import RobotsTerms
    from scrapy_politeness.scheduling.listener import Listener
    from scrapy_politeness.scheduling.registry import SlotRegistry
    from scrapy_politeness.scheduling.tickets import Ticket

_T = TypeVar("_T")

# Seconds. The wall clock, which Visit-time is about, and the monotonic one drift apart:
# a little may be missing when a pause of hours ends, which is no news.
_SAME_PAUSE = 60.0

# Seconds. That a slot was stopped meanwhile is not announced here.
_LONGEST_SLEEP = 60.0


class _Asked(NamedTuple):
    """A robots.txt that is on its way, through the host's own slot."""

    slot: Slot | None
    waiting: list[Deferred[bool]]


class Robots:
    """The queue keeps the requests of a slot while the robots.txt of its host is on
    its way. ``watch`` is called when this begins to wait. Of the sites visited last,
    ``remembered`` are known; others are asked again."""

    def __init__(
        self,
        policy: Policy,
        engine: Engine,
        registry: SlotRegistry,
        listener: Listener,
        spider: Spider | None,
        *,
        watch: Callable[[], None],
        remembered: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._engine = engine
        self._registry = registry
        self._listener = listener
        self._log = RobotsLog(spider)
        self._watch = watch
        self._clock = clock
        self._schedule = Schedule(policy.backoff_base, policy.backoff_max)
        self._asked: dict[str, _Asked] = {}
        self._known = KnownSites(
            remembered,
            lambda site, _: site not in self._asked,
            self._schedule,
            self._log,
            clock,
        )
        # How many of them the requests of a slot wait for.
        self._blocking: Counter[Slot] = Counter()
        self._sleepers: set[Deferred[None]] = set()

    @property
    def is_busy(self) -> bool:
        return bool(self._sleepers)

    def is_current(self, request: Request) -> bool:
        """Tell whether it is known what applies to its site, and not for too long."""
        known = self._known.get(site_of(request))
        return known is not None and self._clock() < known.ask_at

    def terms_for(self, request: Request) -> RobotsTerms | None:
        site = site_of(request)
        if site not in self._known:
            return None
        return self._known[site].terms  # counts as use

    def error_for(self, request: Request) -> Exception | None:
        """Return why its host cannot be reached at all, if that is so."""
        known = self._known.get(site_of(request))
        return None if known is None else known.error

    def obey(self, request: Request, slot: Slot) -> None:
        """Whichever slot a request goes through keeps to the terms of its site."""
        terms = self.terms_for(request)
        if terms is not None and terms.delay:
            self._registry.keep_robots_delay(request, terms.delay, terms.since)
        self._keep_to(terms, slot)

    def _keep_to(self, terms: RobotsTerms | None, slot: Slot) -> None:
        if terms is None:
            return
        if terms.delay and slot.obey_robots(terms.delay, terms.since):
            self._listener.robots_delay(slot, terms.delay)
        if terms.hours is None:
            return
        wait = terms.hours.begin_in(time.time())
        if wait:
            until = time.monotonic() + wait
            is_known = until - slot.blocked_for(Block.HOURS) < _SAME_PAUSE
            slot.block(Block.HOURS, until)
            if not is_known:
                self._listener.outside_hours(slot, terms.hours, wait)

    async def ensure(self, ticket: Ticket, slot: Slot) -> bool:
        """Return True when it is known what applies to the request's host, False when
        that takes long and the request should wait in the scheduler."""
        request = ticket.request
        site = site_of(request)
        if site in self._known:
            if site not in self._asked and not self.is_current(request):
                self._begin(site, request)
            return True
        scheduled = ticket.came_as(slot)
        if scheduled and self._engine.is_closing:
            return False
        if site not in self._asked:
            self._begin(site, request)
        asked = self._asked.get(site)
        if asked is None:
            return site in self._known
        turn: Deferred[bool] = Deferred()
        asked.waiting.append(turn)
        timer = None
        # A slot that the user chose serves other hosts too, and cannot be held.
        if scheduled and asked.slot is slot:
            timer = call_later(SHORT_WAIT, _answer, turn, False)
        ticket.wait()
        try:
            return await maybe_deferred_to_future(turn)
        finally:
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """The spider closes: do not wait to ask again."""
        for sleeper in list(self._sleepers):
            _answer(sleeper, None)

    def learn(self, site: str, response: Response | None) -> bytes:
        """Read a robots.txt, None if there is none. Return its rules."""
        now = self._clock()
        body, terms = b"", None
        if response is not None and response.status < HTTPStatus.BAD_REQUEST:
            body = response.body
            assert response.request is not None
            agent = user_agent_for(response.request, self._policy)
            policy, log = self._policy, self._log
            terms = read_terms(readable(body), site, agent, policy, log, now)
        before = self._known.get(site)
        self._known[site] = Known(terms, now + USE_FOR, now)
        if before is not None and before.failures:
            self._log.reachable_again(site)
        return body

    def _begin(self, site: str, page: Request) -> None:
        request = robots_request(site, "dont_retry")
        go_the_same_way(request, page)
        if site in self._known:
            request.priority = page.priority  # it need not be the next to go
        slot = self._registry.slot_for(request)
        self._asked[site] = _Asked(slot, [])
        if slot is not None and site not in self._known:
            self._blocking[slot] += 1
            slot.block(Block.ROBOTS)
        deferred_from_coro(self._fetch(site, request, slot))

    async def _fetch(self, site: str, request: Request, slot: Slot | None) -> None:
        before = self._known.get(site)
        try:
            rules = await self._rules(site, request, slot)
            if rules is not None and self._policy.obeys_robots:
                await self._engine.teach_robots_txt(request, rules)
        finally:
            self._over(site, before)

    async def _rules(
        self, site: str, request: Request, slot: Slot | None
    ) -> bytes | None:
        """Return what is to be obeyed from now on; None where nothing has changed."""
        began_at = self._clock()
        not_before = -math.inf
        known = self._known.get(site)
        for nth in count(1 if known is None else known.failures + 1):
            await self._until_ready(slot, not_before)
            if self._engine.is_closing:
                return None
            answer = await ask(self._engine, request, nth, self._policy.http_codes)
            if self._policy.obeys_robots:
                self._engine.count_robots_txt(answer.response)
            if answer.response is None and self._engine.is_closing:
                return None
            if answer.is_final:
                if answer.response is None:
                    self._log.unusable(site, answer.reason)
                return self.learn(site, answer.response)
            if known is not None:
                self._known.stay_with(known, site, answer, slot)
                return None
            if self._known.adopt(site, answer, nth, slot):
                return None
            now = self._clock()
            seconds = now - began_at
            is_required = self._policy.disallows_unreachable
            if self._schedule.is_hopeless(
                nth, seconds, was_sent=answer.error is None, is_required=is_required
            ):
                if is_required:
                    return self._known.disallow(site, answer, nth, slot, seconds)
                obeys = self._policy.obeys_robots
                return self._known.go_without(site, answer, nth, slot, obeys=obeys)
            gap = self._schedule.gap(nth)
            not_before = now + gap
            if nth == 1 and is_required:
                patience = self._schedule.patience
                self._log.requests_wait(site, answer.reason, patience)
            if slot is not None and slot.block(Block.UNREACHABLE, not_before):
                self._listener.robots_unreachable(slot, gap)
        return None

    def _over(self, site: str, before: Known | None) -> None:
        slot, waiting = self._asked.pop(site)
        known = self._known.get(site)
        # It may not be known: the spider closes.
        may_go = known is not None or not self._policy.obeys_robots
        for turn in waiting:
            _answer(turn, may_go)
        if slot is None:
            return
        # First, since what is handed out next has to keep to it.
        if known is not None:
            if before is not None and _delay(known) < _delay(before):
                slot.forget_robots()
            self._keep_to(known.terms, slot)
        if before is None:
            self._blocking[slot] -= 1
            if not self._blocking[slot]:
                del self._blocking[slot]  # the slot may be forgotten
                slot.unblock(Block.ROBOTS)

    async def _until_ready(self, slot: Slot | None, not_before: float) -> None:
        """Wait here, where it takes no place in the downloader."""
        while not self._engine.is_closing:
            at, early = not_before, 0.0
            # One that is stopped is never ready: the gate gives its requests up.
            if slot is not None and not slot.is_stopped:
                at = max(at, slot.ready_at)
                # Those of a dead host, too, until its pause is over.
                early = 0.0 if slot.is_dead else SHORT_WAIT
            wait = at - self._clock()
            if wait <= early:
                return
            sleeper: Deferred[None] = Deferred()
            timer = call_later(min(wait, _LONGEST_SLEEP), _answer, sleeper, None)
            self._sleepers.add(sleeper)
            self._watch()
            await maybe_deferred_to_future(sleeper)
            self._sleepers.discard(sleeper)
            timer.cancel()


def _delay(known: Known) -> float:
    return 0.0 if known.terms is None else known.terms.delay


def _answer(turn: Deferred[_T], value: _T) -> None:
    if not turn.called:
        turn.callback(value)
