"""The downloader middleware that reschedules refused requests."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy_politeness.components.extension import parts_if_enabled
from scrapy_politeness.http.names import public_request
from scrapy_politeness.robots.request import MAX_RESCHEDULES, OWN_FETCH, robots_site
from scrapy_politeness.storage.marks import (
    MARK,
    for_the_scheduler,
    leave_the_scheduler,
    mark_page,
    page_marks_of,
    unmark_page,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self

    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.scheduling.tickets import Ticket

logger = logging.getLogger(__name__)

RESCHEDULES = "politeness_reschedules"
# Given up already; Scrapy's own retries may follow.
_GIVEN_UP = "given_up"
_REFUSED = "refused"

# HttpCache skips what has this mark, and removes it.
DONT_CACHE = "_dont_cache"


class RescheduleMiddleware:
    """Sends refused requests back to the scheduler.

    It sits further in than the gate, so that a refused response has passed
    DownloaderStats and CookiesMiddleware, and further out than RetryMiddleware, which
    would count it as one of RETRY_TIMES.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._parts = parts_if_enabled(crawler, type(self).__name__)
        self._crawler = crawler
        self._log = logging.LoggerAdapter(logger, {"spider": crawler.spider})

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_request(self, request: Request) -> None:
        if MARK in request.meta:
            leave_the_scheduler(request)

    def process_response(
        self, request: Request, response: Response
    ) -> Request | Response:
        ticket = self._parts.tickets.get(request)
        if ticket is None or not ticket.is_refused:
            if MARK in request.meta:
                unmark_page(request)
            return response
        return self._reschedule(ticket, str(response.status)) or response

    def process_exception(
        self, request: Request, exception: Exception
    ) -> Request | None:
        ticket = self._parts.tickets.get(request)
        if ticket is None or not ticket.is_refused:
            return None
        return self._reschedule(ticket, type(exception).__name__)

    def _reschedule(self, ticket: Ticket, reason: str) -> Request | None:
        request = ticket.request
        self._parts.tickets.drop(ticket)
        request.meta.pop(DONT_CACHE, None)
        if OWN_FETCH in request.meta:
            request.meta["dont_retry"] = True  # Robots repeats it itself
        if request.meta.get("dont_retry"):
            return None
        assert ticket.flight is not None
        slot = ticket.flight.route.slot
        self._parts.dead_hosts.check(request, slot)
        return self._copy(ticket, reason, slot)

    def _copy(self, ticket: Ticket, reason: str, slot: Slot) -> Request | None:
        request = ticket.request
        is_robots = robots_site(request) is not None
        marks = page_marks_of(self._crawler, request)
        if _GIVEN_UP in marks:
            return None  # one of Scrapy's own retries
        # A spider that passes ``response.meta`` on to another request must not pass on
        # the used-up count with it.
        done = request.meta.get(RESCHEDULES, 0) if marks else 0
        most = self._parts.policy.max_reschedules
        if done >= (min(most, MAX_RESCHEDULES) if is_robots else most):
            self._log_refusal(request, reason, done)
            self._give_up(request, slot, marks)
            return None
        copy = for_the_scheduler(request)
        if is_robots:
            mark_page(self._crawler, copy, {_REFUSED: True})
        elif not self._parts.failing_pages.place(copy, ticket, slot):
            self._give_up(request, slot, marks)
            return None
        self._parts.events.rescheduled(slot.key)
        copy.meta.pop("cached_response", None)  # HttpCache's, and not serialisable
        copy.meta[RESCHEDULES] = done + 1
        return copy

    def _give_up(self, request: Request, slot: Slot, marks: Mapping[str, Any]) -> None:
        if robots_site(request) is not None:
            request.meta["dont_retry"] = True  # not by RetryMiddleware either
        mark_page(self._crawler, request, {**marks, _GIVEN_UP: True})
        self._parts.events.given_up(slot.key)

    def _log_refusal(self, request: Request, reason: str, done: int) -> None:
        self._log.warning(
            "%(request)s was refused (%(reason)s) after %(done)d reschedules, "
            "passing the refusal on",
            {
                "request": public_request(request),
                "reason": reason,
                "done": done,
            },
        )
