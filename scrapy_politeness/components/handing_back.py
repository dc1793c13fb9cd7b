"""Requests that leave the downloader's middlewares without having been sent."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest
from scrapy.http.request import NO_CALLBACK

from scrapy_politeness.http.names import public_request
from scrapy_politeness.robots.request import robots_site
from scrapy_politeness.storage.marks import FRONT, for_the_scheduler

if TYPE_CHECKING:
    from scrapy import Request, Spider

    from scrapy_politeness.components.parts import Parts
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.scheduling.tickets import Ticket

logger = logging.getLogger(__name__)

# Seconds. While the spider closes, requests that cannot go back to the scheduler may
# still be sent for this long.
_LONGEST_CLOSING = 4.0


class HandingBack:
    """Returns requests to the scheduler, for later or for a later run."""

    def __init__(self, parts: Parts, spider: Spider | None) -> None:
        self._parts = parts
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        # Until when requests may be sent, once the spider closes.
        self._closes_at: float | None = None

    def closes_in(self) -> float:
        now = time.monotonic()
        if self._closes_at is None:
            self._closes_at = now + _LONGEST_CLOSING
        return self._closes_at - now

    @staticmethod
    def is_unscheduled(ticket: Ticket) -> bool:
        """Media, robots.txt: what the scheduler cannot take back. Or it was handed back
        already, and has not come through the queue since."""
        is_back = ticket.is_handed_back and not ticket.by_queue
        return is_back or ticket.request.callback is NO_CALLBACK

    def hand_back(self, ticket: Ticket, slot: Slot) -> Request:
        """Return what the scheduler is to get, unless the host is dead."""
        request = ticket.request
        self._parts.dead_hosts.check(request, slot)
        if self.is_unscheduled(ticket):
            self._count_drop(request)
            raise IgnoreRequest(
                "The spider is closing, and this request was still waiting"
            )
        self._parts.stats.inc_value("politeness/handed_back")
        copy = for_the_scheduler(request)
        FRONT.put_on(copy)
        ticket.hand_back(copy)
        return copy

    def _count_drop(self, request: Request) -> None:
        if robots_site(request) is not None:
            return
        stats = self._parts.stats
        if not stats.get_value("politeness/dropped_on_closing"):
            self._log.warning(
                "The spider is closing: dropped %(request)s, which cannot go back to "
                "the scheduler and whose host will not be ready within %(patience).3g "
                "s. Further drops are only counted",
                {"request": public_request(request), "patience": _LONGEST_CLOSING},
            )
        stats.inc_value("politeness/dropped_on_closing")
