"""Other download handlers than Scrapy's default one: what they fetch is limited."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import scrapy
import twisted
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.http import HtmlResponse
from scrapy.utils.defer import deferred_from_coro

from tests.support.crawl import Crawl, Reactor, crawl, environment
from tests.support.lag import METER
from tests.support.settings import fixed
from tests.support.site import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy import Request, Spider
    from scrapy.http import Response
    from twisted.internet.defer import Deferred

    from tests.support.site import Site


# Handlers of the older style, and HTTP/2, come with warnings that are not ours.
LENIENT = {"PYTHONWARNINGS": "default"}


class BrowserTimeoutError(Exception):
    """Playwright's is called TimeoutError, and is none."""


BrowserTimeoutError.__name__ = "TimeoutError"


class Browser(HTTP11DownloadHandler):
    """Fetches what is marked by other means, and the rest as ever, with the methods
    that scrapy-playwright's handler has."""

    lazy = False

    async def download_request(self, request: Request) -> Response:  # type: ignore[override,unused-ignore]
        if request.meta.get("playwright"):
            return await self._browse(request)
        return await super().download_request(request)  # type: ignore[call-arg,misc,unused-ignore]

    async def _browse(self, request: Request) -> Response:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(None, partial(_visit, request.url))
        except TimeoutError:
            raise BrowserTimeoutError("Page.goto: Timeout exceeded") from None


class OlderBrowser(Browser):
    """Returns Deferreds, as handlers for older Scrapy do."""

    def download_request(  # type: ignore[override,unused-ignore]
        self, request: Request, spider: Spider | None = None
    ) -> Deferred[Response]:
        return deferred_from_coro(self._browse(request))


def _visit(url: str) -> Response:
    """A browser follows redirects by itself, and tells where it has arrived."""
    try:
        answer: Any = urlopen(url, timeout=1)
    except HTTPError as error:
        answer = error
    with answer:
        return HtmlResponse(
            answer.url, answer.status, dict(answer.headers.items()), answer.read()
        )


def awkward(path: str, nth: int) -> Answer | None:
    if path == "/page/1":
        return Answer(302, {"Location": "/page/6"})
    if (path, nth) == ("/page/2", 1):
        return Answer(429, {"Retry-After": "1"})
    if (path, nth) == ("/page/4", 1):
        return Answer(delay=2.0)
    return None


def fetch_all(
    server: Site, handler: Any, reactor: Reactor, env: dict[str, str] | None = None
) -> set[str]:
    """Return which pages were fetched. Whatever does it, the site sees the same."""
    settings = fixed(
        5,
        DOWNLOAD_HANDLERS=dict.fromkeys(["http", "https"], handler),
        DOWNLOAD_TIMEOUT=1,
        POLITENESS_BACKOFF_BASE=0.5,
        POLITENESS_MIN_RATE=5,
    )
    requests = [
        {"url": url, "meta": {"playwright": True}} for url in server.page_urls()[:6]
    ]
    result = crawl(requests=requests, settings=settings, reactor=reactor, env=env)
    assert "pausing for 1.0 s because of 429 Too Many Requests" in result.log
    assert "timeout; the rate stays at 5/s" in result.log
    by_us = [a.at for a in server.arrivals if a.path != "/page/6"]
    gaps = [later - at for at, later in pairwise(by_us)]
    # The first may be late: the handler is loaded for it.
    assert min(gaps[1:]) > 0.2 - server.jitter
    assert max(gaps) > 1 - server.jitter
    return {i["url"].rpartition("/")[2] for i in result.items if "error" not in i}


@pytest.mark.parametrize("handler", [Browser, OlderBrowser])
def test_a_browser_gets_pages_as_slowly_as_scrapy_does(
    site: Callable[..., Site], handler: type
) -> None:
    if handler is Browser and scrapy.version_info < (2, 15):
        pytest.skip("handlers are coroutines from Scrapy 2.15 on")
    server = site(7, answer=awkward)
    fetched = fetch_all(server, handler, "asyncio", LENIENT)
    # Scrapy does not retry timeouts of a browser's own.
    assert fetched == set("02356")


@pytest.mark.parametrize(
    ("package", "handler", "reactor"),
    [
        ("httpx", "_httpx.HttpxDownloadHandler", "none"),
        ("aiohttp", "_aiohttp.AiohttpDownloadHandler", "asyncio"),
    ],
)
def test_scrapys_newer_handlers_are_limited_too(
    site: Callable[..., Site], package: str, handler: str, reactor: Reactor
) -> None:
    pytest.importorskip(package)
    path = f"scrapy.core.downloader.handlers.{handler}"
    pytest.importorskip(path.rpartition(".")[0])
    server = site(7, answer=awkward)
    assert fetch_all(server, path, reactor) == set("023456")


def crawl_http2(paths: Sequence[str]) -> tuple[Crawl, list[list[Any]]]:
    """Return what was crawled, and the arrivals."""
    for package in ("h2", "priority"):
        pytest.importorskip(package)
    if int(twisted.__version__.split(".")[0]) < 24:
        pytest.skip("this Twisted does not get along with the newest pyOpenSSL")
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.http2_site"],
        env=os.environ | environment() | LENIENT,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            handler = "scrapy.core.downloader.handlers.http2.H2DownloadHandler"
            result = crawl(
                urls=[f"https://localhost:{port}{path}" for path in paths],
                settings=fixed(5, DOWNLOAD_HANDLERS={"https": handler}),
                env=LENIENT,
            )
        finally:
            server.kill()
        return result, [json.loads(line) for line in server.stdout]


def test_each_request_on_an_http2_connection_costs_a_permit() -> None:
    began_at = time.monotonic()
    result, arrivals = crawl_http2([f"/page/{n}" for n in range(5)])
    assert [item["status"] for item in result.items] == [200] * 5
    assert [status for _, _, status, _ in arrivals].count(429) == 1
    assert {protocol for *_, protocol in arrivals} == {"HTTP/2"}
    gaps = [later - at for (at, *_), (later, *_) in pairwise(arrivals)]
    jitter = METER.jitter(began_at)
    assert min(gaps[1:]) > 0.2 - jitter
    assert max(gaps) > 1 - jitter


def test_an_http2_server_that_asks_for_calm_is_waited_for() -> None:
    result, _ = crawl_http2(["/page/0", "/calm"])
    assert [item["status"] for item in result.items] == [200, 200]
    assert "because of HTTP/2 ENHANCE_YOUR_CALM" in result.log
    assert result.stats["politeness/rescheduled"] >= 1
    assert "retry/count" not in result.stats
