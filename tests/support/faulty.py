"""Everything that can go wrong with one request, each fault in a slot of its own."""

from __future__ import annotations

import gzip
import socket
import ssl
import struct
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import scrapy
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.site import Answer, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SHORT_TIMEOUT = 1.0

# Before, Scrapy passed on what Twisted says.
WRAPS_ERRORS = scrapy.version_info >= (2, 15)


@dataclass(frozen=True)
class Fault:
    """A row of the table in the docs.

    ``reports`` is what Scrapy says of it, an exception or a status; after a slash, what
    it says without a reactor. ``answer`` is given to the first request alone, or
    ``always``; where there is none, ``url`` names who never answers well, as
    ``Trouble.urls`` has it.
    """

    name: str
    reports: str
    counts_as: str
    request: str
    answer: Answer | None = None
    url: str = "page"
    meta: tuple[tuple[str, Any], ...] = ()
    always: bool = False

    @property
    def slot(self) -> str:
        return self.name.lower()

    @property
    def asks_for_silence(self) -> bool:
        return self.answer is not None and "Retry-After" in self.answer.headers

    @property
    def rate(self) -> str:
        return RATES[self.counts_as] + (AS_ASKED if self.asks_for_silence else "")

    def reported(self, reactor: str) -> str:
        with_one, _, without = self.reports.partition(" / ")
        return without if without and reactor == "none" else with_one


def _say(text: bytes, then: Callable[[socket.socket], None] | None = None) -> Answer:
    def raw(connection: socket.socket) -> None:
        connection.sendall(text)
        if then is not None:
            then(connection)

    return Answer(raw=raw)


def _reset(connection: socket.socket) -> None:
    time.sleep(0.2)  # what was said before has to be read
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _drip(connection: socket.socket) -> None:
    try:
        for _ in range(60):
            connection.sendall(b"x")
            time.sleep(0.2)
    except OSError:
        return  # the client has had enough


def _answer(status: int, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, named)


def _statuses(counts_as: str, request: str, *statuses: int) -> Iterator[Fault]:
    for status in statuses:
        yield Fault(str(status), str(status), counts_as, request, _answer(status))


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
_GZIP = {"Content-Encoding": "gzip"}
_PAGE = gzip.compress(b"<html>" + bytes(range(256)) * 400)
_LATER = {"Retry_After": "1", "Location": "?elsewhere"}
_TIMEOUT = (("download_timeout", SHORT_TIMEOUT),)

OVERLOAD, BUSY, FAILURE, SERVED, NOT_THE_HOSTS, UNWELCOME = (
    "overload",
    "busy",
    "failure",
    "served",
    "not the host's",
    "not welcome",
)
RESCHEDULED, RETRIED, FOLLOWED, PASSED_ON, GIVEN_UP = (
    "rescheduled",
    "retried by Scrapy",
    "followed by Scrapy",
    "passed on",
    "given up",
)

AS_ASKED = "; Retry-After is obeyed"
RATES = {
    OVERLOAD: "halved, with a pause",
    BUSY: "unchanged, with a pause",
    FAILURE: "unchanged, not raised",
    SERVED: "as with any page",
    NOT_THE_HOSTS: "as if nothing was sent",
    UNWELCOME: "nothing more is sent",
}

# The rules of the crawl that meets the faults.
RULES = [
    {"redirect": "/captcha", "means": "too fast"},
    {"header": "X-Go-Away", "means": "not welcome"},
]

_FAILED = "DownloadFailedError"
_LOSS = "ResponseDataLossError"
_REFUSED = "DownloadConnectionRefusedError"
_TIMED_OUT = "DownloadTimeoutError"

