"""``python crawlee_run.py URLS``: a crawl with Crawlee for Python, with the throttling
that its documentation recommends."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from urllib.parse import urlsplit

from crawlee.crawlers import HttpCrawler, HttpCrawlingContext
from crawlee.request_loaders import ThrottlingRequestManager
from crawlee.storages import RequestQueue


async def main() -> None:
    urls = Path(sys.argv[1]).read_text().split()
    manager = ThrottlingRequestManager(
        inner=await RequestQueue.open(),
        domains=[urlsplit(urls[0]).hostname or ""],
        request_manager_opener=RequestQueue.open,
    )
    crawler = HttpCrawler(
        request_manager=manager,
        respect_robots_txt_file=True,
        configure_logging=False,
    )

    @crawler.router.default_handler
    async def handle(context: HttpCrawlingContext) -> None:
        await context.http_response.read()

    await crawler.run(urls)


asyncio.run(main())
