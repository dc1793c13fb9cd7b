"""The downloader middleware in which requests wait for the robots.txt of their host."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy.exceptions import NotConfigured

from scrapy_politeness.components.extension import parts_if_enabled
from scrapy_politeness.components.handing_back import HandingBack
from scrapy_politeness.http.scrapy_internals import host_of, is_local

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from typing_extensions import Self

    from scrapy_politeness.core.slot import Slot


class RobotsWaitMiddleware:
    """Before Scrapy's robots middleware, which then knows what to obey. Requests that
    have to wait for that take no place from others."""

    def __init__(self, crawler: Crawler) -> None:
        if not crawler.settings.getbool("ROBOTSTXT_OBEY"):
            raise NotConfigured
        self._parts = parts_if_enabled(crawler, type(self).__name__)
        self._handing_back = HandingBack(self._parts, crawler.spider)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        if request.meta.get("dont_obey_robotstxt") or is_local(request):
            return None
        slot = self._limiting_slot(request)
        if slot is None:
            # Scrapy fetches it for itself.
            if self._parts.engine.waits_for_robots_txt(request):
                self._parts.tickets.begin(request).wait()
            return None
        robots = self._parts.robots
        if not robots.is_current(request):
            ticket = self._parts.tickets.begin(request)
            is_given_up = slot.is_given_up(time.monotonic())
            if is_given_up or not await robots.ensure(ticket, slot):
                return self._handing_back.hand_back(ticket, slot)
        error = robots.error_for(request)
        if error is not None:
            # The same one for each page, or it would keep the frames of all of them.
            raise error.with_traceback(None)
        return None

    def _limiting_slot(self, request: Request) -> Slot | None:
        if not self._parts.policy.robots or not host_of(request):
            return None
        return self._parts.registry.slot_for(request)
