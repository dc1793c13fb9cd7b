"""The demo wiki's HTTP side: a real server on loopback that has its limits."""

from __future__ import annotations

import html
import json
import math
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlsplit

from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from irowiki.demo_wiki.api import ApiError, MediaWikiApi
from irowiki.demo_wiki.content import PAGES, WikiPage

if TYPE_CHECKING:
    from collections.abc import Iterable

ROBOTS = "User-agent: *\nCrawl-delay: 0.1\nDisallow: /index.php\n"

# Shorter than the five seconds that MediaWiki asks a client to wait for a
# lagged database, so that one wait is enough.
LAG_SPELL = 4.0
LAG = 7.3


@dataclass(frozen=True)
class Reply:
    body: str
    content_type: str = "text/plain"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class DemoWiki(ThreadingHTTPServer):
    """A small wiki on a free loopback port, served by a thread of its own.

    ``limit`` is the rate above which it refuses, which it tells nobody;
    ``lag_at`` is the number of the API request at which its database starts to
    lag for a few seconds. ``None`` turns either off.
    """

    def __init__(
        self,
        pages: Iterable[WikiPage] = PAGES,
        *,
        limit: str | None = "35/5 seconds",
        lag_at: int | None = 190,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.pages = tuple(pages)
        self.served: Counter[str] = Counter()
        self._api = MediaWikiApi(self.pages)
        self._limit: RateLimitItem | None = parse(limit) if limit else None
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._lag_at = lag_at
        self._lagging_until = 0.0
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
        # shutdown() waits for a loop; without one it would wait for ever.
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()

    def tally(self) -> str:
        return (
            f"demo wiki: {self.served['requests']} API requests, "
            f"{self.served['refusals']} refused with 429, "
            f"{self.served['maxlag']} answered with maxlag"
        )

    def reply(self, target: str) -> Reply:
        url = urlsplit(target)
        if url.path == "/api.php":
            return self._api_reply(dict(parse_qsl(url.query, keep_blank_values=True)))
        if url.path == "/robots.txt":
            return Reply(ROBOTS)
        if url.path == "/":
            return Reply(self._index(), "text/html")
        return Reply("There is no such page.\n", status=404)

    def _api_reply(self, params: dict[str, str]) -> Reply:
        with self._lock:
            self._count("requests")
            refusal = self._over_limit() or self._lagging(params)
        if refusal:
            return refusal
        try:
            return _json(self._api.answer(params))
        except ApiError as error:
            return _json(error.body, {"MediaWiki-API-Error": error.code})

    def _count(self, what: str) -> None:
        self.served[what] += 1
        if what == "requests" and self.served[what] == self._lag_at:
            self._lagging_until = time.monotonic() + LAG_SPELL

    def _over_limit(self) -> Reply | None:
        if self._limit is None or self._limiter.hit(self._limit):
            return None
        self._count("refusals")
        reset = self._limiter.get_window_stats(self._limit).reset_time
        wait = max(1, math.ceil(reset - time.time()))
        return Reply(
            "Too many requests.\n", status=429, headers={"Retry-After": str(wait)}
        )

    def _lagging(self, params: dict[str, str]) -> Reply | None:
        maxlag = float(params.get("maxlag", "inf"))
        if maxlag >= LAG or time.monotonic() >= self._lagging_until:
            return None
        self._count("maxlag")
        error = ApiError(
            "maxlag",
            f"Waiting for a database server: {LAG} seconds lagged.",
            host="demo",
            lag=LAG,
            type="db",
        )
        # MediaWiki says this with HTTP 200.
        headers = {
            "MediaWiki-API-Error": error.code,
            "Retry-After": str(max(int(maxlag), 5)),
            "X-Database-Lag": str(int(LAG)),
        }
        return _json(error.body, headers)

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
        body = reply.body.encode()
        self.send_response(reply.status)
        self.send_header("Content-Type", f"{reply.content_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """The crawl's own log is the one to read."""


def _json(body: object, headers: dict[str, str] | None = None) -> Reply:
    text = json.dumps(body, ensure_ascii=False)
    return Reply(text, "application/json", headers=headers or {})
