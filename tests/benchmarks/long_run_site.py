"""The hosts of the long run, in one process: each on an address of its own.

    python -m tests.benchmarks.long_run_site <hosts> <requests> <log>

Writes down every request as a ``Visit``, and says its port when it is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
import time
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from tests.benchmarks.long_run_plan import ROBOTS, Plan, address
from tests.support.site import DROPPED, Limit

if TYPE_CHECKING:
    from collections.abc import Iterator

_RECORD = struct.Struct("<dIIIH")
_BODY = b"<html><head><title>Page</title></head><body>" + b"word " * 400 + b"</body>"
_SLOW = 1.5
_REASONS = {200: "OK", 302: "Found", 404: "Not Found", 429: "Too Many", 503: "No"}
# Of a robots.txt, every time.
_LASTING = ("503", "delay")
_RESET = struct.pack("ii", 1, 0)


class Visit(NamedTuple):
    """``owner`` is the host that the page belongs to, from which ``host`` may have
    got it by a redirect. ``status`` is DROPPED where no whole answer was sent."""

    at: float
    host: int
    owner: int
    page: int
    status: int


def read_log(path: Path) -> Iterator[Visit]:
    data = path.read_bytes()
    for record in _RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size]):
        yield Visit(*record)


class Hosts:
    def __init__(self, plan: Plan, log: BinaryIO) -> None:
        self.plan = plan
        self._log = log
        self._numbers = {address(host): host for host in range(plan.hosts)}
        # What fails, fails every second time, with few exceptions.
        self._failed: set[tuple[int, int]] = set()
        kinds = {limit for host in range(plan.hosts) if (limit := plan.limit(host))}
        self._limits = {limit: Limit(f"{limit}/second", "moving") for limit in kinds}

    def number(self, name: str) -> int:
        return self._numbers[name]

    def fault(self, host: int, owner: int, page: int) -> str | None:
        if self.plan.is_dead(host):
            return "429"
        first = (owner, page) not in self._failed
        if page == ROBOTS:
            fault = self.plan.robots_fault(host)
            first = first or fault in _LASTING
        elif not self._accepts(host):
            told = self.plan.kind(host) == "told limit"
            return "429 for 1 s" if told else "429"
        else:
            fault = self.plan.page_fault(host, page) if host == owner else None
        if fault is None:
            return None
        # So that the next crawl of the same hosts sees the same.
        self._failed ^= {(owner, page)}
        return fault if first else None

    def _accepts(self, host: int) -> bool:
        limit = self.plan.limit(host)
        return limit is None or self._limits[limit].accepts(str(host))

    def note(self, at: float, host: int, owner: int, page: int, status: int) -> None:
        self._log.write(_RECORD.pack(at, host, owner, page, status))


class Conversation(asyncio.Protocol):
    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._host = self._hosts.number(transport.get_extra_info("sockname")[0])

    def data_received(self, data: bytes) -> None:
        *requests, self._unread = (self._unread + data).split(b"\r\n\r\n")
        for request in requests:
            self._answer(request.split(b" ", 2)[1].decode())

    def _answer(self, path: str) -> None:
        at = time.monotonic()
        parts = path.split("/")
        page = ROBOTS if path == "/robots.txt" else int(parts[-1])
        owner = int(parts[2]) if parts[1] == "moved" else self._host
        fault = self._hosts.fault(self._host, owner, page)
        status = self._respond(fault, owner, page)
        self._hosts.note(at, self._host, owner, page, status)

    def _respond(self, fault: str | None, owner: int, page: int) -> int:
        transport = self._transport
        if fault == "no answer":
            return DROPPED
        if fault == "reset":
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()
            return DROPPED
        if fault == "close":
            transport.close()
            return DROPPED
        if fault == "cut off":
            transport.write(_text(200, _BODY)[:-100])
            transport.close()
            return DROPPED
        if fault == "slow":
            loop = asyncio.get_running_loop()
            loop.call_later(_SLOW, transport.write, _text(200, _BODY))
            return 200
        status, answer = self._said(fault, owner, page)
        transport.write(answer)
        return status

    def _said(self, fault: str | None, owner: int, page: int) -> tuple[int, bytes]:
        if fault == "redirect":
            other = address(self._hosts.plan.other_host(self._host))
            port = self._transport.get_extra_info("sockname")[1]
            where = f"http://{other}:{port}/moved/{owner}/{page}"
            return 302, _text(302, b"", f"Location: {where}")
        if fault == "429 for 1 s":
            return 429, _text(429, b"", "Retry-After: 1")
        if fault == "429":
            return 429, _text(429, b"")
        if fault == "503 until a date":
            date = formatdate(time.time() + 2, usegmt=True)
            return 503, _text(503, b"", f"Retry-After: {date}")
        if fault == "503":
            return 503, _text(503, b"")
        if fault == "delay":
            return 200, _text(200, b"User-agent: *\nCrawl-delay: 0.25\n")
        if page == ROBOTS and self._host % 2:
            return 404, _text(404, b"")
        return 200, _text(200, b"" if page == ROBOTS else _BODY)


def _text(status: int, body: bytes, *headers: str) -> bytes:
    lines = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        "Content-Type: text/html; charset=utf-8",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def serve(plan: Plan, path: Path) -> None:
    loop = asyncio.get_running_loop()
    names = [address(host) for host in range(plan.hosts)]
    with path.open("wb") as log:
        hosts = Hosts(plan, log)

        def converse() -> Conversation:
            return Conversation(hosts)

        first = await loop.create_server(converse, names[0], 0)
        port = first.sockets[0].getsockname()[1]
        others = await loop.create_server(converse, names[1:], port, backlog=64)
        print(port, flush=True)
        async with first, others:
            # Until nobody listens to it any more.
            await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        hosts, requests, log = sys.argv[1:]
        asyncio.run(serve(Plan(int(requests), int(hosts)), Path(log)))
