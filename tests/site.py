"""A real HTTP server on loopback that writes down when each request arrived.

It runs in threads of the test process while the crawl runs in a process of its
own, so neither takes time from the other. ``time.monotonic()`` is one clock for
both, so arrivals may be compared with times that the crawl noted.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

DROPPED = 0
"""Status in the log of a request whose connection was closed without an answer."""

LINKS_PER_PAGE = 10

_STRATEGIES = {"moving": MovingWindowRateLimiter, "fixed": FixedWindowRateLimiter}


@dataclass(frozen=True)
class Arrival:
    at: float
    path: str
    host: str
    status: int
    headers: Mapping[str, str]
    in_flight: int


@dataclass(frozen=True)
class Answer:
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"<html><body>ok</body></html>"
    delay: float = 0.0
    drop: bool = False
    # Says or does what it likes on the connection, which is closed then.
    raw: Callable[[socket.socket], None] | None = None


@dataclass(frozen=True)
class Quota:
    """What the limiter knows just after it has judged a request."""

    limit: int
    remaining: int
    reset_after: float


def refuse(times: int, path: str = "") -> Callable[[str, int], Answer | None]:
    """Refuse the first requests for every path, or for those that begin so."""

    def judge(asked: str, nth: int) -> Answer | None:
        refused = nth <= times and asked.startswith(path)
        return Answer(429, {"Retry-After": "0"}) if refused else None

    return judge


class Limit:
    """A limiter of the package ``limits``, as a site's owner would install it."""

    def __init__(self, notation: str, window: Literal["moving", "fixed"]) -> None:
        self._item = parse(notation)
        self._limiter = _STRATEGIES[window](MemoryStorage())

    def accepts(self, key: str) -> bool:
        return self._limiter.hit(self._item, key)

    def quota(self, key: str) -> Quota:
        stats = self._limiter.get_window_stats(self._item, key)
        # The package counts in wall time.
        wait = max(0.0, stats.reset_time - time.time())
        return Quota(self._item.amount, stats.remaining, wait)


