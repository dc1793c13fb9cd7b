"""Hosts that say no without a status: they refuse connections, or cut them."""

from __future__ import annotations

import socket
import ssl
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.crawl import crawl
from tests.support.failures import RESET, Failures
from tests.support.faulty import Connections, certificate, greet
from tests.support.settings import SEARCHING, UP_TO_20
from tests.support.site import Answer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.crawl import Reactor
    from tests.support.site import Site

# A fatal one: handshake_failure.
ALERT = b"\x15\x03\x03\x00\x02\x02\x28"


def test_a_port_that_closes_is_waited_for_and_is_a_limit(
    site: Callable[..., Site],
) -> None:
    server = site(100, limit="20/2 seconds", closes=2.0, failures=Failures(resets=0.01))
    result = crawl(urls=server.page_urls(), settings=SEARCHING, timeout=150)
    assert len(result.items) == 100
    assert server.closed_at
    assert len(server.closed_at) <= 3
    assert "retry/max_reached" not in result.stats


@pytest.mark.parametrize("answer", [Answer(502), RESET], ids=["502", "reset"])
def test_an_outage_loses_no_page(answer: Answer, site: Callable[..., Site]) -> None:
    down = Failures(outages=[(1.0, 5.0)], outage=answer)
    server = site(60, failures=down)
    settings = {**UP_TO_20, "POLITENESS_ROBOTS": False}
    result = crawl(urls=server.page_urls(), settings=settings, timeout=120)
    assert len(result.items) == 60
    assert "retry/max_reached" not in result.stats
    # One at a time asks whether it is over.
    asked = [a for a in server.arrivals if a.is_injected]
    assert 4 <= len(asked) < 20


def test_a_host_that_cuts_many_connections_loses_no_page(
    site: Callable[..., Site],
) -> None:
    server = site(100, failures=Failures(resets=0.5))
    result = crawl(urls=server.page_urls(), settings=UP_TO_20, timeout=120)
    assert len(result.items) == 100


def test_pages_that_always_reset_are_no_block(site: Callable[..., Site]) -> None:
    broken = {f"/page/{number}" for number in (3, 11, 19, 27, 39)}
    server = site(40, answer=lambda path, nth: RESET if path in broken else None)
    result = crawl(urls=server.page_urls(), settings=UP_TO_20, timeout=60)
    assert sum(item.get("status") == 200 for item in result.items) == 35
    assert len(result.items) == 40
    assert "politeness/refused" not in result.stats


def test_a_dead_link_is_not_waited_for(site: Callable[..., Site]) -> None:
    server = site(1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    dead = [f"http://127.0.0.2:{port}/{number}" for number in range(5)]
    result = crawl(urls=[*server.page_urls(), *dead], settings=UP_TO_20, timeout=60)
    assert len(result.items) == 6
    assert "politeness/refused" not in result.stats


@pytest.mark.parametrize("reactor", ["asyncio", "none"])
def test_tls_alerts_are_waited_for(reactor: Reactor, tmp_path: Path) -> None:
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(certificate(tmp_path))
    arrived: list[float] = []
    alerts = 0

    def deal(connection: socket.socket) -> None:
        nonlocal alerts
        arrived.append(time.monotonic())
        if len(arrived) > 10 and arrived[-1] - arrived[9] < 2:
            alerts += 1
            connection.recv(4096)
            connection.sendall(ALERT)
        else:
            greet(secure, connection)

    settings = {**UP_TO_20, "POLITENESS_ROBOTS": False}
    with Connections(deal) as host:
        urls = [f"https://127.0.0.1:{host.port}/page/{n}" for n in range(30)]
        result = crawl(urls=urls, settings=settings, reactor=reactor)
    assert [item["status"] for item in result.items] == 30 * [200]
    assert "retry/max_reached" not in result.stats
    assert result.stats["politeness/refused"] > 0
    # One at a time asks whether it is over.
    assert 3 <= alerts < 20
