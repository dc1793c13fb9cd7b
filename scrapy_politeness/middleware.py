"""The downloader middlewares: the gate, and the way back for what was refused."""

from __future__ import annotations

import logging
import math
import time
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from scrapy import signals
from scrapy.exceptions import IgnoreRequest, NotConfigured
from scrapy.http.request import NO_CALLBACK

from scrapy_politeness.classify import classify_exception, classify_response
from scrapy_politeness.config.policy import is_enabled
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.engine import host_of
from scrapy_politeness.extension import PolitenessExtension
from scrapy_politeness.gate import SHORT_WAIT
from scrapy_politeness.layers import EXEMPT
from scrapy_politeness.observe.names import public_request
from scrapy_politeness.observe.tally import NO_WAIT
from scrapy_politeness.placement import FRONT, take_off
from scrapy_politeness.robots import (
    MAX_RESCHEDULES,
    OWN_FETCH,
    SERVER_ERRORS,
    robots_site,
)
from scrapy_politeness.robots_size import limit_unpacking, unlimit_download

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self

    from scrapy_politeness.conduct import Conduct
    from scrapy_politeness.core.route import Route
    from scrapy_politeness.core.scope import Scope

logger = logging.getLogger(__name__)

RESCHEDULES = "politeness_reschedules"
# The request that the count belongs to: a spider that hands ``response.meta`` on to
# another request must not hand on the used-up count with it.
_COUNTED_FOR = "_politeness_counted_for"
# The request that was given up already: Scrapy's own retries may follow.
_GIVEN_UP = "_politeness_given_up"

# HttpCache skips what bears this mark, and takes the mark off.
_DONT_CACHE = "_dont_cache"

# A request that was sent back to the scheduler had to pass the duplicates filter. What
# follows from it, such as a redirect, must be filtered as ever.
_FILTERED = "_politeness_filtered"

# While the spider closes, requests that cannot go back to the scheduler may still go,
# unless it takes longer than this until their host is ready for the next one.
_PATIENCE_WHEN_CLOSING = 5.0


def _conduct_of(crawler: Crawler) -> Conduct:
    if not is_enabled(crawler.settings):
        raise NotConfigured
    extension = crawler.get_extension(PolitenessExtension)
    if extension is None:
        raise ValueError(
            "The middlewares of scrapy-politeness need "
            "scrapy_politeness.PolitenessExtension in EXTENSIONS; "
            "scrapy_politeness.Addon in ADDONS installs all of them"
        )
    return extension.conduct


def _for_the_scheduler(request: Request) -> Request:
    copy = request.replace(dont_filter=True)
    if not request.dont_filter:
        copy.meta[_FILTERED] = True
    return copy