class Site:
    """``pages`` pages under /page/0, /page/1, …, linked as a tree from /page/0.

    ``answer(path, nth)`` may answer a request itself (``nth`` is 1 for the first
    arrival of that path); where it returns None, the rest applies: robots.txt,
    then the limits, then the page. Requests sent through this site as an HTTP
    proxy are answered as if it were their host.
    """

    def __init__(
        self,
        pages: int = 0,
        *,
        hosts: Sequence[str] = ("127.0.0.1",),
        robots: str | Answer | None = None,
        limit: str | None = None,
        window: Literal["moving", "fixed"] = "moving",
        per_host: bool = False,
        limit_robots: bool = False,
        limit_in_flight: int | None = None,
        retry_after: Callable[[float], str] | str | None = None,
        quota_headers: Callable[[Quota], Mapping[str, str]] | None = None,
        latency: float = 0.0,
        workers: int = 1000,
        answer: Callable[[str, int], Answer | None] | None = None,
    ) -> None:
        self.pages = pages
        self.robots = robots
        self.per_host = per_host
        self.limit_robots = limit_robots
        self.limit_in_flight = limit_in_flight
        self.retry_after = retry_after
        self.quota_headers = quota_headers
        self.latency = latency
        # Who finds no free worker waits in line.
        self.workers = threading.Semaphore(workers)
        self.answer = answer
        self._limit = Limit(limit, window) if limit else None
        self._changed = threading.Condition()
        self._arrivals: list[Arrival] = []
        self._times_asked: Counter[str] = Counter()
        self._in_flight = 0
        self._listeners = {host: _Listener(host, self) for host in hosts}

    def __enter__(self) -> Site:
        for listener in self._listeners.values():
            listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners.values():
            listener.stop()

    @property
    def url(self) -> str:
        return self.url_for(next(iter(self._listeners)))

    def url_for(self, host: str) -> str:
        return f"http://{host}:{self._listeners[host].server_address[1]}"

    def page_urls(self, host: str | None = None) -> list[str]:
        base = self.url_for(host) if host else self.url
        return [f"{base}/page/{number}" for number in range(self.pages)]

    @property
    def arrivals(self) -> list[Arrival]:
        with self._changed:
            return sorted(self._arrivals, key=lambda arrival: arrival.at)

    def wait_for_arrivals(self, count: int, timeout: float = 30.0) -> None:
        with self._changed:
            if not self._changed.wait_for(
                lambda: len(self._arrivals) >= count, timeout
            ):
                raise TimeoutError(f"{len(self._arrivals)} of {count} arrived")

    def pages_served(self) -> Counter[str]:
        return Counter(a.path for a in self.arrivals if a.status == 200)

    def refusals(self) -> int:
        return sum(a.status == 429 for a in self.arrivals)

    def gaps(self, host: str | None = None) -> list[float]:
        times = [a.at for a in self.arrivals if host in (None, a.host)]
        return [later - earlier for earlier, later in pairwise(times)]

    @property
    def max_in_flight(self) -> int:
        return max((a.in_flight for a in self.arrivals), default=0)

    def arrived(
        self, at: float, path: str, host: str, headers: Mapping[str, str]
    ) -> Answer:
        """Judge a request and write it down, before any time is spent on it."""
        with self._changed:
            self._in_flight += 1
            self._times_asked[path] += 1
            answer = self._judge(path, host)
            status = DROPPED if answer.drop else answer.status
            self._arrivals.append(
                Arrival(at, path, host, status, headers, self._in_flight)
            )
            self._changed.notify_all()
        return answer

    def leaves(self) -> None:
        with self._changed:
            self._in_flight -= 1

    def _judge(self, path: str, host: str) -> Answer:
        if self.answer and (answer := self.answer(path, self._times_asked[path])):
            return answer
        if path == "/robots.txt" and not self.limit_robots:
            return self._page(path)
        if self.limit_in_flight and self._in_flight > self.limit_in_flight:
            return self._refusal(0.0)
        if self._limit is None:
            return self._page(path)
        key = host if self.per_host else ""
        accepted = self._limit.accepts(key)
        quota = self._limit.quota(key)
        answer = self._page(path) if accepted else self._refusal(quota.reset_after)
        if self.quota_headers is None:
            return answer
        headers = {**answer.headers, **self.quota_headers(quota)}
        return Answer(answer.status, headers, answer.body)

    def _refusal(self, wait: float) -> Answer:
        value = self.retry_after
        if callable(value):
            value = value(wait)
        headers = {} if value is None else {"Retry-After": value}
        return Answer(429, headers, b"Too Many Requests")

    def _page(self, path: str) -> Answer:
        if path == "/robots.txt" and self.robots is not None:
            if isinstance(self.robots, Answer):
                return self.robots
            return Answer(200, {"Content-Type": "text/plain"}, self.robots.encode())
        name, _, number = path.partition("?")[0].rpartition("/")
        if name == "/page" and number.isdigit() and int(number) < self.pages:
            return Answer(body=self._page_body(int(number)))
        return Answer(404, body=b"Not Found")

    def _page_body(self, number: int) -> bytes:
        first = number * LINKS_PER_PAGE + 1
        children = range(first, min(first + LINKS_PER_PAGE, self.pages))
        links = "".join(f'<a href="/page/{child}">{child}</a>' for child in children)
        title = f"<title>Page {number}</title>"
        return f"<html><head>{title}</head><body>{links}</body></html>".encode()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, host: str, site: Site) -> None:
        super().__init__((host, 0), _Conversation)
        self.site = site
        self._connections: set[Any] = set()
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        # A kept-alive connection would go on being served.
        for connection in list(self._connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # the client was first

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Clients that are killed or time out are part of the tests.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Conversation(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # one packet per answer
    server: _Listener

    def parse_request(self) -> bool:
        self._at = time.monotonic()
        return super().parse_request()

    def do_GET(self) -> None:
        site = self.server.site
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urlsplit(self.path)
        path = f"{url.path}?{url.query}" if url.query else url.path
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        try:
            answer = site.arrived(self._at, path, host, dict(self.headers))
            with site.workers:
                time.sleep(site.latency + answer.delay)
        finally:
            # Before the answer goes out: whoever has it may ask again at once.
            site.leaves()
        if answer.raw is not None:
            answer.raw(self.connection)
        if answer.drop or answer.raw is not None:
            self.close_connection = True
        else:
            self._send(answer)

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        headers = {"Content-Type": "text/html; charset=utf-8", **answer.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
