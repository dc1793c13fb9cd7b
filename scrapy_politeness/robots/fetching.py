"""What robots.txt asks of a crawler: Crawl-delay, Request-rate and Visit-time.

Every robots.txt that the crawl receives is read here, whoever asked for it, so
Scrapy's own robots middleware and this package share one download. Where nobody has
asked for it yet, it is fetched before the first request to its host.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from scrapy import Request
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.python import to_unicode
from twisted.internet.defer import Deferred

from scrapy_politeness.core.cause import Block
from scrapy_politeness.core.lru import LRU
from scrapy_politeness.http.names import printable, public
from scrapy_politeness.http.scrapy_internals import go_the_same_way
from scrapy_politeness.robots.rules import Wishes, first_nonsense, readable
from scrapy_politeness.scheduling.gate import SHORT_WAIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider
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

# Scrapy's robots middleware asks for robots.txt with this priority.
_PRIORITY = 1000

# A host that cannot even serve its robots.txt is asked a few times, ever more slowly;
# its pages are not held back for hours.
MAX_RESCHEDULES = 3
SERVER_ERRORS = frozenset(range(500, 600))

# Seconds. The wall clock, which robots.txt means, and the monotonic one drift apart: a
# little may be missing when a silence of hours ends, which is no news.
_SAME_SILENCE = 60.0

# Marks the requests of this package, which asks again by itself.
OWN_FETCH = "_politeness_robots"


class RobotsTerms(NamedTuple):
    """What a site asks for: seconds between requests, 0 where it does not care, and
    the hours for them. ``since`` is when its robots.txt arrived."""

    delay: float
    since: float
    hours: Hours | None


class _Asked(NamedTuple):
    """A robots.txt that is on its way, through the host's own slot."""

    slot: Slot | None
    waiting: list[Deferred[bool]]


def robots_site(request: Request) -> str | None:
    """Return whose robots.txt this request fetches, perhaps after a redirect."""
    if (
        request.callback is not NO_CALLBACK
        or request.meta.get("dont_obey_robotstxt") is not True
    ):
        return None
    urls = request.meta.get("redirect_urls") or [request.url]
    site, _, name = urls[0].rpartition("/")
    return site if name == "robots.txt" and site.count("/") == 2 else None


def robots_request(site: str, *marks: str) -> Request:
    """``marks`` are set to True in its meta."""
    return Request(
        f"{site}/robots.txt",
        callback=NO_CALLBACK,
        priority=_PRIORITY,
        meta=dict.fromkeys(("dont_obey_robotstxt", *marks), True),
    )


def site_of(request: Request) -> str:
    url = urlparse_cached(request)
    return f"{url.scheme}://{url.netloc}"


class Robots:
    """The queue keeps the requests of a slot while the robots.txt of its host is on
    its way. ``watch`` is called when this begins to wait.

    The ``remembered`` sites visited last are known; others are asked again.
    """

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
        # Of those asked for, what Scrapy's own robots middleware asks for.
        self._foreign: dict[str, Request] = {}
        # For how many of them the requests of a slot wait.
        self._blocking: Counter[Slot] = Counter()
        self._sleepers: set[Deferred[None]] = set()

    @property
    def is_busy(self) -> bool:
        return bool(self._sleepers or self._foreign)

    def terms_for(self, request: Request) -> RobotsTerms | None:
        site = site_of(request)
        if site not in self._terms:
            return None
        return self._terms[site]  # which uses it

    def obey(self, request: Request, slot: Slot) -> None:
        """Whatever slot a request goes through keeps the delay and the hours of its
        site."""
        self._keep_to(self.terms_for(request), slot)

    def _keep_to(self, terms: RobotsTerms | None, slot: Slot) -> None:
        if terms is None:
            return
        if terms.delay and slot.obey_robots(terms.delay, terms.since):
            self._listener.robots_delay(slot, terms.delay)
        wait = 0.0 if terms.hours is None else terms.hours.begin_in(time.time())
        if wait:
            assert terms.hours is not None
            until = time.monotonic() + wait
            is_known = until - slot.blocked_for(Block.HOURS) < _SAME_SILENCE
            slot.block(Block.HOURS, until)
            if not is_known:
                self._listener.outside_hours(slot, terms.hours, wait)

    def note_request(self, request: Request, site: str) -> None:
        """Somebody asks for robots.txt: nobody else needs to."""
        if site in self._terms:
            return
        if site not in self._asked:
            self._add(site, self._registry.slot_for(request))
            self._foreign[site] = request
            self._watch()
        elif site in self._foreign:
            self._foreign[site] = request  # redirected, or tried again

    def sweep(self) -> None:
        """Nobody says so when a robots.txt that others asked for did not come."""
        for site, request in list(self._foreign.items()):
            if not self._engine.is_under_way(request):
                self._log.info(
                    "No robots.txt from %(site)s, crawling without its rules",
                    {"site": public(site)},
                )
                self._over(site)

    async def ensure(self, ticket: Ticket, slot: Slot) -> bool:
        """Return True when the rules of the request's host are known, or cannot be.

        Return False when that takes long and the request should wait in the scheduler.
        """
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
        # A slot that the user chose stands for other hosts too: it cannot be held.
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
        """The spider closes: nobody waits to ask again."""
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
            # First: what is handed out now has to keep to it already.
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
        except Exception as error:  # whatever a download may raise
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
        """Sit out a long pause here, where it takes no place in the downloader."""
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
        wishes = Wishes.read(text, agent)
        if not wishes.delay and wishes.hours is None:
            return None
        delay = self._clamp(wishes.delay or 0.0, site)
        return RobotsTerms(delay, time.monotonic(), wishes.hours)

    def _clamp(self, delay: float, site: str) -> float:
        longest = self._policy.robots_max_delay
        if delay <= longest:
            return delay
        self._log.warning(
            "robots.txt of %(site)s asks for %(asked).6g s between requests; "
            "POLITENESS_ROBOTS_MAX_DELAY makes it %(longest).6g s",
            {"site": public(site), "asked": delay, "longest": longest},
        )
        return longest


def _answer(turn: Deferred[_T], value: _T) -> None:
    if not turn.called:
        turn.callback(value)