FAULTS = (
    Fault("connection refused", _REFUSED, FAILURE, RETRIED, url="closed"),
    # Without a reactor, aiohttp asks once more by itself.
    Fault(
        "reset before the response",
        _FAILED,
        FAILURE,
        RETRIED,
        _say(b"", _reset),
        always=True,
    ),
    Fault(
        "closed without a response",
        _FAILED,
        FAILURE,
        RETRIED,
        Answer(drop=True),
        always=True,
    ),
    Fault(
        "reset during the response",
        _LOSS,
        FAILURE,
        RETRIED,
        _say(_HEAD + b"Content-Length: 99\r\n\r\nhalf", _reset),
    ),
    Fault(
        "connection timeout",
        _TIMED_OUT,
        OVERLOAD,
        RETRIED,
        url="full",
        meta=_TIMEOUT,
    ),
    Fault(
        "no response in time",
        _TIMED_OUT,
        OVERLOAD,
        RETRIED,
        Answer(delay=2 * SHORT_TIMEOUT),
        meta=_TIMEOUT,
    ),
    Fault(
        "headers trickle in byte by byte",
        _TIMED_OUT,
        OVERLOAD,
        RETRIED,
        _say(b"HTTP/1.1 200 OK\r\nX-Slow: ", _drip),
        meta=_TIMEOUT,
    ),
    Fault(
        "body trickles in byte by byte",
        _TIMED_OUT,
        OVERLOAD,
        RETRIED,
        _say(_HEAD + b"Content-Length: 9999\r\n\r\n", _drip),
        meta=_TIMEOUT,
    ),
    Fault(
        "unknown host name",
        "CannotResolveHostError",
        NOT_THE_HOSTS,
        RETRIED,
        url="unknown",
    ),
    Fault("certificate of another host", "200", SERVED, PASSED_ON, url="tls"),
    Fault(
        "no TLS on an https port",
        f"{_FAILED} / {_REFUSED}",
        FAILURE,
        RETRIED,
        url="no_tls",
    ),
    Fault(
        "TLS handshake aborted",
        f"{_FAILED} / {_REFUSED}",
        FAILURE,
        RETRIED,
        url="hang_up",
    ),
    Fault(
        "half of the body",
        _LOSS,
        FAILURE,
        RETRIED,
        _say(_HEAD + b"Content-Length: 99\r\n\r\nhalf"),
    ),
    Fault(
        "truncated chunks",
        _LOSS,
        FAILURE,
        RETRIED,
        _say(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n99\r\nha"),
    ),
    Fault("truncated gzip", "200", SERVED, PASSED_ON, Answer(200, _GZIP, _PAGE[:-300])),
    Fault(
        "invalid gzip",
        "BadGzipFile",
        SERVED,
        PASSED_ON,
        Answer(200, _GZIP, b"this is no gzip"),
    ),
    Fault(
        "not HTTP",
        _FAILED,
        FAILURE,
        RETRIED,
        _say(b"220 mail.example ESMTP\r\n" * 9),
    ),
    Fault(
        "a header line of 64 KB",
        _FAILED,
        FAILURE,
        RETRIED,
        _say(_HEAD + b"X-Long: " + b"x" * 65536 + b"\r\nContent-Length: 0\r\n\r\n"),
    ),
    Fault(
        "64 KB of headers",
        "200",
        SERVED,
        PASSED_ON,
        Answer(headers={f"X-Many-{n}": "x" * 480 for n in range(120)}),
    ),
    Fault(
        "larger than DOWNLOAD_MAXSIZE",
        "DownloadCancelledError",
        NOT_THE_HOSTS,
        PASSED_ON,
        Answer(body=b"x" * 2000),
        meta=(("download_maxsize", 1000),),
    ),
    Fault("proxy refuses the connection", _REFUSED, NOT_THE_HOSTS, RETRIED, url="dead"),
    Fault(
        "proxy refuses the tunnel",
        f"TunnelError / {_FAILED}",
        NOT_THE_HOSTS,
        RETRIED,
        url="tunnel",
    ),
    Fault("407 from the proxy", "407", NOT_THE_HOSTS, PASSED_ON, _answer(407)),
    Fault("429", "429", OVERLOAD, RESCHEDULED, _answer(429)),
    Fault("503", "503", OVERLOAD, RESCHEDULED, _answer(503)),
    Fault(
        "200 with MediaWiki's maxlag",
        "200",
        BUSY,
        RESCHEDULED,
        _answer(200, MediaWiki_API_Error="maxlag"),
    ),
    Fault(
        "403 with a spent quota",
        "403",
        OVERLOAD,
        RESCHEDULED,
        _answer(403, X_RateLimit_Remaining="0", X_RateLimit_Reset="1"),
    ),
    *(
        Fault(f"{status} with `{name}`", str(status), OVERLOAD, RESCHEDULED, answer)
        for status, name, answer in (
            (403, "cf-mitigated: challenge", _answer(403, cf_mitigated="challenge")),
            (200, "cf-mitigated: challenge", _answer(200, cf_mitigated="challenge")),
            (
                202,
                "x-amzn-waf-action: challenge",
                _answer(202, x_amzn_waf_action="challenge"),
            ),
            (
                405,
                "x-amzn-waf-action: captcha",
                _answer(405, x_amzn_waf_action="captcha"),
            ),
            (
                429,
                "x-vercel-mitigated: challenge",
                _answer(429, x_vercel_mitigated="challenge"),
            ),
        )
    ),
    Fault(
        "403 that speaks of a rate limit",
        "403",
        OVERLOAD,
        RESCHEDULED,
        Answer(403, body=b"You have exceeded a secondary rate limit"),
    ),
    Fault(
        "403 with `crawler-error: CrawlerForbidden`",
        "403",
        UNWELCOME,
        GIVEN_UP,
        _answer(403, crawler_error="CrawlerForbidden"),
    ),
    Fault(
        'your rule for "too fast"',
        "302",
        OVERLOAD,
        RESCHEDULED,
        _answer(302, Location="/captcha"),
    ),
    Fault(
        'your rule for "not welcome"',
        "200",
        UNWELCOME,
        GIVEN_UP,
        _answer(200, X_Go_Away="please"),
    ),
    Fault(
        "402 with a `crawler-price`",
        "402",
        FAILURE,
        PASSED_ON,
        _answer(402, crawler_price="USD 0.01"),
    ),
    Fault("302 with Retry-After", "302", SERVED, FOLLOWED, _answer(302, **_LATER)),
    Fault("500 with Retry-After", "500", FAILURE, RETRIED, _answer(500, **_LATER)),
    Fault("403 with Retry-After", "403", FAILURE, PASSED_ON, _answer(403, **_LATER)),
    *_statuses(OVERLOAD, RETRIED, 504, 522, 524),
    *_statuses(FAILURE, RETRIED, 408, 500, 502),
    *_statuses(FAILURE, PASSED_ON, 402, 403, 420),
    *_statuses(FAILURE, PASSED_ON, 509, 520, 521, 523, 525, 526, 527, 529, 530),
    *_statuses(SERVED, PASSED_ON, 401, 404, 410),
)


class Trouble:
    """Where each fault is to be had; as a context manager, while it is open."""

    def __init__(self, folder: Path) -> None:
        self._stack = ExitStack()
        self._folder = folder

    def __enter__(self) -> Trouble:
        enter = self._stack.enter_context
        self.site = enter(Site(answer=self._judge))
        secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        secure.load_cert_chain(certificate(self._folder))
        certified = enter(Connections(lambda connection: greet(secure, connection)))
        mute = enter(Connections(lambda connection: None))
        self.urls = {
            "page": self.site.url,
            "closed": f"http://127.0.0.1:{_free_port()}",
            "full": f"http://127.0.0.1:{self._full_port()}",
            "unknown": "http://nothing.invalid",
            "tls": f"https://127.0.0.1:{certified.port}",
            "no_tls": self.site.url.replace("http:", "https:"),
            "hang_up": f"https://127.0.0.1:{mute.port}",
            "dead": "http://host.example",
            "tunnel": "https://host.example",
        }
        self._proxies = {
            "dead": f"http://127.0.0.1:{_free_port()}",
            "tunnel": self.site.url,
        }
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def request(self, fault: Fault) -> dict[str, Any]:
        """Arguments of the request that runs into a fault."""
        meta = {"politeness_slot": fault.slot, **dict(fault.meta)}
        if fault.url in self._proxies:
            meta["proxy"] = self._proxies[fault.url]
        path = f"/{FAULTS.index(fault)}"
        return {"url": self.urls[fault.url] + path, "meta": meta}

    def _judge(self, path: str, nth: int) -> Answer | None:
        number, _, elsewhere = path[1:].partition("?")
        if elsewhere:
            return Answer()
        fault = FAULTS[int(number)]
        return fault.answer if nth == 1 or fault.always else Answer()

    def _full_port(self) -> int:
        """A port that takes no more connections, and does not say so."""
        listener = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.listen(0)
        for _ in range(4):
            client = self._stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        return int(listener.getsockname()[1])


class Connections:
    """Lets somebody deal with each connection, and closes it."""

    def __init__(self, deal: Callable[[socket.socket], None]) -> None:
        self._deal = deal
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Connections:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            with connection:
                connection.recv(4096, socket.MSG_PEEK)
                self._deal(connection)


def greet(secure: ssl.SSLContext, connection: socket.socket) -> None:
    try:
        with secure.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(4096)
            wrapped.sendall(_HEAD + b"Content-Length: 2\r\n\r\nok")
    except (ssl.SSLError, ConnectionError):
        return  # a client that looks at certificates


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def certificate(folder: Path) -> Path:
    """A certificate with its key, signed by itself, for another name."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "other.example")])
    today = datetime.now(timezone.utc)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1)
    builder = builder.not_valid_before(today - timedelta(days=1))
    builder = builder.not_valid_after(today + timedelta(days=1))
    file = folder / "certificate.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )
    return file
