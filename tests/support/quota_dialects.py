"""How hosts state their quotas."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from email.utils import formatdate
from typing import NamedTuple

from tests.support.site import Answer, Limit


class Stated(NamedTuple):
    """``left`` of ``limit`` in every ``window`` seconds, which ends ``seconds`` after
    the wall time ``now``."""

    limit: int
    left: int
    seconds: float
    now: float
    window: int = 60


Dialect = Callable[[Stated], Mapping[str, str]]


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _plain(prefix: str, reset: Callable[[float, float], str]) -> Dialect:
    return lambda stated: {
        f"{prefix}Limit": str(stated.limit),
        f"{prefix}Remaining": str(stated.left),
        f"{prefix}Reset": reset(stated.seconds, stated.now),
    }


DIALECTS: dict[str, Dialect] = {
    "RateLimit with its policy": lambda stated: {
        "RateLimit": '"day";r=890000;t=80000, '
        f'"a";r={stated.left};t={math.ceil(stated.seconds)}',
        "RateLimit-Policy": '"day";q=900000;w=86400, '
        f'"a";q={stated.limit};w={stated.window};pk=:eA==:',
    },
    "RateLimit that also counts bytes": lambda stated: {
        "RateLimit": f'"b";r=0;t=9, "a";r={stated.left};t={math.ceil(stated.seconds)}',
        "RateLimit-Policy": '"b";q=9;w=9;qu="content-bytes", '
        f'"a";q={stated.limit};w={stated.window}',
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
    "X-RateLimit-Reset-After": lambda stated: {
        "X-RateLimit-Limit": str(stated.limit),
        "X-RateLimit-Remaining": str(stated.left),
        "X-RateLimit-Reset-After": f"{stated.seconds:.3f}",
    },
    "X-Rate-Limit-Interval": lambda stated: {
        "X-Rate-Limit-Limit": str(stated.limit),
        "X-Rate-Limit-Interval": f"{stated.window}s",
    },
    "-Remaining-Minute": lambda stated: {
        "X-RateLimit-Limit-Minute": str(stated.limit),
        "X-RateLimit-Remaining-Minute": str(stated.left),
        "X-RateLimit-Limit-Day": "900000",
        "X-RateLimit-Remaining-Day": "800000",
    },
    "-Requests": lambda stated: {
        "X-RateLimit-Limit-Requests": str(stated.limit),
        "X-RateLimit-Remaining-Requests": str(stated.left),
        "X-RateLimit-Reset-Requests": f"0m{stated.seconds:.3f}s",
    },
}

# Its windows are those of the calendar, which no limiter of the package knows.
CALENDAR = "-Remaining-Minute"


class StatingLimiter:
    """Answers as a site with such a limit would, ``used`` of which is spent by others
    with the first request."""

    def __init__(self, dialect: str, limit: int, window: int, used: int = 0) -> None:
        self._speak = DIALECTS[dialect]
        self._limit = limit
        self._window = 60 if dialect == CALENDAR else window
        self._is_calendar = dialect == CALENDAR
        self._used = used
        self._minute = (0, 0)
        self._fixed = Limit(f"{limit} per {window} second", "fixed")

    def __call__(self, path: str, nth: int) -> Answer:
        for _ in range(self._used):
            self._hit()
        self._used = 0
        is_accepted, left, seconds = self._hit()
        stated = Stated(self._limit, left, seconds, time.time(), self._window)
        return Answer(200 if is_accepted else 429, self._speak(stated))

    def _hit(self) -> tuple[bool, int, float]:
        if not self._is_calendar:
            is_accepted = self._fixed.accepts("")
            quota = self._fixed.quota("")
            return is_accepted, quota.remaining, quota.reset_after
        minute, second = divmod(time.time(), 60)
        hits = self._minute[1] + 1 if self._minute[0] == minute else 1
        self._minute = (int(minute), hits)
        return hits <= self._limit, max(0, self._limit - hits), 60 - second
