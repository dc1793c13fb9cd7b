"""How much of a robots.txt is parsed, by whomever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_politeness.robots import robots_site
from scrapy_politeness.robots_txt import MAX_SIZE, shortened

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response


class RobotsSizeMiddleware:
    """Shortens a robots.txt that was small before it was decompressed: Scrapy's own
    parser takes a second for every megabyte, in the event loop."""

    def process_response(self, request: Request, response: Response) -> Response:
        if len(response.body) <= MAX_SIZE or robots_site(request) is None:
            return response
        return response.replace(body=shortened(response.body))
