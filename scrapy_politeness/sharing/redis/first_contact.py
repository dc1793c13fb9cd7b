"""Mistakes in POLITENESS_REDIS_URL that no waiting mends, found before the crawl."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from scrapy_politeness.sharing.redis.connection import CLUSTER, source
from scrapy_politeness.sharing.redis.keys import CHECK_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

# Seconds. Nothing is crawled yet, but other crawls in the same process may be.
_CONNECT = 0.5
_ANSWER = 1.0

# How servers say that there is no such database.
_DATABASE = "DB index"

# In the reason of a TLS error: the server's certificate cannot be verified, or it wants
# another one from us.
_CERTIFICATE = ("CERTIFICATE", "UNKNOWN_CA")


def reject_permanent_errors(url: str) -> None:
    """Raise ValueError where the server rejects us for good: a wrong password, user,
    database or certificate, or missing permissions. A server that is not there, or
    that is a replica, full or loading at the moment, may recover: that is fine."""
    scheme, _, rest = url.partition("://")
    is_cluster = scheme.endswith(CLUSTER)
    client = Redis.from_url(
        f"{scheme.removesuffix(CLUSTER)}://{rest}",
        socket_connect_timeout=_CONNECT,
        socket_timeout=_ANSWER,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )
    try:
        if is_cluster:  # another node may have the key
            client.ping()
        else:
            client.eval(source("check"), 1, CHECK_KEY)
    except (RedisError, OSError) as error:
        if _is_permanent(error):
            raise ValueError(str(error)) from error
    finally:
        client.close()


def _is_permanent(error: BaseException) -> bool:
    if isinstance(error, AuthenticationError | NoPermissionError):
        return True
    if isinstance(error, ResponseError):
        # The error of a command in a script stands inside the message on old servers.
        return any(text in str(error) for text in (_DATABASE, "NOPERM"))
    # A handshake may fail for other reasons, too, such as a server that is starting.
    return any(
        isinstance(cause, ssl.SSLError)
        and any(text in (getattr(cause, "reason", None) or "") for text in _CERTIFICATE)
        for cause in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
