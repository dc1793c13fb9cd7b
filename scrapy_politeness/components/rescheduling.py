"""The downloader middleware that reschedules refused requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.http.request import NO_CALLBACK
from scrapy.utils.defer import maybe_deferred_to_future

from scrapy_politeness.components.extension import parts_if_enabled
from scrapy_politeness.components.rescheduler import BY_SPIDER, NOT_FROM_CACHE
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.robots.request import limit_unpacking
from scrapy_politeness.storage.marks import (
    MARK,
    leave_the_scheduler,
    page_marks_of,
    unmark_page,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.internet.defer import Deferred
    from typing_extensions import Self

    from scrapy_politeness.scheduling.tickets import Ticket


class RescheduleMiddleware:
    """Sends refused requests back to the scheduler.

    It sits further in than the gate, so that a refused response has passed
    DownloaderStats and CookiesMiddleware, and further out than RetryMiddleware, which
    would count it as one of RETRY_TIMES.
    """

    def __init__(self, crawler: Crawler) -> None:
        parts = parts_if_enabled(crawler, type(self).__name__)
        self._crawler = crawler
        self._tickets = parts.tickets
        self._feedback = parts.feedback
        self._rescheduler = parts.rescheduler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_request(self, request: Request) -> None:
        if MARK in request.meta:
            leave_the_scheduler(request)
            if BY_SPIDER in page_marks_of(self._crawler, request):
                # Further in than HttpCache, the gate takes it away.
                request.meta.setdefault("dont_cache", NOT_FROM_CACHE)

    def process_response(
        self, request: Request, response: Response
    ) -> Request | Response | Awaitable[Request | Response]:
        if request.callback is NO_CALLBACK:
            limit_unpacking(request)
        ticket = self._tickets.get(request)
        if ticket is not None and ticket.is_refused:
            if ticket.doubt is not None:
                # Scrapy awaits what a middleware returns.
                return self._decide(ticket, ticket.doubt, response)
            reason = str(response.status)
            return self._rescheduler.reschedule(ticket, reason, response) or response
        if ticket is not None:
            # What was downloaded has ended by now; this came from elsewhere.
            outcome = Outcome(Verdict.IGNORED, "not downloaded")
            self._feedback.end(ticket, outcome)
        if MARK in request.meta and BY_SPIDER not in page_marks_of(
            self._crawler, request
        ):
            unmark_page(request)
        return response

    async def _decide(
        self, ticket: Ticket, doubt: Deferred[bool], response: Response
    ) -> Request | Response:
        if not await maybe_deferred_to_future(doubt):
            return self._rescheduler.pass_on(ticket, response)
        reason = str(response.status)
        return self._rescheduler.reschedule(ticket, reason, response) or response

    def process_exception(
        self, request: Request, exception: Exception
    ) -> Request | None:
        ticket = self._tickets.get(request)
        if ticket is None or not ticket.is_refused:
            return None
        return self._rescheduler.reschedule(ticket, type(exception).__name__)
