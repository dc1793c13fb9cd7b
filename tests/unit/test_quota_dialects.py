"""A host for each dialect of quota headers: its limit is kept to, and used."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from email.utils import formatdate
from typing import TYPE_CHECKING

import pytest

from scrapy_politeness.core.governor.control_law import Bounds
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.http.quota_headers import read_quota
from scrapy_politeness.simulator import FixedWindow, simulate
from scrapy_politeness.simulator.servers import Wrapper

if TYPE_CHECKING:
    from scrapy_politeness.simulator.servers import Reply

PAGES = 300

# A whole number of days and minutes, as calendar windows have it.
EPOCH = 20_000 * 86400.0

# Limit, what is left, seconds to the reset, wall time.
Dialect = Callable[[int, float, float, float], Mapping[str, str]]


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _plain(prefix: str, reset: Callable[[float, float], str]) -> Dialect:
    return lambda limit, left, seconds, now: {
        f"{prefix}Limit": str(limit),
        f"{prefix}Remaining": str(int(left)),
        f"{prefix}Reset": reset(seconds, now),
    }


DIALECTS: dict[str, Dialect] = {
    "RateLimit with its policy": lambda limit, left, seconds, now: {
        "RateLimit": f'"day";r=890000;t=80000, "a";r={left:.0f};t={math.ceil(seconds)}',
        "RateLimit-Policy": f'"day";q=900000;w=86400, "a";q={limit};w=60;pk=:eA==:',
    },
    "RateLimit that also counts bytes": lambda limit, left, seconds, now: {
        "RateLimit": f'"b";r=0;t=9, "a";r={left:.0f};t={math.ceil(seconds)}',
        "RateLimit-Policy": f'"b";q=9;w=9;qu="content-bytes", "a";q={limit};w=60',
    },
    "RateLimit-* in seconds": _plain("RateLimit-", lambda s, now: f"{math.ceil(s)}"),
    "X-RateLimit-* in seconds": _plain(
        "X-RateLimit-", lambda s, now: f"{math.ceil(s)}"
    ),
    "X-RateLimit-* since 1970": _plain(
        "X-RateLimit-", lambda s, now: f"{math.ceil(now + s)}"
    ),
    "X-RateLimit-* in milliseconds": _plain(
        "X-RateLimit-", lambda s, now: f"{math.ceil(1000 * (now + s))}"
    ),
    "X-RateLimit-* as an ISO date": _plain(
        "X-RateLimit-", lambda s, now: _iso(math.ceil(now + s))
    ),
    "X-RateLimit-* as an HTTP date": _plain(
        "X-RateLimit-", lambda s, now: formatdate(math.ceil(now + s), usegmt=True)
    ),
    "X-RateLimit-* as a duration": _plain("X-RateLimit-", lambda s, now: f"0m{s:.3f}s"),
    "X-Rate-Limit-*": _plain("X-Rate-Limit-", lambda s, now: f"{math.ceil(now + s)}"),
    "X-RateLimit-Reset-After": lambda limit, left, seconds, now: {
        "X-RateLimit-Limit": str(limit),
        "X-RateLimit-Remaining": str(int(left)),
        "X-RateLimit-Reset-After": f"{seconds:.3f}",
    },
    "X-Rate-Limit-Interval": lambda limit, left, seconds, now: {
        "X-Rate-Limit-Limit": str(limit),
        "X-Rate-Limit-Interval": "60s",
    },
    "-Remaining-Minute": lambda limit, left, seconds, now: {
        "X-RateLimit-Limit-Minute": str(limit),
        "X-RateLimit-Remaining-Minute": str(int(left)),
        "X-RateLimit-Limit-Day": "900000",
        "X-RateLimit-Remaining-Day": "800000",
    },
    "-Requests": lambda limit, left, seconds, now: {
        "X-RateLimit-Limit-Requests": str(limit),
        "X-RateLimit-Remaining-Requests": str(int(left)),
        "X-RateLimit-Reset-Requests": f"0m{seconds:.3f}s",
    },
}


class Speaking(Wrapper):
    """Says its quota with each response."""

    server: FixedWindow

    def __init__(self, server: FixedWindow, dialect: Dialect) -> None:
        super().__init__(server)
        self._dialect = dialect

    def arrive(self, now: float, page: int = 0) -> Reply:
        reply = self.server.arrive(now, page)
        left = self.server.quota(now)
        wall_now = EPOCH + now
        assert left.limit is not None
        limit = int(left.limit)
        headers = self._dialect(limit, left.remaining, left.reset, wall_now)
        quota = read_quota(headers.get, wall_now=wall_now)
        assert quota is not None
        return reply._replace(quota=quota)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("limit", [120, 300])
def test_a_stated_quota_is_kept_to_and_used(dialect: str, limit: int) -> None:
    server = Speaking(FixedWindow(limit, 60.0), DIALECTS[dialect])
    slot = Slot("example.org", Bounds(), spacing=0.0, concurrency=8)
    found = simulate([slot], server, seconds=3600.0, pages=PAGES, seed=1)
    assert found.served == PAGES
    assert found.refused == 0
    assert found.seconds < 60.0 * PAGES / limit / 0.9 + 5
