"""How much of a robots.txt is downloaded and parsed, here and by Scrapy.

RFC 9309 lets crawlers stop after 500 KiB. Scrapy's own parser takes the event loop
about a second for every megabyte.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy.exceptions import NotConfigured, StopDownload

from scrapy_politeness.config.table import SETTINGS
from scrapy_politeness.http.names import public
from scrapy_politeness.robots.request import robots_site
from scrapy_politeness.robots.rules import MAX_SIZE, shortened

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self

logger = logging.getLogger(__name__)


class RobotsDownload:
    """Stops a download after the part that will be read."""

    def __init__(self, spider: Spider | None) -> None:
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        self._received: WeakKeyDictionary[Request, int] = WeakKeyDictionary()

    def bytes_received(self, data: bytes, request: Request) -> None:
        site = robots_site(request)
        if site is None:
            return
        size = self._received.get(request, 0) + len(data)
        self._received[request] = size
        if size > MAX_SIZE:
            self._log.warning(
                "robots.txt of %(site)s is longer than %(most)d KiB; the rest of it is "
                "not read",
                {"site": public(site), "most": MAX_SIZE // 1024},
            )
            raise StopDownload(fail=False)


class RobotsSizeMiddleware:
    """Shortens what was small before it was decompressed. Left out where no robots.txt
    is read, since each middleware costs time for each response."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        settings = crawler.settings
        reads = SETTINGS["POLITENESS_ROBOTS"].read(settings)
        if not reads and not settings.getbool("ROBOTSTXT_OBEY"):
            raise NotConfigured
        return cls()

    def process_response(self, request: Request, response: Response) -> Response:
        if len(response.body) <= MAX_SIZE or robots_site(request) is None:
            return response
        return response.replace(body=shortened(response.body))
