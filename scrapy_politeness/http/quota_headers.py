"""Quota headers: RateLimit, its older drafts, and what APIs made of the same idea.

Headers are untrusted: whatever cannot be understood is ignored.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.core.quota import Quota
from scrapy_politeness.http.retry_after import http_date

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class _Dialect(NamedTuple):
    """Names of headers. ``window`` is one, or a number of seconds. Windows of a fixed
    length without a ``reset`` are those of the calendar."""

    remaining: str | None
    reset: str | None
    limit: str
    window: str | float | None = None


_CALENDAR = {"Second": 1.0, "Minute": 60.0, "Hour": 3600.0, "Day": 86400.0}

# A new dialect is a row. Most trusted first; of those in one group that a response
# speaks, the strictest counts.
_DIALECTS = (
    # GitLab, Zendesk, flask-limiter; drafts 0 to 6 of RateLimit.
    [_Dialect("RateLimit-Remaining", "RateLimit-Reset", "RateLimit-Limit")],
    # Discord.
    [_Dialect("X-RateLimit-Remaining", "X-RateLimit-Reset-After", "X-RateLimit-Limit")],
    # GitHub, and most others.
    [_Dialect("X-RateLimit-Remaining", "X-RateLimit-Reset", "X-RateLimit-Limit")],
    # X.
    [_Dialect("X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", "X-Rate-Limit-Limit")],
    # Crossref.
    [_Dialect(None, None, "X-Rate-Limit-Limit", "X-Rate-Limit-Interval")],
    # OpenAI. It limits tokens, too, which nobody here can count.
    [
        _Dialect(
            "X-RateLimit-Remaining-Requests",
            "X-RateLimit-Reset-Requests",
            "X-RateLimit-Limit-Requests",
        )
    ],
    # Kong.
    [
        _Dialect(
            f"{x}RateLimit-Remaining-{unit}", None, f"{x}RateLimit-Limit-{unit}", s
        )
        for x in ("X-", "")
        for unit, s in _CALENDAR.items()
    ],
)

# What names the quota that a response is about: GitHub's, and Discord's.
_NAMES = ("X-RateLimit-Resource", "X-RateLimit-Bucket")

# No quota that a crawler could use is longer than this; a larger number is a time.
_LONGEST = 366 * 86400.0
_MILLISECONDS = 1e11

_MOST_TEXT = 1000
_MOST_NAME = 100
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,6})?")
# As Go writes them: "6m0s", "1h2m3.5s", "120ms".
_DURATION = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ms|[hms]))+")
_PART = re.compile(r"([0-9.]+)(ms|[hms])")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
# One member of a structured list: a quoted name or a bare word, then parameters.
_MEMBER = re.compile(r'("[^"]*"|[^",;\s=]+)((?:\s*;\s*[a-z*][\w.*-]*(?:=[^,;]*)?)*)')
_PARAMETER = re.compile(r";\s*([a-z*][\w.*-]*)=\s*([^,;\s]*)")
_PAIR = re.compile(r"(limit|remaining|reset)\s*=\s*([0-9.]+)")


def read_quota(header: Callable[[str], str | None], *, wall_now: float) -> Quota | None:
    """``header`` returns the value of a response header, several field lines joined by
    commas, or None."""
    text, policy = header("RateLimit"), header("RateLimit-Policy")
    quota = None if text is None else _current(text, policy) or _paired(text)
    if quota is not None:
        return quota
    date = header("Date")
    now = (http_date(date) if date else None) or wall_now
    for group in _DIALECTS:
        read = (_speak(dialect, header, policy, now) for dialect in group)
        quota = _strictest([quota for quota in read if quota is not None])
        if quota is not None:
            name = next(filter(None, map(header, _NAMES)), quota.name)
            return replace(quota, name=name[:_MOST_NAME])
    return None


def _speak(
    dialect: _Dialect,
    header: Callable[[str], str | None],
    policy: str | None,
    now: float,
) -> Quota | None:
    remaining = None
    if dialect.remaining is not None:
        remaining = _number(header(dialect.remaining))
        if remaining is None:
            return None
    limit, window = _limit(header(dialect.limit), policy)
    name = "" if limit is None else f"{limit:g}"
    if isinstance(dialect.window, float):
        window = dialect.window
    elif dialect.window is not None:
        window = _delta(header(dialect.window), now)
    if remaining is None:
        if not limit or not window:
            return None
        return Quota(limit, window, limit, window, name)
    if dialect.reset is not None:
        reset = _delta(header(dialect.reset), now)
    else:
        reset = window - now % window if window else None
    if reset is None:
        return None
    if not limit or not window:
        limit = window = None
    return Quota(remaining, reset, limit, window, name)


def _current(text: str, policy: str | None) -> Quota | None:
    """``"default";r=50;t=30`` with ``"default";q=100;w=60``; of several, the strictest.
    A policy may count something else than requests, such as bytes."""
    policies = dict(_members(policy)) if policy else {}
    quotas = []
    for name, parameters in _members(text):
        stated = policies.get(name, {})
        if stated.get("qu", "requests").strip('"') != "requests":
            continue
        remaining, reset = (_number(parameters.get(key)) for key in "rt")
        limit, window = (_number(stated.get(key)) for key in "qw")
        if not limit or not window:
            limit = window = None
        reset = window if reset is None else reset
        if remaining is not None and reset is not None:
            quotas.append(Quota(remaining, reset, limit, window, name.strip('"')))
    return _strictest(quotas)


def _strictest(quotas: list[Quota]) -> Quota | None:
    """All together are one quota, whichever of them is the strictest now."""
    if not quotas:
        return None
    name = ",".join(quota.name for quota in quotas)[:_MOST_NAME]
    strictest = min(quotas, key=lambda quota: (quota.strictest, quota.spread))
    return replace(strictest, name=name)


def _paired(text: str) -> Quota | None:
    """``limit=100, remaining=50, reset=30``, as an older draft had it."""
    pairs = dict(_PAIR.findall(text[:_MOST_TEXT]))
    remaining, reset = _number(pairs.get("remaining")), _number(pairs.get("reset"))
    if remaining is None or reset is None or reset > _LONGEST:
        return None
    return Quota(remaining, reset)


def _members(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    for match in _MEMBER.finditer(text[:_MOST_TEXT]):
        yield match[1], dict(_PARAMETER.findall(match[2]))


def _limit(text: str | None, policy: str | None) -> tuple[float | None, float | None]:
    """``100, 100;w=60``, or ``100`` with a policy of ``100;w=60``."""
    limit = _number((text or "").split(",")[0].split(";")[0])
    window = None
    for name, parameters in _members(f"{text or ''},{policy or ''}"):
        if limit is not None and _number(name) == limit and "w" in parameters:
            window = _number(parameters["w"])
    return limit, window


def _delta(text: str | None, now: float) -> float | None:
    """Seconds from now, a duration, or a time: since 1970, that in milliseconds, as an
    HTTP date or as ISO 8601 has it."""
    text = (text or "").strip()
    at = _number(text)
    if at is not None and at <= _LONGEST:
        return at
    if len(text) <= _MOST_TEXT and _DURATION.fullmatch(text):
        seconds = math.fsum(float(n) * _UNITS[unit] for n, unit in _PART.findall(text))
        return seconds if seconds <= _LONGEST else None
    if at is None:
        at = _iso_date(text) or http_date(text)
    elif at > _MILLISECONDS:
        at /= 1000
    return None if at is None else max(0.0, at - now)


def _iso_date(text: str) -> float | None:
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
        if when.tzinfo is None:
            when = when.replace(tzinfo=timezone.utc)
        return when.timestamp()
    except (ValueError, OverflowError):
        return None


def _number(text: str | None) -> float | None:
    text = (text or "").strip()
    return float(text) if _NUMBER.fullmatch(text) else None
