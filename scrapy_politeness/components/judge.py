"""What a failed download means, for all that its host did before."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_politeness.components.rescheduler import DONT_CACHE, RESCHEDULES
from scrapy_politeness.core.outcome import Verdict
from scrapy_politeness.http.names import printable
from scrapy_politeness.robots.request import OWN_FETCH, judged

if TYPE_CHECKING:
    from scrapy import Request, Spider

    from scrapy_politeness.components.parts import Parts
    from scrapy_politeness.core.outcome import Outcome
    from scrapy_politeness.core.route import Flight
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.scheduling.tickets import Ticket

logger = logging.getLogger(__name__)


class Judge:
    """Marks the tickets of requests that have to be repeated later as refused."""

    def __init__(self, parts: Parts, spider: Spider | None) -> None:
        self._parts = parts
        self._log = logging.LoggerAdapter(logger, {"spider": spider})

    def of_exception(self, ticket: Ticket, flight: Flight, outcome: Outcome) -> Outcome:
        outcome = _judged(ticket, flight, outcome)
        ticket.is_refused = outcome.verdict.is_refusal or _is_noise(
            ticket.request, flight.route.slot, outcome
        )
        return outcome

    def of_response(
        self,
        ticket: Ticket,
        flight: Flight,
        status: int,
        outcome: Outcome,
        *,
        is_robots: bool,
    ) -> Outcome:
        parts, request, slot = self._parts, ticket.request, flight.route.slot
        outcome = _judged(ticket, flight, outcome)
        if outcome.may_be_wall:
            outcome = self._of_forbidden(ticket, flight, outcome)
        elif parts.doubts.held:
            parts.doubts.answered(slot, flight.permit.sent_at, outcome)
        is_unwelcome = outcome.verdict is Verdict.UNWELCOME
        if (
            outcome.verdict.is_refusal
            or is_unwelcome
            or ticket.doubt is not None
            or _is_noise(request, slot, outcome)
        ):
            ticket.is_refused = True
            request.meta[DONT_CACHE] = True
        is_refusal = outcome.verdict is Verdict.REFUSED and not outcome.is_block
        if is_refusal and not is_robots:
            outcome = parts.failing_pages.refused(ticket, slot, status, outcome)
        if is_unwelcome:
            parts.dead_hosts.stop(slot, outcome.reason)
        return outcome

    def _of_forbidden(
        self, ticket: Ticket, flight: Flight, outcome: Outcome
    ) -> Outcome:
        doubts, slot, permit = self._parts.doubts, flight.route.slot, flight.permit
        is_repeated = RESCHEDULES in ticket.request.meta
        was_doubtful = slot.serving.doubts_forbidden
        outcome = slot.serving.judged_forbidden(
            permit, outcome, is_repeated=is_repeated
        )
        if outcome.is_block:
            doubts.refused(slot)
        elif not slot.serving.doubts_forbidden:
            if was_doubtful:
                self._log.info(
                    "%(slot)s: still %(reason)s after several pauses, so these pages "
                    "seem to be forbidden; passing such responses on from now on",
                    {"slot": printable(slot.key), "reason": outcome.reason},
                )
        elif not is_repeated:
            ticket.doubt = doubts.hold(slot, permit.sent_at)
        return outcome


def _judged(ticket: Ticket, flight: Flight, outcome: Outcome) -> Outcome:
    """Pages that fail again and again, the last ones of a crawl, are no block."""
    verdict = outcome.verdict
    if not verdict.may_be_block and not verdict.is_overload:
        return outcome
    meta = ticket.request.meta
    if OWN_FETCH in meta:
        return judged(ticket.request, outcome)
    if not verdict.may_be_block:
        return outcome
    if "retry_times" in meta or RESCHEDULES in meta:
        outcome = outcome._replace(is_repeated=True)
    return flight.route.slot.serving.judged(flight.permit, outcome)


def _is_noise(request: Request, slot: Slot, outcome: Outcome) -> bool:
    """Tell whether a connection that was cut is to be repeated without using up
    RETRY_TIMES."""
    if outcome.verdict is not Verdict.UNREACHABLE or OWN_FETCH in request.meta:
        return False
    tries: int = request.meta.get(RESCHEDULES, 0)
    return tries < slot.serving.most_cuts