class PolitenessMiddleware:
    """The gate, last before the downloader: counts what is really sent."""

    def __init__(self, crawler: Crawler) -> None:
        self._conduct = _conduct_of(crawler)
        self._log = logging.LoggerAdapter(logger, {"spider": crawler.spider})
        self._handed_back: WeakSet[Request] = WeakSet()
        # The response may never get to process_response: whoever asked for it has been
        # cancelled, or a middleware further out keeps it to itself.
        crawler.signals.connect(self._downloaded, signals.response_downloaded)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        conduct = self._conduct
        conduct.refused.discard(request)
        unlimit_download(request)
        scope = conduct.layers.slot_for(request)
        if scope is not None and not request.meta.get(EXEMPT):
            if conduct.giving_up.is_beyond_hope(scope):
                return self._hand_back(request, scope)
            if not await self._know_robots(request, scope):
                return self._hand_back(request, scope)
            # CONCURRENT_REQUESTS_PER_IP: now that the address is known, it counts.
            scope = conduct.layers.slot_for(request)
            if scope is not None and not await self._pass(request, scope):
                return self._hand_back(request, scope)
        conduct.engine.stamp(request, conduct.layers.key_for(request))
        if scope is not None:
            conduct.engine.take_over(request, scope.concurrency)
        return None

    def process_response(self, request: Request, response: Response) -> Response:
        # What was downloaded is over by now; this came from elsewhere.
        self._conduct.end(request, Outcome(Verdict.IGNORED, "not downloaded"))
        if request in self._conduct.refused:
            request.meta[_DONT_CACHE] = True
        limit_unpacking(request)
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        self._conduct.end(request, classify_exception(exception, request))

    def _downloaded(self, response: Response, request: Request) -> None:
        codes = self._conduct.policy.http_codes
        is_robots = robots_site(request) is not None
        if is_robots:
            codes |= SERVER_ERRORS
        outcome = classify_response(response, codes, time.time())
        is_refused = outcome.verdict.is_refusal
        if outcome.verdict is Verdict.REFUSED and not is_robots:
            failing = self._conduct.failing_pages
            outcome = failing.refused(request, response.status, outcome)
        route = self._conduct.end(request, outcome)
        if route is None:
            return
        self._conduct.layers.learn_address(request, response, route)
        if is_refused:
            self._conduct.refused.add(request)

    async def _know_robots(self, request: Request, scope: Scope) -> bool:
        conduct = self._conduct
        if not conduct.policy.robots or not host_of(request):
            return True
        site = robots_site(request)
        if site is not None:
            conduct.robots.note_request(request, site)
            return True
        if not request.url.startswith("http"):
            return True
        scheduled = conduct.journeys.came_by_queue(request, scope)
        return await conduct.robots.ensure(request, scope, scheduled=scheduled)

    async def _pass(self, request: Request, scope: Scope) -> bool:
        conduct = self._conduct
        conduct.obey_robots(request, scope)
        asked_at = time.monotonic()
        if not conduct.layers.knows_way(request):
            await self._find_way(request)
        route = conduct.layers.route_for(request, scope)
        patience = partial(self._patience, request, route)
        flight = await conduct.gate.enter(route, request, patience)
        if flight is None:
            return False
        conduct.departed()
        if flight.permit.resumed:
            conduct.news.resumed(scope)
        conduct.news.sent(flight, asked_at)
        conduct.permits.sent(route)
        waited = flight.permit.sent_at - asked_at
        if waited >= NO_WAIT:
            stats = conduct.stats
            stats.inc_value("politeness/waits")
            total = stats.get_value("politeness/wait_seconds", 0.0)
            stats.set_value("politeness/wait_seconds", total + waited)
        return True

    async def _find_way(self, request: Request) -> None:
        address = await self._conduct.engine.resolve(host_of(request))
        if address is not None:
            self._conduct.layers.learn_way(request, address)

    def _patience(self, request: Request, route: Route) -> float:
        conduct = self._conduct
        if conduct.giving_up.is_beyond_hope(route.slot):
            return -math.inf
        if conduct.engine.is_closing:
            unscheduled = self._is_unscheduled(request)
            return _PATIENCE_WHEN_CLOSING if unscheduled else -math.inf
        if not conduct.journeys.came_by_queue(request, route.slot):
            return math.inf
        # What the queue handed out can wait there, without a place in the downloader;
        # unless it waits for what the queue does not know of, which would hand it out
        # again at once.
        waits_there = route.seen_ready_at > time.monotonic() + SHORT_WAIT
        return SHORT_WAIT if waits_there else math.inf

    def _is_unscheduled(self, request: Request) -> bool:
        """Media, robots.txt: what the scheduler cannot take back."""
        return request.callback is NO_CALLBACK or (
            # It came straight back.
            request in self._handed_back
            and not self._conduct.journeys.came_by_queue(request)
        )

    def _hand_back(self, request: Request, scope: Scope) -> Request:
        """Back to the scheduler, for later, or for a later run to find; unless there
        is no hope for it."""
        conduct = self._conduct
        unscheduled = self._is_unscheduled(request)
        conduct.journeys.unclaim(request)
        conduct.give_up_hopeless(request, scope)
        if unscheduled:
            self._count_drop(request)
            raise IgnoreRequest("The spider closes while this request was held")
        self._conduct.stats.inc_value("politeness/handed_back")
        copy = _for_the_scheduler(request)
        FRONT.put_on(copy)
        self._handed_back.add(copy)
        return copy

    def _count_drop(self, request: Request) -> None:
        if robots_site(request) is not None:
            return
        stats = self._conduct.stats
        if not stats.get_value("politeness/dropped_on_closing"):
            self._log.warning(
                "The spider closes: %(request)s, which the scheduler cannot keep, is "
                "dropped, because its host is not ready within %(patience).3g s; "
                "further ones are only counted",
                {
                    "request": public_request(request),
                    "patience": _PATIENCE_WHEN_CLOSING,
                },
            )
        stats.inc_value("politeness/dropped_on_closing")


