"""The downloader middleware that requests wait in for their turn."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.http.request import NO_CALLBACK

from scrapy_politeness.components.extension import parts_if_enabled
from scrapy_politeness.components.handing_back import HandingBack
from scrapy_politeness.components.judge import Judge
from scrapy_politeness.components.rescheduler import NOT_FROM_CACHE, RESCHEDULES
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.pace import NO_WAIT
from scrapy_politeness.http.classify import classify_exception, classify_response
from scrapy_politeness.http.names import printable
from scrapy_politeness.http.scrapy_internals import host_of
from scrapy_politeness.http.throttler import HAS_THROTTLER
from scrapy_politeness.robots.request import (
    refusals_of,
    robots_site,
    unlimit_download,
)
from scrapy_politeness.scheduling.gate import SHORT_WAIT
from scrapy_politeness.scheduling.registry import EXEMPT
from scrapy_politeness.scheduling.tickets import State

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self

    from scrapy_politeness.core.route import Route
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.scheduling.tickets import Ticket

logger = logging.getLogger(__name__)


class PolitenessMiddleware:
    """The gate, last before the downloader: counts what is really sent."""

    def __init__(self, crawler: Crawler) -> None:
        self._parts = parts_if_enabled(crawler, type(self).__name__)
        self._log = logging.LoggerAdapter(logger, {"spider": crawler.spider})
        self._handing_back = HandingBack(self._parts, crawler.spider)
        self._judge = Judge(self._parts, crawler.spider)
        addresses = crawler.settings.getint("CONCURRENT_REQUESTS_PER_IP")
        self._is_exempt_logged = False
        self._by_address = addresses > 0 and not HAS_THROTTLER
        # The response may never get to process_response: the download was cancelled,
        # or a middleware closer to the downloader kept it.
        crawler.signals.connect(self._downloaded, signals.response_downloaded)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        parts, meta = self._parts, request.meta
        if request.callback is NO_CALLBACK:
            unlimit_download(request)
        if meta.get("dont_cache") == NOT_FROM_CACHE:
            del meta["dont_cache"]
        ticket = parts.tickets.get(request)
        slot = self._slot_for(request, ticket)
        if slot is None or meta.get(EXEMPT):
            self._not_limited(request)
        else:
            if ticket is None or ticket.state is not State.CLAIMED:
                ticket = self._begin(request)
            if ticket.is_in_line:
                # The same object is downloaded twice at once, but a ticket is for one
                # download.
                return request.copy()
            now = time.monotonic()
            ticket.arrive(now)
            if slot.is_dead and slot.is_given_up(now):
                return self._handing_back.hand_back(ticket, slot)
            if self._lacks_robots(request):
                is_known = await parts.robots.ensure(ticket, slot)
                ticket.go_on()
                if not is_known:
                    return self._handing_back.hand_back(ticket, slot)
            if self._by_address:
                # Now that the address is known, it is the slot.
                slot = self._slot_for(request, ticket)
            if slot is None:
                self._not_limited(request)
            elif not await self._pass(ticket, slot):
                return self._handing_back.hand_back(ticket, slot)
        if slot is None:
            if not self._is_exempt_logged:
                self._log_exempt(request)
            parts.engine.stamp(request, parts.registry.key_for(request))
        else:
            parts.engine.take_over(request, slot.key, slot.concurrency)
        return None

    def process_exception(self, request: Request, exception: Exception) -> None:
        ticket = self._parts.tickets.get(request)
        if ticket is not None:
            outcome = classify_exception(exception, request)
            if ticket.flight is not None and ticket.state is State.SENT:
                outcome = self._judge.of_exception(ticket, ticket.flight, outcome)
            self._parts.feedback.end(ticket, outcome)

    # With ``**_``, the dispatcher need not select the arguments each time.
    def _downloaded(self, response: Response, request: Request, **_: object) -> None:
        parts = self._parts
        ticket = parts.tickets.get(request)
        if ticket is None or ticket.state is not State.SENT:
            return
        flight, policy = ticket.flight, parts.policy
        assert flight is not None
        slot = flight.route.slot
        codes: AbstractSet[int] = policy.http_codes
        is_robots = request.callback is NO_CALLBACK and bool(robots_site(request))
        if is_robots:
            codes = refusals_of(slot, codes)
        outcome = classify_response(
            response, codes, time.time(), policy.refusals, is_page=not is_robots
        )
        if outcome.verdict is not Verdict.SERVED:
            outcome = self._judge.of_response(
                ticket, flight, response.status, outcome, is_robots=is_robots
            )
        elif parts.doubts.held:
            parts.doubts.answered(slot, flight.permit.sent_at, outcome)
        if flight.transfer is not None and not flight.transfer.size:
            # Not every download handler says what it receives.
            flight.receive(len(response.body), time.monotonic())
        parts.feedback.end(ticket, outcome)
        if not is_robots:
            is_new = RESCHEDULES not in request.meta
            parts.feedback.compare_parts(ticket, outcome, is_new=is_new)
        if policy.ip_limit is not None:
            parts.registry.learn_address(request, response, flight.route)

    def _slot_for(self, request: Request, ticket: Ticket | None) -> Slot | None:
        registry = self._parts.registry
        # Both may give the request another slot than it had when it was queued.
        if ticket is not None and not self._by_address and not registry.has_splits:
            slot = ticket.claimed_slot
            if slot is not None:
                return slot
        return registry.slot_for(request)

    def _begin(self, request: Request) -> Ticket:
        earlier = self._parts.tickets.get(request)
        if earlier is not None and earlier.state is State.SENT:
            # The caller gave up waiting for the answer, and asks again.
            outcome = Outcome(Verdict.IGNORED, "sent again")
            self._parts.feedback.end(earlier, outcome)
        return self._parts.tickets.begin(request)

    def _log_exempt(self, request: Request) -> None:
        """Log once that something is not limited: whoever tries the add-on against a
        local server may wonder why."""
        host = host_of(request)
        if self._parts.policy.is_exempt(host):
            self._is_exempt_logged = True
            self._log.info(
                "%(host)s is in POLITENESS_EXEMPT, so its requests are not limited",
                {"host": printable(host)},
            )

    def _not_limited(self, request: Request) -> None:
        """End what the queue has limited, and the gate does not."""
        ticket = self._parts.tickets.get(request)
        if ticket is not None:
            outcome = Outcome(Verdict.IGNORED, "not limited")
            self._parts.feedback.end(ticket, outcome)
            self._parts.tickets.drop(ticket)

    def _lacks_robots(self, request: Request) -> bool:
        """Tell whether a robots.txt has to be fetched first."""
        parts = self._parts
        if not parts.policy.robots or not host_of(request):
            return False
        if robots_site(request) is not None or not request.url.startswith("http"):
            return False
        return not parts.robots.is_current(request)

    async def _pass(self, ticket: Ticket, slot: Slot) -> bool:
        parts = self._parts
        request = ticket.request
        if parts.policy.robots:
            parts.robots.obey(request, slot)
        asked_at = time.monotonic()
        if parts.policy.ip_limit and not parts.registry.knows_way(request):
            address = await parts.engine.resolve(host_of(request))
            if address is not None:
                parts.registry.learn_way(request, address)
        route = parts.registry.route_for(request, slot)
        leaves = partial(self._leaves, ticket, route)
        flight = await parts.gate.enter(ticket, route, leaves)
        if flight is None:
            return False
        parts.loop_lag.start()
        if flight.permit.resumed:
            parts.events.resumed(slot)
        parts.events.sent(flight, asked_at)
        parts.sharing.reserve(route, ahead=True)
        waited = flight.permit.sent_at - asked_at
        if waited >= NO_WAIT:
            stats = parts.stats
            stats.inc_value("politeness/waits")
            total = stats.get_value("politeness/wait_seconds", 0.0)
            stats.set_value("politeness/wait_seconds", total + waited)
        return True

    def _leaves(self, ticket: Ticket, route: Route, seen: float, wait: float) -> bool:
        """Tell whether a request leaves the gate rather than ``wait`` that long, of
        which ``seen`` seconds are for what the queue knows of."""
        if route.slot.is_dead and route.slot.is_given_up(time.monotonic()):
            return True
        if self._parts.engine.is_closing:
            back = self._handing_back
            return not back.is_unscheduled(ticket) or wait > back.closes_in()
        # What the queue handed out can wait there, outside memory; unless it waits for
        # what the queue does not know of, which would hand it out again at once.
        return ticket.by_queue and seen > SHORT_WAIT + route.slot.way
