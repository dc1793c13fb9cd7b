"""A time that the spider gives a request, before which it must not be sent."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING

from scrapy_politeness.storage.marks import Placement, Where

if TYPE_CHECKING:
    from scrapy import Request

NOT_BEFORE = "politeness_not_before"

# The key of Scrapy's own that is to come (pull request 7873): seconds. Until then it is
# anybody's, so that other values are left alone.
_DELAY = "delay"

TIMES = frozenset({NOT_BEFORE, _DELAY})

# Longer than any crawl, and short enough for any clock.
_LONGEST = 1e9


def held_until(request: Request, wall_now: float) -> Placement | None:
    """Return where the request waits, None if its time has come. Raise ValueError for
    what is no time."""
    meta = request.meta
    seconds = 0.0
    if meta.get(NOT_BEFORE) is not None:
        seconds = _seconds(meta[NOT_BEFORE], wall_now)
    elif _is_number(meta.get(_DELAY)):
        seconds = float(meta[_DELAY])
    return Placement(Where.HELD, min(seconds, _LONGEST)) if seconds > 0 else None


def forget_time(request: Request) -> None:
    """It has come. A retry, or a request that gets this one's meta, does not wait for
    it again."""
    request.meta.pop(NOT_BEFORE, None)
    if _is_number(request.meta.get(_DELAY)):
        del request.meta[_DELAY]


def _seconds(value: object, wall_now: float) -> float:
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ValueError("a datetime must have a time zone")
        return value.timestamp() - wall_now
    if not _is_number(value):
        raise ValueError("must be a number of seconds, or a datetime with a time zone")
    return float(value)  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    try:
        return is_number and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:
        return False
