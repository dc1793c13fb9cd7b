"""The demo wiki's HTTP server, on loopback, with a rate limit."""

from __future__ import annotations

import html
import math
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from irowiki.demo_wiki.api import ApiError, MediaWikiApi
from irowiki.demo_wiki.content import PAGES, WikiPage, file_page
from irowiki.demo_wiki.faults import (
    DEMO_FAULTS,
    SLOW,
    FaultPlan,
    Faults,
    Reply,
    api_error,
    in_json,
    refusal,
    too_many,
)
from irowiki.demo_wiki.files import FILES, WikiFile

if TYPE_CHECKING:
    from collections.abc import Iterable

ROBOTS = "User-agent: *\nCrawl-delay: 0.1\nDisallow: /index.php\n"


class DemoWiki(ThreadingHTTPServer):
    """A small wiki on a loopback port, served by its own thread.

    It refuses requests beyond ``limit``, but does not announce it; ``faults`` is what
    else goes wrong. The files are on another host.
    """

    daemon_threads = True

    def __init__(
        self,
        pages: Iterable[WikiPage] = PAGES,
        files: Iterable[WikiFile] = FILES,
        *,
        port: int = 0,
        limit: str | None = "12/5 seconds",
        faults: FaultPlan = DEMO_FAULTS,
    ) -> None:
        super().__init__(("127.0.0.1", port), _Connection)
        self.files = tuple(files)
        self.pages = (*pages, *(file_page(file.title) for file in self.files))
        self.served: Counter[str] = Counter()
        files_url = f"http://localhost:{self.server_port}"
        self._api = MediaWikiApi(self.pages, self.files, files_url)
        self._paths = {unquote(file.path): file for file in self.files}
        self._limit: RateLimitItem | None = parse(limit) if limit else None
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._faults = Faults(faults)
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    @property
    def api_url(self) -> str:
        return f"{self.url}api.php"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        # shutdown() waits for the loop, and without one forever.
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A killed crawl drops its connections.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def tally(self) -> str:
        troubles = [f"{count} x {kind}" for kind, count in self.served.items()]
        return ", ".join([f"{self._faults.requests} API requests", *troubles])

    def reply(self, target: str) -> Reply:
        url = urlsplit(target)
        path = unquote(url.path)
        if path == "/api.php":
            params = dict(parse_qsl(url.query, keep_blank_values=True))
            return self._api_reply(target, params)
        if path in self._paths:
            return Reply(self._paths[path].content, "application/octet-stream")
        if path == "/robots.txt":
            return Reply(ROBOTS.encode())
        if path == "/":
            return Reply(self._index().encode(), "text/html")
        return Reply(b"There is no such page.\n", status=404)

    def _api_reply(self, target: str, params: dict[str, str]) -> Reply:
        with self._lock:
            trouble = self._faults.next(target)
            if trouble:
                self.served[trouble] += 1
            over_limit = None if trouble else self._over_limit()
        if over_limit:
            return over_limit
        is_slow = trouble == "slow"
        time.sleep(SLOW if is_slow else self._faults.latency(target))
        if trouble and not is_slow:
            return refusal(trouble)
        try:
            return in_json(self._api.answer(params))
        except ApiError as error:
            return api_error(error)

    def _over_limit(self) -> Reply | None:
        if self._limit is None or self._limiter.hit(self._limit):
            return None
        self.served["429 + Retry-After"] += 1
        reset = self._limiter.get_window_stats(self._limit).reset_time
        return too_many(max(1, math.ceil(reset - time.time())))

    def _index(self) -> str:
        query = "api.php?action=query&prop=revisions&rvprop=content&rvslots=main"
        links = "\n".join(
            f'<li><a href="{html.escape(query)}&amp;titles={quote(page.title)}">'
            f"{html.escape(page.title)}</a>"
            for page in self.pages
        )
        return (
            '<!doctype html><html lang="en"><meta charset="utf-8">'
            f"<title>Demo wiki</title><h1>Demo wiki</h1><ul>{links}</ul></html>"
        )


class _Connection(BaseHTTPRequestHandler):
    server: DemoWiki
    protocol_version = "HTTP/1.1"
    # Head and body are two writes; with Nagle's algorithm the second one would
    # wait for the client's delayed ACK, about 40 ms.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        reply = self.server.reply(self.path)
        self.send_response(reply.status)
        self.send_header("Content-Type", f"{reply.content_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(reply.body)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the crawl's log readable."""
