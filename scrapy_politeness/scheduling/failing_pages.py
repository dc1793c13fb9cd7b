"""Pages that are refused again and again while others of their host are served."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_politeness.core.failing_page import Failures, Persistence
from scrapy_politeness.core.outcome import Verdict
from scrapy_politeness.core.text import duration
from scrapy_politeness.http.names import public_request
from scrapy_politeness.storage.marks import Placement, Where, mark_page, page_marks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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


class Refusal(NamedTuple):
    """What a refused answer says about its page, of which ``earlier`` is remembered.
    ``wait`` is the time that it asked for, in seconds."""

    failures: Failures
    reason: str
    earlier: Mapping[str, Any]
    wait: float = 0.0


class FailingPages:
    """``has_work`` tells whether anything waits for a slot that may go as soon as the
    slot is ready."""

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
        self._longest_wait = policy.retry_after_max
        self._engine = engine
        self._registry = registry
        self._has_work = has_work
        self._crawler = crawler
        self._log = logging.LoggerAdapter(logger, {"spider": crawler.spider})

    def refused(
        self, ticket: Ticket, slot: Slot, status: int, outcome: Outcome
    ) -> Outcome:
        """A request was refused, and its slot has not learned of it yet. Return what
        that says about the host."""
        request = ticket.request
        wall_now = time.time()
        earlier = page_marks_of(self._crawler, request)
        before = _failures(earlier)
        speaks_of_rate = _speaks_of_rate(status, outcome)
        failures = Failures(wall_now)
        if before is not None:
            served_at = _served_at(slot, wall_now)
            failures = before.refused(
                wall_now,
                others_served=served_at > before.refused_at,
                alone=self._is_alone(request, slot),
                suspect=served_at > -math.inf and not speaks_of_rate,
            )
        wait = min(outcome.wait or 0.0, self._longest_wait)
        ticket.refusal = Refusal(failures, outcome.reason, earlier, wait)
        if failures.spares_host(speaks_of_rate=speaks_of_rate):
            return outcome._replace(verdict=Verdict.FAILED)
        return outcome

    def place(
        self, copy: Request, ticket: Ticket, slot: Slot, reschedules: int
    ) -> bool:
        """Mark the copy of a refused request with where it is to wait, and with what is
        known of its page, which was rescheduled so often before. Return False if the
        page is given up instead."""
        request = ticket.request
        refusal = ticket.refusal
        if refusal is None:  # it was not about the rate
            earlier = page_marks_of(self._crawler, request)
            before = _failures(earlier) or Failures(0.0)
            refusal = Refusal(replace(before, refused_at=time.time()), "", earlier)
        failures = refusal.failures
        placement = self._placement(request, refusal, slot)
        is_cut = ticket.outcome is not None and ticket.outcome.is_cut
        if is_cut and reschedules and not slot.serving.noise:
            # Where nothing else is left, nothing else would show a block. It has to be
            # over by the last try.
            placement = Placement(Where.HELD, self._persistence.gap(reschedules))
        if placement is None:
            self._warn(request, refusal)
            return False
        placement.put_on(copy)
        known = (failures.refused_at, failures.times, failures.since)
        facts = {**refusal.earlier, _FAILURES: [*known, failures.witnessed]}
        mark_page(self._crawler, copy, facts)
        return True

    def _placement(
        self, request: Request, refusal: Refusal, slot: Slot
    ) -> Placement | None:
        failures = refusal.failures
        pause = max(0.0, slot.blocked_until - time.monotonic())
        if slot.is_dead and slot.is_stopped:
            pause = 0.0  # it is kept for the next run, which may be welcome
        alone, noise = False, slot.noise
        if failures.by_page:
            alone = self._is_alone(request, slot)
        now = failures.refused_at
        at = self._persistence.next_try(failures, now, alone=alone, noise=noise)
        if at == math.inf:
            return None
        if at <= now:
            # With the highest priority, a page that was refused would be the next to
            # go, and nothing would show whether others are served.
            where = Where.LAST if _FAILURES in refusal.earlier else Where.BEHIND
            seconds = pause + self._persistence.behind
            return Placement(where, seconds, failing=failures.times > 0)
        # Others have to be asked for in between, or nothing is learned.
        gap = max(at - now if alone else at - now + pause, refusal.wait)
        # The last try need not be waited for where nothing else is left.
        early = not refusal.wait and self._persistence.gives_up(
            failures, alone=True, noise=noise
        )
        self._log.debug(
            "%(request)s fails (%(reason)s): next try in %(gap).3g s",
            {
                "request": public_request(request),
                "reason": refusal.reason,
                "gap": gap,
            },
        )
        return Placement(Where.HELD, gap, early=early, failing=True)

    def _is_alone(self, request: Request, slot: Slot) -> bool:
        """Tell whether its slot has nothing left but failing pages."""
        if self._has_work(slot):
            return False
        return all(
            other is request
            or self._is_failing(other)
            or self._registry.key_for(other) != slot.key
            for other in self._engine.in_progress()
        )

    def _is_failing(self, request: Request) -> bool:
        failures = _failures(page_marks_of(self._crawler, request))
        return failures is not None and failures.times > 0

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


def _failures(marks: Mapping[str, Any]) -> Failures | None:
    return Failures(*marks[_FAILURES]) if _FAILURES in marks else None


def _speaks_of_rate(status: int, outcome: Outcome) -> bool:
    is_error = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return not is_error or outcome.wait is not None or outcome.quota is not None


def _served_at(slot: Slot, wall_now: float) -> float:
    """By the wall clock, when the last request was sent that was served."""
    return wall_now - (time.monotonic() - slot.serving.sent_at)
