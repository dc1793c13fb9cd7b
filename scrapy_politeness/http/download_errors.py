"""What the errors of a download mean, whichever handler raises them."""

from __future__ import annotations

import socket
from errno import ETIMEDOUT
from typing import TYPE_CHECKING

from scrapy import exceptions
from twisted.internet import defer, error
from twisted.web.client import ResponseFailed

if TYPE_CHECKING:
    from collections.abc import Iterator


def _added_in_2_15(name: str, before: type[Exception]) -> type[Exception]:
    """Scrapy wraps the errors of its download handlers from 2.15 on."""
    found: type[Exception] = getattr(exceptions, name, before)
    return found


_REFUSED = _added_in_2_15("DownloadConnectionRefusedError", error.ConnectError)

_TIMEOUTS: tuple[type[Exception], ...] = (
    TimeoutError,
    defer.TimeoutError,
    error.TimeoutError,
    error.TCPTimedOutError,
    _added_in_2_15("DownloadTimeoutError", error.TimeoutError),
)
# Refused, reset or cut, at whatever moment.
_CONNECTION_FAILURES: tuple[type[Exception], ...] = (
    OSError,
    error.ConnectError,
    error.ConnectionClosed,
    ResponseFailed,
    _REFUSED,
    _added_in_2_15("DownloadFailedError", ResponseFailed),
    _added_in_2_15("ResponseDataLossError", ResponseFailed),
)
# Nothing was asked of the host.
NEVER_SENT: tuple[type[Exception], ...] = (
    exceptions.IgnoreRequest,
    exceptions.NotSupported,
    _added_in_2_15("UnsupportedURLSchemeError", exceptions.NotSupported),
    error.DNSLookupError,
    socket.gaierror,
    _added_in_2_15("CannotResolveHostError", error.DNSLookupError),
)
# We stopped the download: the answer was too large, or no longer wanted.
OUR_OWN_DOING: tuple[type[Exception], ...] = (
    defer.CancelledError,
    _added_in_2_15("DownloadCancelledError", defer.CancelledError),
    exceptions.StopDownload,
)

# When the proxy opens no tunnel, of Scrapy's handlers for Twisted and for aiohttp; by
# name, since the one is internal and the other optional.
_TUNNEL_REFUSED = ("TunnelError", "ClientHttpProxyError")

# RFC 9113: "its peer is exhibiting a behavior that might be generating excessive load".
_ENHANCE_YOUR_CALM = 0xB

# Causes may form a cycle.
_MOST_CAUSES = 100


def is_timeout(exception: Exception) -> bool:
    """Third-party download handlers may have their own error: Playwright's is only
    called TimeoutError. Without a reactor, a connection that the system gave up on is
    reported as refused."""
    return (
        isinstance(exception, _TIMEOUTS)
        or any(
            kind.__name__ == TimeoutError.__name__ for kind in type(exception).__mro__
        )
        or any(
            getattr(cause, "errno", None) == ETIMEDOUT for cause in _causes(exception)
        )
    )


def is_connection_failure(exception: Exception) -> bool:
    return isinstance(exception, _CONNECTION_FAILURES)


def asks_for_calm(exception: Exception) -> bool:
    """Tell whether an HTTP/2 server has closed the connection because we are too
    fast."""
    return any(
        _code(reason) == _ENHANCE_YOUR_CALM
        for cause in _causes(exception)
        for reason in getattr(cause, "reasons", ())
    )


def _code(reason: object) -> object:
    """Of the GOAWAY that has closed an HTTP/2 connection, if any."""
    error = getattr(reason, "value", reason)  # some are wrapped in a Failure
    event = getattr(error, "terminate_event", None)
    return getattr(event, "error_code", None)


def is_proxy_failure(exception: Exception) -> bool:
    """Tell whether a request that goes through a proxy got no further."""
    # The proxy is the only peer to connect to.
    return isinstance(exception, (_REFUSED, error.ConnectError)) or any(
        type(cause).__name__ in _TUNNEL_REFUSED for cause in _causes(exception)
    )


def _causes(exception: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = exception
    for _ in range(_MOST_CAUSES):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__
