"""The HTTP side of ``tests/support/site.py``: a thread for each connection."""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from tests.support.site import Answer, Site


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, host: str, site: Site, port: int = 0) -> None:
        super().__init__((host, port), _Conversation)
        self.site = site
        self._connections: set[Any] = set()
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        # Else it would only be seen at the next turn of the loop.
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
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
    server: Listener

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
            answer, backend = site.arrived(self._at, path, host, dict(self.headers))
            with backend.workers:
                time.sleep(site.latency + answer.delay)
            if answer.raw is not None:
                answer.raw(self.connection)
        finally:
            # Before the answer goes out: whoever has it may ask again at once.
            site.leaves()
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
