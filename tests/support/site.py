"""A real HTTP server on loopback that writes down when each request arrived.

It runs in threads of the test process while the crawl runs in a process of its
own, so neither takes time from the other. ``time.monotonic()`` is one clock for
both, so arrivals may be compared with times that the crawl noted.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Literal

from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

from tests.support.lag import METER
from tests.support.site_server import Listener

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence

    from tests.support.failures import Failures

DROPPED = 0
"""Status in the log of a request whose connection was closed without an answer."""

HUNG = 1
"""Status in the log of a request that was not answered before the client gave up."""

LINKS_PER_PAGE = 10

STATIC_ROBOTS = "User-agent: *\nDisallow: /private\n"

_STRATEGIES = {"moving": MovingWindowRateLimiter, "fixed": FixedWindowRateLimiter}


@dataclass(frozen=True)
class Arrival:
    at: float
    path: str
    host: str
    status: int
    headers: Mapping[str, str]
    in_flight: int
    # A failure that has nothing to do with limits.
    is_injected: bool = False


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


@dataclass(frozen=True)
class Backend:
    """One of the servers behind a balancer. Who finds no free worker waits in line."""

    limit: Limit | None
    workers: threading.Semaphore


class Site:
    """``pages`` pages under /page/0, /page/1, …, linked as a tree from /page/0.

    ``answer(path, nth)`` may answer a request itself (``nth`` is 1 for the first
    arrival of that path); where it returns None, the rest applies: robots.txt,
    then the limits, then the failures, then the page. ``named`` are further pages, by
    their paths. Requests sent through this site as an HTTP proxy are answered as if
    it were their host.

    With ``closes``, a port is closed for that many seconds as soon as one request is
    above the limit; ``closed_at`` has the moments.

    Several ``backends`` have the limit and the workers each for itself, and a balancer
    that hands out requests at random.
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
        closes: float | None = None,
        retry_after: Callable[[float], str] | str | None = None,
        quota_headers: Callable[[Quota], Mapping[str, str]] | None = None,
        latency: float = 0.0,
        workers: int = 1000,
        backends: int = 1,
        named: Mapping[str, Answer] | None = None,
        failures: Failures | None = None,
        answer: Callable[[str, int], Answer | None] | None = None,
    ) -> None:
        self.pages = pages
        self.robots = robots
        self.per_host = per_host
        self.limit_robots = limit_robots
        self.limit_in_flight = limit_in_flight
        self.closes = closes
        self.closed_at: list[float] = []
        self._is_over = threading.Event()
        self.retry_after = retry_after
        self.quota_headers = quota_headers
        self.latency = latency
        self.named = named or {}
        self.failures = failures
        self.answer = answer
        self._backends = [
            Backend(
                Limit(limit, window) if limit else None, threading.Semaphore(workers)
            )
            for _ in range(backends)
        ]
        self._balancer = Random(0)
        self._changed = threading.Condition()
        self._arrivals: list[Arrival] = []
        self._times_asked: Counter[str] = Counter()
        self._pages_asked = 0
        self._first_at: float | None = None
        self._in_flight = 0
        self._listeners = {host: Listener(host, self) for host in hosts}
        self._opened_at = time.monotonic()

    def __enter__(self) -> Site:
        for listener in self._listeners.values():
            listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
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
    def jitter(self) -> float:
        """By how much the machine may have made a gap too small, so far."""
        return METER.jitter(self._opened_at)

    @property
    def lost(self) -> float:
        """How many seconds the machine may have added to a crawl, so far."""
        return METER.lost(self._opened_at)

    @property
    def max_in_flight(self) -> int:
        return max((a.in_flight for a in self.arrivals), default=0)

    def arrived(
        self, at: float, path: str, host: str, headers: Mapping[str, str]
    ) -> tuple[Answer, Backend]:
        """Judge a request and write it down, before any time is spent on it."""
        with self._changed:
            self._in_flight += 1
            self._times_asked[path] += 1
            self._pages_asked += path != "/robots.txt"
            if self._first_at is None:
                self._first_at = at
            backend = self._balancer.choice(self._backends)
            trouble, answer = self._judge(path, host, at - self._first_at, backend)
            status = DROPPED if answer.drop else answer.status
            self._arrivals.append(
                Arrival(at, path, host, status, headers, self._in_flight, trouble)
            )
            self._changed.notify_all()
        return answer, backend

    def leaves(self) -> None:
        with self._changed:
            self._in_flight -= 1

    def _judge(
        self, path: str, host: str, seconds: float, backend: Backend
    ) -> tuple[bool, Answer]:
        """Return the answer, and whether it is an injected failure."""
        if self.answer and (answer := self.answer(path, self._times_asked[path])):
            return False, answer
        if self.failures and self.failures.is_down(seconds):
            return True, self.failures.outage
        if path == "/robots.txt" and not self.limit_robots:
            return False, self._page(path)
        if self.limit_in_flight and self._in_flight > self.limit_in_flight:
            return False, self._refusal(0.0)
        if backend.limit is None:
            return self._injected(path, seconds)
        key = host if self.per_host else ""
        accepted = backend.limit.accepts(key)
        quota = backend.limit.quota(key)
        if accepted:
            trouble, answer = self._injected(path, seconds)
        elif self.closes:
            self._close_port(host)
            trouble, answer = False, Answer(drop=True)
        else:
            trouble, answer = False, self._refusal(quota.reset_after)
        if self.quota_headers is not None:
            headers = {**answer.headers, **self.quota_headers(quota)}
            answer = replace(answer, headers=headers)
        return trouble, answer

    def _close_port(self, host: str) -> None:
        now = time.monotonic()
        if self.closed_at and now < self.closed_at[-1] + (self.closes or 0.0):
            return
        self.closed_at.append(now)
        threading.Thread(target=self._close, args=(host,), daemon=True).start()

    def _close(self, host: str) -> None:
        listener = self._listeners[host]
        port = int(listener.server_address[1])
        listener.stop()
        if not self._is_over.wait(self.closes):
            self._listeners[host] = Listener(host, self, port)
            self._listeners[host].start()

    def _injected(self, path: str, seconds: float) -> tuple[bool, Answer]:
        """Answer what no limit refuses."""
        if self.failures is None or path == "/robots.txt":
            return False, self._page(path)
        nth = self._times_asked[path]
        trouble = self.failures.answer(path, nth, self._pages_asked)
        answer = trouble or self._page(path)
        return trouble is not None, self.failures.delayed(answer, path, seconds)

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
        if path in self.named:
            return self.named[path]
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
