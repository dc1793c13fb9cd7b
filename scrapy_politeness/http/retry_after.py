"""Retry-After and HTTP dates. All text is hostile until parsed."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# RFC 9110 allows whole seconds only; some servers send decimals.
_SECONDS = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")

# Seconds: a century. A number of hundreds of digits would be infinite.
_LONGEST = 100 * 366 * 86400.0

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

# The longest form of an HTTP date has 33 characters.
_MAX_DATE_LENGTH = 64


def retry_after(
    values: Sequence[str], *, date: str | None, wall_now: float
) -> float | None:
    """Return the longest wait in seconds that the Retry-After values ask for; None if
    none can be understood. A date is compared with the response's own Date, if any, so
    that a wrong clock on either side does no harm."""
    waits = [_wait(text.strip(), date, wall_now) for text in values]
    return max((wait for wait in waits if wait is not None), default=None)


def _wait(text: str, date: str | None, wall_now: float) -> float | None:
    if _SECONDS.fullmatch(text):
        return min(float(text), _LONGEST)
    until = http_date(text)
    if until is None:
        return None
    said_now = http_date(date) if date else None
    return max(0.0, until - (wall_now if said_now is None else said_now))


def http_date(text: str) -> float | None:
    if len(text) > _MAX_DATE_LENGTH:
        return None
    try:
        when = parsedate_to_datetime(text)
        if when.tzinfo is None:
            when = when.replace(tzinfo=timezone.utc)
        return (when - _EPOCH).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
