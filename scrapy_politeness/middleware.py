"""The downloader middlewares: the gate, and the way back for what was refused."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from scrapy.exceptions import IgnoreRequest, NotConfigured

from scrapy_politeness.classify import classify_exception, classify_response
from scrapy_politeness.core.outcome import Verdict
from scrapy_politeness.engine import host_of
from scrapy_politeness.extension import EXEMPT, PolitenessExtension
from scrapy_politeness.policy import is_enabled
from scrapy_politeness.robots import is_robots_txt

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self

    from scrapy_politeness.core.outcome import Outcome, Permit
    from scrapy_politeness.core.scope import Scope

logger = logging.getLogger(__name__)

RESCHEDULES = "politeness_reschedules"
# The request that the count belongs to: a spider that hands ``response.meta`` on to
# another request must not hand on the used-up count with it.
_COUNTED_FOR = "_politeness_counted_for"

# HttpCache skips what bears this mark, and takes the mark off.
_DONT_CACHE = "_dont_cache"

# A host that cannot even serve its robots.txt is asked a few times, ever more slowly;
# its pages are not held back for hours.
_ROBOTS_RESCHEDULES = 3
_SERVER_ERRORS = frozenset(range(500, 600))


def _extension_of(crawler: Crawler) -> PolitenessExtension:
    if not is_enabled(crawler.settings):
        raise NotConfigured
    extension = crawler.get_extension(PolitenessExtension)
    if extension is None:
        raise ValueError(
            "The middlewares of scrapy-politeness need "
            "scrapy_politeness.PolitenessExtension in EXTENSIONS; "
            "scrapy_politeness.Addon in ADDONS installs all of them"
        )
    return extension


class PolitenessMiddleware:
    """The gate, last before the downloader: counts what is really sent."""

    def __init__(self, extension: PolitenessExtension) -> None:
        self._extension = extension
        self._flights: WeakKeyDictionary[Request, tuple[Scope, Permit]] = (
            WeakKeyDictionary()
        )
        self._handed_back: WeakSet[Request] = WeakSet()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(_extension_of(crawler))

    async def process_request(self, request: Request) -> Request | None:
        extension = self._extension
        scope = extension.scope_for(request)
        if scope is None:
            return None
        if not request.meta.get(EXEMPT):
            await self._know_robots(request)
            asked_at = time.monotonic()
            permit = await extension.gate.enter(scope, request)
            if permit is None:
                return self._hand_back(request)
            self._flights[request] = (scope, permit)
            self._count_wait(permit.sent_at - asked_at)
        extension.engine.take_over(request, scope.key, scope.concurrency)
        return None

    def process_response(self, request: Request, response: Response) -> Response:
        codes = self._extension.policy.http_codes
        if is_robots_txt(request):
            codes |= _SERVER_ERRORS
        outcome = classify_response(response, codes, time.time())
        if self._settle(request, outcome) and outcome.verdict is Verdict.REFUSED:
            request.meta[_DONT_CACHE] = True
            self._extension.refused.add(request)
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        self._settle(request, classify_exception(exception))

    async def _know_robots(self, request: Request) -> None:
        extension = self._extension
        if not extension.policy.robots or not host_of(request):
            return
        if is_robots_txt(request):
            extension.robots.note_request(request)
        elif request.url.startswith("http"):
            await extension.robots.ensure(request)

    def _settle(self, request: Request, outcome: Outcome) -> bool:
        """Return False for what never passed the gate, such as a cached response."""
        flight = self._flights.pop(request, None)
        if flight is None:
            self._extension.claims.release(request)
            return False
        self._extension.settle(*flight, outcome)
        return True

    def _count_wait(self, seconds: float) -> None:
        if seconds <= 0:
            return
        stats = self._extension.stats
        stats.inc_value("politeness/waits")
        waited = stats.get_value("politeness/wait_seconds", 0.0)
        stats.set_value("politeness/wait_seconds", waited + seconds)

    def _hand_back(self, request: Request) -> Request:
        """The spider closes: back to the scheduler, for a later run to find.

        What was not scheduled in the first place, such as robots.txt, comes straight
        back here instead, and then has to be dropped.
        """
        if request in self._handed_back:
            raise IgnoreRequest("The spider closes while this request was held")
        self._extension.stats.inc_value("politeness/handed_back")
        self._extension.claims.release(request)
        copy = request.replace(dont_filter=True)
        self._handed_back.add(copy)
        return copy


class RescheduleMiddleware:
    """Sends refused requests back to the scheduler.

    It sits further in than the gate, so that a refused response has passed
    DownloaderStats and CookiesMiddleware, and further out than RetryMiddleware, which
    would count it as one of RETRY_TIMES.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._extension = _extension_of(crawler)
        self._crawler = crawler
        self._log = logging.LoggerAdapter(logger, {"spider": crawler.spider})

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_response(
        self, request: Request, response: Response
    ) -> Request | Response:
        if request not in self._extension.refused:
            request.meta.pop(_COUNTED_FOR, None)
            return response
        self._extension.refused.discard(request)
        request.meta.pop(_DONT_CACHE, None)
        if request.meta.get("dont_retry"):
            return response
        return self._copy(request, response) or response

    def _copy(self, request: Request, response: Response) -> Request | None:
        fingerprinter = self._crawler.request_fingerprinter
        assert fingerprinter is not None
        identity = fingerprinter.fingerprint(request).hex()
        counted = request.meta.get(_COUNTED_FOR) == identity
        done = request.meta.get(RESCHEDULES, 0) if counted else 0
        if done >= self._most(request):
            self._give_up(request, response, done)
            return None
        self._extension.stats.inc_value("politeness/rescheduled")
        copy = request.replace(dont_filter=True)
        copy.meta.pop("cached_response", None)  # HttpCache's, and not serialisable
        copy.meta.update({RESCHEDULES: done + 1, _COUNTED_FOR: identity})
        return copy

    def _most(self, request: Request) -> int:
        most = self._extension.policy.max_reschedules
        return min(most, _ROBOTS_RESCHEDULES) if is_robots_txt(request) else most

    def _give_up(self, request: Request, response: Response, done: int) -> None:
        self._extension.stats.inc_value("politeness/given_up")
        self._log.warning(
            "%(request)s was refused (%(status)d) after %(done)d reschedules, "
            "passing the refusal on",
            {"request": request, "status": response.status, "done": done},
        )
