"""Sends refused requests back to the scheduler."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from scrapy_politeness.core.cause import Block
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.route import Flight, Route
from scrapy_politeness.http.names import public_request
from scrapy_politeness.robots.request import MAX_RESCHEDULES, OWN_FETCH, robots_site
from scrapy_politeness.scheduling.tickets import Ticket
from scrapy_politeness.storage.marks import (
    for_the_scheduler,
    mark_page,
    page_marks_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_politeness.components.parts import Parts
    from scrapy_politeness.core.slot import Slot

logger = logging.getLogger(__name__)

RESCHEDULES = "politeness_reschedules"
# Given up already; Scrapy's own retries may follow.
_GIVEN_UP = "given_up"
_REFUSED = "refused"
_AGAIN = "requested again"
# The spider has found out that it was refused: what is known of the page has to outlast
# an answer that seems to be one, and the cache must not be asked for it.
BY_SPIDER = "by_spider"

_VERDICT = "the spider's verdict"

# HttpCache skips what has this mark, and removes it.
DONT_CACHE = "_dont_cache"
# For its "dont_cache", on requests that it must not answer, but whose answer it may
# keep.
NOT_FROM_CACHE = "politeness"


class Rescheduler:
    def __init__(self, parts: Parts, crawler: Crawler) -> None:
        self._parts = parts
        self._crawler = crawler
        self._log = logging.LoggerAdapter(logger, {"spider": crawler.spider})

    def reschedule(
        self, ticket: Ticket, reason: str, response: Response | None = None
    ) -> Request | None:
        """Return a copy for the scheduler; None if the refusal is to be passed on."""
        request = ticket.request
        self._parts.tickets.drop(ticket)
        request.meta.pop(DONT_CACHE, None)
        if OWN_FETCH in request.meta:
            request.meta["dont_retry"] = True  # Robots repeats it itself
        assert ticket.flight is not None
        slot = ticket.flight.route.slot
        if request.meta.get("dont_retry") and not slot.is_stopped:
            return None
        self._parts.dead_hosts.check(request, slot, response)
        return self._copy(ticket, reason, slot)

    def pass_on(self, ticket: Ticket, response: Response) -> Response:
        """It was not refused after all."""
        self._parts.tickets.drop(ticket)
        ticket.request.meta.pop(DONT_CACHE, None)
        return response

    def refuse(self, response: Response, slot: Slot, wait: float | None) -> bool:
        """The spider has found out that a response, which has counted as served, means
        "too fast". Return whether its page will be requested again."""
        if _REFUSED in response.flags:  # by another callback already
            return _AGAIN in response.flags
        response.flags.append(_REFUSED)
        is_rescheduled = self._refuse(response, slot, wait)
        if is_rescheduled:
            response.flags.append(_AGAIN)
        return is_rescheduled

    def _refuse(self, response: Response, slot: Slot, wait: float | None) -> bool:
        request = response.request
        assert request is not None
        parts, now = self._parts, time.monotonic()
        sent_at = now - float(request.meta.get("download_latency") or 0.0)
        leases = slot.permits.leases
        cuts = 0 if leases is None else leases.cuts
        flight = Flight(Route(slot), Permit(sent_at, paced=False, cuts=cuts), ())
        ticket = Ticket(parts.tickets, request, flight=flight)
        if wait is None:
            wait = self._own_wait(request)
        outcome = Outcome(Verdict.REFUSED, _VERDICT, wait, names_rate=True)
        # What comes from the cache says nothing about the host of today.
        if "cached" not in response.flags:
            slot.serving.unserve()
            parts.events.unserved(slot)
            failing = parts.failing_pages
            outcome = failing.refused(ticket, slot, response.status, outcome)
            if slot.paused_until <= now:
                parts.feedback.settle_again(flight, outcome)
            elif wait is not None:  # it was sent together with one refused already
                slot.block(Block.PAUSE, now + min(wait, parts.policy.longest_pause))
        if request not in parts.engine.in_progress():
            return False  # an inline request: whoever waits for it has to repeat it
        copy = self.reschedule(ticket, _VERDICT, response)
        if copy is None:
            return False
        facts = page_marks_of(self._crawler, copy)
        mark_page(self._crawler, copy, {**facts, BY_SPIDER: True})
        parts.engine.schedule(copy)
        return True

    def stop(self, response: Response, slot: Slot) -> None:
        if "cached" not in response.flags:
            self._parts.dead_hosts.stop(slot, _VERDICT)

    def _own_wait(self, request: Request) -> float | None:
        """Return how long to pause, as each refusal came after an answer that seemed
        to be a page; None for the first."""
        if BY_SPIDER not in page_marks_of(self._crawler, request):
            return None
        done, bounds = request.meta.get(RESCHEDULES, 0), self._parts.policy.bounds
        if not done:
            return None
        return float(min(bounds.backoff_base * 2.0**done, bounds.backoff_max))

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
        elif not self._parts.failing_pages.place(copy, ticket, slot, done):
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
            "%(request)s was refused (%(reason)s) after %(done)d reschedules; "
            "passing the refusal on",
            {
                "request": public_request(request),
                "reason": reason,
                "done": done,
            },
        )