class RescheduleMiddleware:
    """Sends refused requests back to the scheduler.

    It sits further in than the gate, so that a refused response has passed
    DownloaderStats and CookiesMiddleware, and further out than RetryMiddleware, which
    would count it as one of RETRY_TIMES.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._conduct = _conduct_of(crawler)
        self._crawler = crawler
        self._log = logging.LoggerAdapter(logger, {"spider": crawler.spider})

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_request(self, request: Request) -> None:
        take_off(request)  # another queue than ours leaves it there
        if request.meta.pop(_FILTERED, False):
            request.dont_filter = False

    def process_response(
        self, request: Request, response: Response
    ) -> Request | Response:
        if request not in self._conduct.refused:
            request.meta.pop(_COUNTED_FOR, None)
            request.meta.pop(_GIVEN_UP, None)
            self._conduct.failing_pages.forget(request)
            return response
        self._conduct.refused.discard(request)
        request.meta.pop(_DONT_CACHE, None)
        if OWN_FETCH in request.meta:
            request.meta["dont_retry"] = True  # Robots asks again itself
        if request.meta.get("dont_retry"):
            return response
        scope = self._conduct.layers.slot_for(request)
        if scope is not None:
            self._conduct.give_up_hopeless(request, scope)
        return self._copy(request, response, scope) or response

    def _copy(
        self, request: Request, response: Response, scope: Scope | None
    ) -> Request | None:
        fingerprinter = self._crawler.request_fingerprinter
        assert fingerprinter is not None
        identity = fingerprinter.fingerprint(request).hex()
        if request.meta.get(_GIVEN_UP) == identity:
            return None  # one of Scrapy's own retries
        counted = request.meta.get(_COUNTED_FOR) == identity
        done = request.meta.get(RESCHEDULES, 0) if counted else 0
        if done >= self._most(request):
            self._tell_refusal(request, response, done)
            self._give_up(request, identity)
            return None
        copy = _for_the_scheduler(request)
        if scope is not None and robots_site(request) is None:
            placement = self._conduct.failing_pages.placement(request, scope)
            if placement is None:
                self._give_up(request, identity)
                return None
            placement.put_on(copy)
            self._conduct.failing_pages.remember(request, copy)
        self._conduct.news.rescheduled(self._conduct.layers.key_for(copy))
        copy.meta.pop("cached_response", None)  # HttpCache's, and not serialisable
        copy.meta.update({RESCHEDULES: done + 1, _COUNTED_FOR: identity})
        return copy

    def _most(self, request: Request) -> int:
        most = self._conduct.policy.max_reschedules
        return most if robots_site(request) is None else min(most, MAX_RESCHEDULES)

    def _give_up(self, request: Request, identity: str) -> None:
        if robots_site(request) is not None:
            request.meta["dont_retry"] = True  # RetryMiddleware would ask on
        request.meta[_GIVEN_UP] = identity
        self._conduct.news.given_up(self._conduct.layers.key_for(request))

    def _tell_refusal(self, request: Request, response: Response, done: int) -> None:
        self._log.warning(
            "%(request)s was refused (%(status)d) after %(done)d reschedules, "
            "passing the refusal on",
            {
                "request": public_request(request),
                "status": response.status,
                "done": done,
            },
        )
