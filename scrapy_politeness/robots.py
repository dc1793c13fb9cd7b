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

from scrapy_politeness.core.memory import Memory
from scrapy_politeness.engine import go_the_same_way
from scrapy_politeness.gate import SHORT_WAIT
from scrapy_politeness.observe.names import printable, public
from scrapy_politeness.robots_txt import Wishes, first_nonsense, readable

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider
    from scrapy.http import Response

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.hours import Hours
    from scrapy_politeness.core.scope import Scope
    from scrapy_politeness.engine import Engine

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# Scrapy's robots middleware asks for robots.txt with this priority.
_PRIORITY = 1000

# A host that cannot even serve its robots.txt is asked a few times, ever more slowly;
# its pages are not held back for hours.
MAX_RESCHEDULES = 3
SERVER_ERRORS = frozenset(range(500, 600))

# Marks the requests of this package, which asks again by itself.
OWN_FETCH = "_politeness_robots"


class Terms(NamedTuple):
    """What a site asks for: seconds between requests, 0 where it does not care, and
    the hours for them. ``since`` is when its robots.txt arrived."""

    delay: float
    since: float
    hours: Hours | None


class _Asked(NamedTuple):
    """A robots.txt that is on its way, through the host's own scope."""

    scope: Scope | None
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
    """``scope_of`` returns what limits a request, ``released`` is called with a scope
    when it no longer waits for robots.txt, ``watch`` when this begins to wait.

    The ``remembered`` sites visited last are known; others are asked again.
    """

    def __init__(
        self,
        policy: Policy,
        engine: Engine,
        spider: Spider | None,
        *,
        scope_of: Callable[[Request], Scope | None],
        released: Callable[[Scope], None],
        watch: Callable[[], None],
        remembered: int,
    ) -> None:
        self._policy = policy
        self._engine = engine
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        self._scope_of = scope_of
        self._released = released
        self._watch = watch
        # A site is in neither, then in one, then in the other.
        self._asked: dict[str, _Asked] = {}
        self._terms = Memory[str, Terms | None](
            remembered, lambda site, _: site not in self._asked
        )
        # Of those asked for, what Scrapy's own robots middleware asks for.
        self._foreign: dict[str, Request] = {}
        self._holding: Counter[Scope | None] = Counter()
        self._sleepers: set[Deferred[None]] = set()

    @property
    def is_busy(self) -> bool:
        return bool(self._sleepers or self._foreign)

    def terms_for(self, request: Request) -> Terms | None:
        site = site_of(request)
        if site not in self._terms:
            return None
        return self._terms[site]

    def holds(self, scope: Scope) -> bool:
        """Tell whether the pages of this scope should stay in the scheduler."""
        return self._holding[scope] > 0

    def note_request(self, request: Request, site: str) -> None:
        """Somebody asks for robots.txt: nobody else needs to."""
        if site in self._terms:
            return
        if site not in self._asked:
            self._add(site, self._scope_of(request))
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

    async def ensure(self, request: Request, scope: Scope, *, scheduled: bool) -> bool:
        """Return True when the rules of the request's host are known, or cannot be.

        Return False when that takes long and the request, which is ``scheduled``,
        should wait in the scheduler.
        """
        site = site_of(request)
        if site in self._terms:
            return True
        if scheduled and self._engine.is_closing:
            return False
        if site not in self._asked:
            self._begin(site, request)
        asked = self._asked.get(site)
        if asked is None:
            return True
        turn: Deferred[bool] = Deferred()
        asked.waiting.append(turn)
        # A slot that the user chose stands for other hosts too: it cannot be held.
        if not scheduled or asked.scope is not scope:
            return await maybe_deferred_to_future(turn)
        timer = call_later(SHORT_WAIT, _answer, turn, False)
        try:
            return await maybe_deferred_to_future(turn)
        finally:
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
        scope = self._scope_of(request)
        self._add(site, scope)
        deferred_from_coro(self._fetch(site, request, scope))

    def _add(self, site: str, scope: Scope | None) -> None:
        self._asked[site] = _Asked(scope, [])
        self._holding[scope] += 1

    def _over(self, site: str) -> None:
        if site not in self._terms:
            self._terms[site] = None
        self._foreign.pop(site, None)
        asked = self._asked.pop(site, None)
        if asked is None:
            return
        self._holding[asked.scope] -= 1
        if not self._holding[asked.scope]:
            del self._holding[asked.scope]  # the scope may be forgotten
        for turn in asked.waiting:
            _answer(turn, True)
        if asked.scope is not None:
            self._released(asked.scope)

    async def _fetch(self, site: str, request: Request, scope: Scope | None) -> None:
        try:
            for _ in range(1 + min(MAX_RESCHEDULES, self._policy.max_reschedules)):
                await self._until_ready(scope)
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

    async def _until_ready(self, scope: Scope | None) -> None:
        """Sit out a long pause here, where it takes no place in the downloader."""
        while scope is not None and not self._engine.is_closing:
            wait = scope.ready_at - time.monotonic()
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

    def _read(self, text: str, agent: str, site: str) -> Terms | None:
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
        return Terms(delay, time.monotonic(), wishes.hours)

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
