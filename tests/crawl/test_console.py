"""What can be asked of a crawl while it runs, from outside."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

import pytest

from tests.support.crawl import Reactor, start_crawl
from tests.support.settings import fixed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.site import Site

PASSWORD = "secret of a test"

WILL, WONT, DO, DONT = b"\xfb", b"\xfc", b"\xfd", b"\xfe"
ANSWERS = {WILL: DO, WONT: DONT, DO: WILL, DONT: WONT}


class Console:
    """A telnet client that types and reads."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.seen = ""

    def close(self) -> None:
        self._socket.close()

    def read_until(self, pattern: str) -> re.Match[str]:
        while (found := re.search(pattern, self.seen)) is None:
            data = self._socket.recv(4096)
            assert data, f"The console has closed: {self.seen}"
            self._agree(data)
            self.seen += data.decode("utf-8", "replace")
        self.seen = self.seen[found.end() :]
        return found

    def _agree(self, data: bytes) -> None:
        """The server goes on only when the client has answered what it proposes."""
        for verb, option in re.findall(rb"\xff([\xfb-\xfe])(.)", data, re.DOTALL):
            self._socket.sendall(b"\xff" + ANSWERS[verb] + option)

    def type(self, line: str) -> None:
        self._socket.sendall(line.encode() + b"\r\n")


@pytest.mark.parametrize("reactor", ["asyncio", "select"])
def test_the_telnet_console_knows_how_the_slots_are_doing(
    site: Callable[..., Site], reactor: Reactor
) -> None:
    server = site(200, hosts=["127.0.1.1"])
    settings = fixed(
        4,
        TELNETCONSOLE_ENABLED=True,
        TELNETCONSOLE_PORT=[0],
        TELNETCONSOLE_PASSWORD=PASSWORD,
    )
    urls = server.page_urls()
    with start_crawl(urls=urls, settings=settings, reactor=reactor) as running:
        server.wait_for_arrivals(3)
        running.wait_for_log("Telnet console listening on")
        port = re.search(r"listening on 127.0.0.1:(\d+)", running.log_so_far())
        assert port
        console = Console(int(port[1]))
        console.read_until("Username: ")
        console.type("scrapy")
        console.read_until("Password: ")
        console.type(PASSWORD)
        console.read_until(">>> ")
        console.type("print(politeness.census())")
        census = console.read_until(
            r"127\.0\.1\.1: healthy; pages (\d+), .*rate 4/s, waiting (\d+)"
        )
        assert int(census[1]) >= 2
        assert int(census[2]) > 10
        console.type("politeness.hold('127.0.1.1', 60)")
        console.type("politeness.status('127.0.1.1').health.value")
        console.read_until("'paused'")
        console.close()
        running.interrupt()
        running.wait(timeout=20)
