"""What the first contact with Redis finds out about its TLS."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from scrapy_politeness.sharing.redis.first_contact import reject_permanent_errors
from tests.support.certificate import self_signed
from tests.support.redis_server import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def listening(context: ssl.SSLContext | None) -> Iterator[str]:
    """A server that accepts one connection, and hangs up after the handshake."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    if context is not None:
                        context.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"rediss://127.0.0.1:{server.getsockname()[1]}/0"
        thread.join()


def test_a_certificate_that_cannot_be_verified_stops_the_crawl(tmp_path: Path) -> None:
    pem = tmp_path / "server.pem"
    pem.write_bytes(self_signed())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with (
        listening(context) as url,
        pytest.raises(ValueError, match="certificate verify failed"),
    ):
        reject_permanent_errors(url)


def test_a_certificate_of_ours_that_the_server_rejects_stops_the_crawl(
    tmp_path: Path,
) -> None:
    server, client = tmp_path / "server.pem", tmp_path / "client.pem"
    server.write_bytes(self_signed())
    client.write_bytes(self_signed())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server)
    context.load_verify_locations(server)
    context.verify_mode = ssl.CERT_REQUIRED
    # Later versions say so after the handshake, and may hang up before that is read.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    own = f"ssl_certfile={client}&ssl_keyfile={client}"
    with listening(context) as url, pytest.raises(ValueError, match="alert"):
        reject_permanent_errors(f"{url}?ssl_cert_reqs=none&{own}")


def test_a_handshake_that_fails_otherwise_may_succeed_later() -> None:
    with listening(None) as url:
        reject_permanent_errors(url)
    with RedisServer() as plain:
        reject_permanent_errors(plain.url.replace("redis:", "rediss:"))
