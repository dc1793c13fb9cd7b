"""Servers that mean harm, each on an address of its own, in small and in full size."""

from __future__ import annotations

import gzip
import re
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import signals

from tests.support.site import Answer, Site
from tests.support.spiders import Watchful

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from scrapy.crawler import Crawler

PEAK, STALL = "peak_megabytes", "longest_stall"

# What a robots.txt begins with that goes on for ever.
RULES = b"User-agent: *\nCrawl-delay: 0.3\nDisallow: /page/0\n"


class Besieged(Watchful):
    """Notes the most memory that its process ever had."""

    name = "besieged"

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **options: Any) -> Besieged:
        spider = super().from_crawler(crawler, *args, **options)
        crawler.signals.connect(spider.note_peak, signals.spider_closed)
        return spider

    def note_peak(self) -> None:
        assert self.crawler.stats is not None
        # Not getrusage(): there, a process begins with what its parent had.
        status = Path("/proc/self/status").read_text()
        [kilobytes] = re.findall(r"^VmHWM:\s+(\d+) kB", status, re.M)
        self.crawler.stats.set_value(PEAK, int(kilobytes) / 1000)


@dataclass(frozen=True)
class Size:
    pages: int
    robots_megabytes: int
    hosts: int


SMALL = Size(pages=6, robots_megabytes=60, hosts=300)
FULL = Size(pages=1000, robots_megabytes=500, hosts=10_000)


@dataclass(frozen=True)
class Attack:
    """``answer`` makes what a site answers with. ``explained`` are the texts that the
    log must have for it, with the host in the place of {}. ``ends`` is what its
    requests come to: the names of errors, or a status."""

    name: str
    answer: Callable[[Size], Callable[[str, int], Answer | None]]
    explained: tuple[str, ...]
    ends: frozenset[str | int]
    many_hosts: bool = False
    # Seconds; only for those that are meant to run into it, on a busy machine, too.
    timeout: float = 60.0


def _always(answer: Answer) -> Callable[[Size], Callable[[str, int], Answer | None]]:
    """To everything but robots.txt, which there is none of."""
    return lambda size: lambda path, nth: answer if path != "/robots.txt" else None


def _raw(act: Callable[[socket.socket], None]) -> Answer:
    def until_the_client_leaves(connection: socket.socket) -> None:
        with suppress(OSError):
            act(connection)

    return Answer(raw=until_the_client_leaves)


