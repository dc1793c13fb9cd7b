"""Fetches robots.txt, and obeys its Crawl-delay, Request-rate and Visit-time.

Every robots.txt that the crawl receives is read here, so Scrapy's own robots middleware
and this package share one download. Where that middleware has not asked for it, it is
fetched before the first request to its host.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.python import to_unicode
from twisted.internet.defer import Deferred

from scrapy_politeness.core.cause import Block
from scrapy_politeness.core.lru import LRU
from scrapy_politeness.core.text import duration
from scrapy_politeness.http.names import printable, public
from scrapy_politeness.http.scrapy_internals import go_the_same_way
from scrapy_politeness.robots.request import (
    MAX_RESCHEDULES,
    OWN_FETCH,
    SERVER_ERRORS,
    robots_request,
    robots_site,
    site_of,
)
from scrapy_politeness.robots.rules import Directives, first_nonsense, readable
from scrapy_politeness.scheduling.gate import SHORT_WAIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request, Spider
    from scrapy.http import Response

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.hours import Hours
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.http.scrapy_internals import Engine
    from scrapy_politeness.scheduling.listener import Listener
    from scrapy_politeness.scheduling.registry import SlotRegistry
    from scrapy_politeness.scheduling.tickets import Ticket

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# Seconds. Whoever keeps such a delay for a day gets less than 1,500 pages.
_LONG_DELAY = 60.0

# Seconds. The wall clock, which Visit-time is about, and the monotonic one drift apart:
# a little may be missing when a pause of hours ends, which is no news.
_SAME_PAUSE = 60.0


class RobotsTerms(NamedTuple):
    """What a site asks for: seconds between requests, 0 for none, and the hours in
    which to send them. ``since`` is when its robots.txt arrived."""

    delay: float
    since: float
    hours: Hours | None


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
    ) -> None:
        self._policy = policy
        self._engine = engine
        self._registry = registry
        self._listener = listener
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        self._watch = watch
        # A site is in neither, then in one, then in the other.
        self._asked: dict[str, _Asked] = {}
        self._terms = LRU[str, RobotsTerms | None](
            remembered, lambda site, _: site not in self._asked
        )
        # Those that Scrapy's own robots middleware has asked for.
        self._foreign: dict[str, Request] = {}
        # How many of them the requests of a slot wait for.
        self._blocking: Counter[Slot] = Counter()
        self._sleepers: set[Deferred[None]] = set()

    @property
    def is_busy(self) -> bool:
        return bool(self._sleepers or self._foreign)

    def terms_for(self, request: Request) -> RobotsTerms | None:
        site = site_of(request)
        if site not in self._terms:
            return None
        return self._terms[site]  # counts as use

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

    def note_request(self, request: Request, site: str) -> None:
        """This robots.txt is being asked for."""
        if site in self._terms:
            return
        if site not in self._asked:
            self._add(site, self._registry.slot_for(request))
            self._foreign[site] = request
            self._watch()
        elif site in self._foreign:
            self._foreign[site] = request  # redirected, or tried again

    def sweep(self) -> None:
        """Find robots.txt files that Scrapy's middleware asked for in vain."""
        for site, request in list(self._foreign.items()):
            if not self._engine.is_under_way(request):
                self._log.info(
                    "No robots.txt from %(site)s, crawling without its rules",
                    {"site": public(site)},
                )
                self._over(site)

    async def ensure(self, ticket: Ticket, slot: Slot) -> bool:
        """Return True when the rules of the request's host are known, or cannot be;
        False when that takes long and the request should wait in the scheduler."""
        request = ticket.request
        site = site_of(request)
        if site in self._terms:
            return True
        scheduled = ticket.came_as(slot)
        if scheduled and self._engine.is_closing:
            return False
        if site not in self._asked:
            self._begin(site, request)
        asked = self._asked.get(site)
        if asked is None:
            return True
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
            ticket.go_on()
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """The spider closes: do not wait to ask again."""
        for sleeper in list(self._sleepers):
            _answer(sleeper, None)

    def response_received(self, response: Response, request: Request) -> None:
        site = robots_site(request)
        if site is None:
            return
        if response.status < 400:
            text = readable(response.body)
            self._terms[site] = self._read(text, self.user_agent_for(request), site)
        if OWN_FETCH not in request.meta:
            self._over(site)

    def _begin(self, site: str, page: Request) -> None:
        request = robots_request(site, OWN_FETCH)
        go_the_same_way(request, page)
        slot = self._registry.slot_for(request)
        self._add(site, slot)
        deferred_from_coro(self._fetch(site, request, slot))

    def _add(self, site: str, slot: Slot | None) -> None:
        self._asked[site] = _Asked(slot, [])
        if slot is not None:
            self._blocking[slot] += 1
            slot.block(Block.ROBOTS)

    def _over(self, site: str) -> None:
        if site not in self._terms:
            self._terms[site] = None
        self._foreign.pop(site, None)
        asked = self._asked.pop(site, None)
        if asked is None:
            return
        for turn in asked.waiting:
            _answer(turn, True)
        if asked.slot is not None:
            # First, since what is handed out next has to keep to it.
            self._keep_to(self._terms.get(site), asked.slot)
            self._blocking[asked.slot] -= 1
            if not self._blocking[asked.slot]:
                del self._blocking[asked.slot]  # the slot may be forgotten
                asked.slot.unblock(Block.ROBOTS)

    async def _fetch(self, site: str, request: Request, slot: Slot | None) -> None:
        try:
            for _ in range(1 + min(MAX_RESCHEDULES, self._policy.max_reschedules)):
                await self._until_ready(slot)
                if self._engine.is_closing:
                    return
                response = await self._engine.download(request.copy())
                if response.status not in self._policy.http_codes | SERVER_ERRORS:
                    return
            self._log.warning(
                "robots.txt of %(site)s was refused (%(status)d) for the last time, "
                "crawling without its rules",
                {"site": public(site), "status": response.status},
            )
        except Exception as error:  # a download may raise anything
            self._log.info(
                "No robots.txt from %(site)s: %(error)s: %(text)s",
                {
                    "site": public(site),
                    "error": type(error).__name__,
                    "text": printable(str(error)),
                },
            )
        finally:
            self._over(site)

    async def _until_ready(self, slot: Slot | None) -> None:
        """Wait here, where it takes no place in the downloader."""
        while slot is not None and not self._engine.is_closing:
            wait = slot.ready_at - time.monotonic()
            if wait <= SHORT_WAIT:
                return
            sleeper: Deferred[None] = Deferred()
            timer = call_later(wait, _answer, sleeper, None)
            self._sleepers.add(sleeper)
            self._watch()
            await maybe_deferred_to_future(sleeper)
            self._sleepers.discard(sleeper)
            timer.cancel()

    def user_agent_for(self, request: Request) -> str:
        if self._policy.robots_user_agent:
            return self._policy.robots_user_agent
        own = request.headers.get("User-Agent") or self._policy.user_agent
        return to_unicode(own, errors="replace")

    def _read(self, text: str, agent: str, site: str) -> RobotsTerms | None:
        nonsense = first_nonsense(text)
        if nonsense is not None:
            self._log.warning(
                "robots.txt of %(site)s says %(line)r, which makes no sense and "
                "is ignored",
                {"site": public(site), "line": nonsense[:100]},
            )
        asked = Directives.read(text, agent)
        delay = asked.delay_within(self._policy.robots_max_delay)
        if not delay and asked.hours is None:
            return None
        if asked.delay and delay < asked.delay:
            self._log.warning(
                "robots.txt of %(site)s asks for %(asked).6g s between requests; "
                "POLITENESS_ROBOTS_MAX_DELAY makes it %(delay).6g s",
                {"site": public(site), "asked": asked.delay, "delay": delay},
            )
        elif delay >= _LONG_DELAY:
            self._log.warning(
                "robots.txt of %(site)s asks for %(delay).6g s between requests, so "
                "1,000 pages will take %(span)s; POLITENESS_ROBOTS_MAX_DELAY would "
                "reduce that",
                {
                    "site": public(site),
                    "delay": delay,
                    "span": duration(1000 * delay),
                },
            )
        return RobotsTerms(delay, time.monotonic(), asked.hours)


def _answer(turn: Deferred[_T], value: _T) -> None:
    if not turn.called:
        turn.callback(value)
