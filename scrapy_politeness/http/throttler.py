"""Scrapy's own throttler, where Scrapy has one (pull request 6931).

It calls slots throttling scopes, and asks for a permit before any middleware sees the
request. What it held back would take a place of CONCURRENT_REQUESTS, and what waits at
our gate would keep a place of its scope: so it is replaced by one that lets everything
through, and its names for requests become our slots.
"""

from __future__ import annotations

import json
import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING

from scrapy.exceptions import ScrapyDeprecationWarning

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy import Request
    from scrapy.crawler import Crawler

    Scopes = str | Iterable[str] | None

HAS_THROTTLER = find_spec("scrapy.throttler") is not None

# In the meta of a request that the throttler does not hold back.
_DONT_THROTTLE = "dont_throttle"


def slot_of_scopes(scopes: Scopes) -> str:
    """Several scopes are one slot of their own; Scrapy's name for them is the same."""
    names = [scopes] if isinstance(scopes, str) else sorted(scopes or ())
    return json.dumps(names) if len(names) > 1 else "".join(names)


def scopes_of(crawler: Crawler, request: Request) -> Scopes:
    """Return what the throttler calls a request that has no name of its own; None if
    there is no throttler. Raises ValueError for a malformed URL."""
    throttler = getattr(crawler, "throttler", None)
    if throttler is None:
        return None
    scopes: Scopes = throttler.get_scopes(request)
    return scopes


def polite_throttler() -> type | None:
    """Return a class for the setting THROTTLER; None if this Scrapy has none."""
    if not HAS_THROTTLER:
        return None
    from scrapy.throttler import (  # type: ignore[import-not-found,unused-ignore]
        Throttler,
    )

    class PoliteThrottler(Throttler):  # type: ignore[misc,unused-ignore]
        def __init__(self, crawler: Crawler) -> None:
            with warnings.catch_warnings():
                # They are about limits of its own, which it does not enforce here.
                warnings.simplefilter("ignore", ScrapyDeprecationWarning)
                super().__init__(crawler)

        async def acquire(self, request: Request, *, unscheduled: bool = False) -> None:
            """A request's own ``delay`` remains."""
            meta, before = request.meta, request.meta.get(_DONT_THROTTLE)
            meta[_DONT_THROTTLE] = True
            try:
                await super().acquire(request, unscheduled=unscheduled)
            finally:
                del meta[_DONT_THROTTLE]
                if before is not None:
                    meta[_DONT_THROTTLE] = before

        def download_handler_blocked(self, request: Request) -> bool:
            return False

    return PoliteThrottler
