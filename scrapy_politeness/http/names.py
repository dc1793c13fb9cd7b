"""Names of slots and requests, made safe for logs and terminals."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from scrapy_politeness.core.text import escaped

if TYPE_CHECKING:
    from scrapy import Request

# As long as a host name can be.
_LONGEST = 253

_NO_HOST = "(no host)"


# The names of slots come back in every line.
@lru_cache(maxsize=1024)
def printable(name: str) -> str:
    """Return the name on one line, without control characters, and not too long.

    Hosts come from links, and ``politeness_slot`` may be any text: neither may forge a
    log line or control a terminal.
    """
    if len(name) > _LONGEST:
        name = name[: _LONGEST - 1] + "…"
    return escaped(name) or _NO_HOST


def public(url: str) -> str:
    """Return a URL on one line, without what may be secret in it: user, password and
    query."""
    head, _, _ = url.partition("#")
    head, query, _ = head.partition("?")
    scheme, slashes, rest = head.partition("://")
    authority, slash, path = rest.partition("/")
    host = authority.rpartition("@")[2]
    return printable(f"{scheme}{slashes}{host}{slash}{path}{query and '?…'}")


def public_request(request: Request) -> str:
    return f"<{printable(request.method)} {public(request.url)}>"
