"""``python scrapy_run.py URLS SETTINGS``: a crawl with Scrapy, as a user has it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.downloadermiddlewares.retry import RetryMiddleware

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.http import Response


class SleepOn429(RetryMiddleware):
    """What most projects copy: it stops everything for as long as the server asks for,
    or for a minute."""

    def process_response(
        self, request: Request, response: Response, spider: Spider | None = None
    ) -> Request | Response:
        if response.status == 429:
            engine: Any = self.crawler.engine
            engine.pause()
            time.sleep(float(response.headers.get("Retry-After") or 60))
            engine.unpause()
            return self._retry(request, "429") or response
        return super().process_response(request, response)

    @classmethod
    def from_crawler(cls, crawler: Any) -> SleepOn429:
        middleware = super().from_crawler(crawler)
        middleware.crawler = crawler
        return middleware


class Pages(Spider):
    name = "pages"

    async def start(self) -> AsyncIterator[Request]:
        for url in Path(sys.argv[1]).read_text().split():
            yield Request(url)

    def parse(self, response: Response) -> None:
        pass


if __name__ == "__main__":
    process = AsyncCrawlerProcess({"LOG_ENABLED": False, **json.loads(sys.argv[2])})
    process.crawl(Pages)
    process.start()
