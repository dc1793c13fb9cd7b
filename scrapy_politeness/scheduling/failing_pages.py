"""Pages that are refused again and again while others of their host are served."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from scrapy_politeness.core.failing_page import Failures, Persistence
from scrapy_politeness.core.outcome import Verdict
from scrapy_politeness.core.text import duration
from scrapy_politeness.http.names import public_request
from scrapy_politeness.storage.marks import mark_page, page_marks_of
from scrapy_politeness.storage.placement import Placement, Where

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.outcome import Outcome
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.http.scrapy_internals import Engine
    from scrapy_politeness.scheduling.registry import SlotRegistry
    from scrapy_politeness.scheduling.tickets import Ticket

logger = logging.getLogger(__name__)

_FAILURES = "failures"


class FailingPages:
    """``has_work`` tells whether anything waits for a slot that may go as soon as it is
    ready."""

    def __init__(
        self,
        policy: Policy,
        engine: Engine,
        registry: SlotRegistry,
        has_work: Callable[[Slot], bool],
        crawler: Crawler,
    ) -> None:
        bounds = policy.bounds
        self._persistence = Persistence(bounds.backoff_base, bounds.backoff_max)
        self._engine = engine
        self._registry = registry
        self._has_work = has_work
        self._crawler = crawler
        self._log = logging.LoggerAdapter(logger, {"spider": crawler.spider})

    def refused(
        self, ticket: Ticket, slot: Slot, status: int, outcome: Outcome
    ) -> Outcome:
        """A request was refused, and its slot has not learned of it yet. Return what
        that tells about the host."""
        request = ticket.request
        wall_now = time.time()
        before = self._failures_of(request)
        speaks_of_rate = _speaks_of_rate(status, outcome)
        if before is None:
            refusal = Refusal(Failures(wall_now), outcome.reason, is_first=True)
        else:
            served_at = _served_at(slot, wall_now)
            failures = before.refused(
                wall_now,
                others_served=served_at > before.refused_at,
                alone=self._is_alone(request, slot),
                suspect=served_at > -math.inf and not speaks_of_rate,
            )
            refusal = Refusal(failures, outcome.reason)
        ticket.refusal = refusal
        if refusal.failures.spares_host(speaks_of_rate=speaks_of_rate):
            return replace(outcome, verdict=Verdict.FAILED)
        return outcome

    def placement(self, ticket: Ticket, slot: Slot) -> Placement | None:
        """Return where a request that was refused is to wait; None if it is given up
        because it is the page that fails."""
        request = ticket.request
        refusal = _refusal_of(ticket)
        failures = refusal.failures
        alone = self._is_alone(request, slot)
        now, noise = failures.refused_at, slot.noise
        at = self._persistence.next_try(failures, now, alone=alone, noise=noise)
        if at == math.inf:
            self._warn(request, refusal)
            return None
        silence = max(0.0, slot.blocked_until - time.monotonic())
        if at > now:
            # Others have to be asked for in between, or nothing is learned.
            gap = at - now if alone else at - now + silence
            # The last try need not be waited for where nothing else is.
            early = self._persistence.gives_up(failures, alone=True, noise=noise)
            self._log.debug(
                "%(request)s fails (%(reason)s): next try in %(gap).3g s",
                {
                    "request": public_request(request),
                    "reason": refusal.reason,
                    "gap": gap,
                },
            )
            return Placement(Where.HELD, gap, early=early, failing=True)
        # With the highest priority, a page that was refused would be the next to go,
        # and nobody would ever know whether others are served.
        where = Where.BEHIND if refusal.is_first else Where.LAST
        seconds = silence + self._persistence.behind
        return Placement(where, seconds, failing=failures.times > 0)

    def remember(self, ticket: Ticket, copy: Request) -> None:
        """The copy is going to be asked for in the place of the request."""
        failures = _refusal_of(ticket).failures
        known = [
            failures.refused_at,
            failures.times,
            failures.since,
            failures.witnessed,
        ]
        mark_page(self._crawler, copy, **{_FAILURES: known})

    def _is_alone(self, request: Request, slot: Slot) -> bool:
        """Tell whether its slot has nothing else to do but failing pages."""
        if self._has_work(slot):
            return False
        return all(
            other is request
            or self._is_failing(other)
            or self._registry.key_for(other) != slot.key
            for other in self._engine.in_progress()
        )

    def _is_failing(self, request: Request) -> bool:
        failures = self._failures_of(request)
        return failures is not None and failures.times > 0

    def _failures_of(self, request: Request) -> Failures | None:
        known = page_marks_of(self._crawler, request).get(_FAILURES)
        return None if known is None else Failures(*known)

    def _warn(self, request: Request, refusal: Refusal) -> None:
        self._log.warning(
            "%(request)s fails while other pages of its host %(are)s served "
            "(%(reason)s, %(times)d times in %(span)s): passing the failure on",
            {
                "request": public_request(request),
                "are": "are" if refusal.failures.witnessed else "were",
                "reason": refusal.reason,
                "times": refusal.failures.times,
                "span": duration(refusal.failures.seconds),
            },
        )


class Refusal:
    def __init__(
        self, failures: Failures, reason: str, *, is_first: bool = False
    ) -> None:
        self.failures = failures
        self.reason = reason
        self.is_first = is_first


def _refusal_of(ticket: Ticket) -> Refusal:
    if ticket.refusal is None:  # it had nothing to do with the rate
        ticket.refusal = Refusal(Failures(time.time()), "", is_first=True)
    return ticket.refusal


def _speaks_of_rate(status: int, outcome: Outcome) -> bool:
    is_error = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return not is_error or outcome.wait is not None or outcome.quota is not None


def _served_at(slot: Slot, wall_now: float) -> float:
    """By the wall clock, when the last request was sent that was served."""
    return wall_now - (time.monotonic() - slot.served_sent_at)
