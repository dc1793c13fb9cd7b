"""A server that speaks HTTP/2 over TLS on loopback, for a process of its own.

Prints its port, then a line of JSON for each request: when it arrived, its path, the
status of the answer, and the protocol. The first request for /page/2 is refused. The
connection of the first one for /calm is closed with ENHANCE_YOUR_CALM.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

from twisted.internet import reactor as installed
from twisted.internet import ssl
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from tests.support.certificate import self_signed

ENHANCE_YOUR_CALM = 0xB


def certificate() -> Any:
    """Scrapy does not mind who has signed it."""
    return ssl.PrivateCertificate.loadPEM(self_signed())  # type: ignore[no-untyped-call]


class Pages(Resource):
    isLeaf = True  # noqa: N815

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._asked: Counter[str] = Counter()

    def render_GET(self, request: Any) -> bytes | int:  # noqa: N802
        path = request.path.decode()
        self._asked[path] += 1
        if (path, self._asked[path]) == ("/calm", 1):
            connection = request.channel._conn
            connection.conn.close_connection(error_code=ENHANCE_YOUR_CALM)
            connection.transport.write(connection.conn.data_to_send())
            connection.transport.loseConnection()
            return NOT_DONE_YET
        status = 429 if (path, self._asked[path]) == ("/page/2", 1) else 200
        if status == 429:
            request.setHeader("Retry-After", "1")
        request.setResponseCode(status)
        protocol = request.clientproto.decode()
        print(json.dumps([time.monotonic(), path, status, protocol]), flush=True)
        return b"<html><body>ok</body></html>"


if __name__ == "__main__":
    reactor: Any = installed
    site = Site(Pages())  # type: ignore[no-untyped-call]
    port = reactor.listenSSL(0, site, certificate().options(), interface="127.0.0.1")
    print(port.getHost().port, flush=True)
    reactor.run()