def _drip(head: bytes) -> Answer:
    def drip(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(b"x")
            time.sleep(1.0)

    return _raw(drip)


def _listen(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def _loop(**headers: str) -> Callable[[Size], Callable[[str, int], Answer | None]]:
    """Every page leads to another one."""

    def judge(path: str, nth: int) -> Answer | None:
        if path == "/robots.txt":
            return None
        page, _, turn = path.partition("?")
        location = f"{page}?{int(turn or 0) + 1}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        status = (301, 302, 307, 308)[int(turn or 0) % 4]
        return Answer(status, {"Location": location, **named})

    return lambda size: judge


def _robots(body: Callable[[Size], Answer]) -> Callable[[Size], Any]:
    def of_size(size: Size) -> Callable[[str, int], Answer | None]:
        answer = body(size)
        return lambda path, nth: answer if path == "/robots.txt" else Answer()

    return of_size


def _pour(head: bytes, chunk: bytes) -> Callable[[Size], Answer]:
    def of_size(size: Size) -> Answer:
        total = size.robots_megabytes * 10**6

        def pour(connection: socket.socket) -> None:
            length = b"Content-Length: %d\r\n" % total
            connection.sendall(b"HTTP/1.1 200 OK\r\n" + (head or length) + b"\r\n")
            for _ in range(total // len(chunk)):
                connection.sendall(chunk)

        return _raw(pour)

    return of_size


_LINES = (RULES + b"Disallow: /some/where\n" * 3000)[:64000]


def _bomb(size: Size) -> Answer:
    packed = gzip.compress(RULES + b"\n" * (size.robots_megabytes * 10**6))
    return Answer(
        200, {"Content-Encoding": "gzip", "Content-Type": "text/plain"}, packed
    )


def _packed_lines(size: Size) -> Answer:
    packed = gzip.compress(_LINES * 100)
    return Answer(
        200, {"Content-Encoding": "gzip", "Content-Type": "text/plain"}, packed
    )


_GIVEN_UP = (
    "{}: nothing served for",
    "(POLITENESS_GIVE_UP_AFTER is",
    "Summary for {}:",
)
_TIMED_OUT = ("{}: rate ", "/s because of timeout; pausing", *_GIVEN_UP[:2])
_TOO_LONG = ("robots.txt of http://{}", "is longer than 500 KiB")

ATTACKS = (
    Attack(
        "429 and Retry-After: 3600, for ever",
        _always(Answer(429, {"Retry-After": "3600"})),
        _GIVEN_UP,
        frozenset({"GivenUp"}),
    ),
    Attack(
        "429 without Retry-After, for robots.txt as well, for ever",
        lambda size: lambda path, nth: Answer(429),
        _GIVEN_UP,
        frozenset({"GivenUp"}),
    ),
    Attack(
        "503 with Location and Retry-After, for ever",
        _always(Answer(503, {"Retry-After": "3600", "Location": "/"})),
        _GIVEN_UP,
        frozenset({"GivenUp"}),
    ),
    Attack(
        "a redirect loop",
        _loop(),
        ("max redirections reached",),
        frozenset({"IgnoreRequest"}),
    ),
    Attack(
        "a redirect loop with Retry-After: 3600",
        _loop(Retry_After="3600"),
        ("{}: pausing for", *_GIVEN_UP[:2]),
        frozenset({"GivenUp", "IgnoreRequest"}),
    ),
    Attack(
        "one byte per second, in the body",
        _always(_drip(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")),
        _TIMED_OUT,
        frozenset({"DownloadTimeoutError", "GivenUp"}),
        timeout=1.5,
    ),
    Attack(
        "one byte per second, in the headers",
        _always(_drip(b"HTTP/1.1 200 OK\r\nX-Slow: ")),
        _TIMED_OUT,
        frozenset({"DownloadTimeoutError", "GivenUp"}),
        timeout=1.5,
    ),
    Attack(
        "no response",
        _always(_raw(_listen)),
        _TIMED_OUT,
        frozenset({"DownloadTimeoutError", "GivenUp"}),
        timeout=1.5,
    ),
    Attack(
        "connection closed at once",
        _always(Answer(drop=True)),
        _GIVEN_UP,
        frozenset({"GivenUp"}),
    ),
    Attack(
        "64 KB of headers",
        _always(Answer(headers={f"X-Many-{n}": "x" * 480 for n in range(135)})),
        (),
        frozenset({200}),
    ),
    Attack(
        "a large robots.txt",
        _robots(_pour(b"", _LINES)),
        _TOO_LONG,
        frozenset({200, "IgnoreRequest"}),
    ),
    Attack(
        "a large robots.txt of unknown length",
        _robots(_pour(b"Connection: close\r\n", _LINES)),
        _TOO_LONG,
        frozenset({200, "IgnoreRequest"}),
    ),
    Attack(
        "a robots.txt that unpacks to that size",
        _robots(_bomb),
        ("robots.txt of http://{}", "cannot be used ("),
        frozenset({200}),
    ),
    Attack(
        "a robots.txt that unpacks to 6.4 MB",
        _robots(_packed_lines),
        (),
        frozenset({200, "IgnoreRequest"}),
    ),
    Attack(
        "many hosts that all refuse for ever",
        _always(Answer(429, {"Retry-After": "3600"})),
        ("Summary for other slots:",),
        frozenset({"GivenUp"}),
        many_hosts=True,
    ),
)


class Siege:
    """The sites of some attacks; as a context manager, while they are open."""

    def __init__(self, attacks: tuple[Attack, ...], size: Size) -> None:
        self._stack = ExitStack()
        self._attacks = attacks
        self._size = size
        self.sites: dict[Attack, Site] = {}

    def __enter__(self) -> Siege:
        for attack in self._attacks:
            answer = attack.answer(self._size)
            site = Site(self._size.pages, hosts=[host_of(attack)], answer=answer)
            self.sites[attack] = self._stack.enter_context(site)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def requests(self) -> list[dict[str, Any]]:
        return [r for attack in self._attacks for r in self.requests_of(attack)]

    def requests_of(self, attack: Attack) -> list[dict[str, Any]]:
        site = self.sites[attack]
        meta: dict[str, Any] = {"download_timeout": attack.timeout}
        if not attack.many_hosts:
            return [{"url": url, "meta": meta} for url in site.page_urls()]
        # Scrapy would not ask the proxy for robots.txt, but look for the host.
        meta |= {"proxy": site.url, "dont_obey_robotstxt": True}
        return [
            {"url": f"http://host{n}.example/page/0", "meta": meta}
            for n in range(self._size.hosts)
        ]


def host_of(attack: Attack) -> str:
    return f"127.0.4.{ATTACKS.index(attack) + 1}"
