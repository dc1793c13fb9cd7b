"""What hosts say about their quota: RateLimit, its older drafts, X-RateLimit-*.

Every text here is hostile until parsed; what cannot be understood is ignored.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from scrapy_politeness.core.quota import Quota
from scrapy_politeness.http.retry_after import http_date

if TYPE_CHECKING:
    from collections.abc import Callable

# Most trusted first.
_TRIPLES = ("RateLimit-", "X-RateLimit-", "X-Rate-Limit-")

# No quota that a crawler could use is longer than this; a larger number is a time.
_LONGEST = 366 * 86400.0
_MILLISECONDS = 1e11

_MOST_TEXT = 1000
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,6})?")
# One member of a structured list: a quoted name or a bare word, then parameters.
_MEMBER = re.compile(r'\s*("[^"]*"|[^",;\s=]+)((?:\s*;\s*[a-z*][\w.*-]*(?:=[^,;]*)?)*)')
_PARAMETER = re.compile(r";\s*([a-z*][\w.*-]*)=\s*([^,;\s]*)")
_PAIR = re.compile(r"(limit|remaining|reset)\s*=\s*([0-9.]+)")


def read_quota(header: Callable[[str], str | None], *, wall_now: float) -> Quota | None:
    """``header`` returns the value of a response header, or None."""
    text = header("RateLimit")
    if text is not None:
        return _current(text, header("RateLimit-Policy")) or _paired(text)
    for prefix in _TRIPLES:
        remaining = _number(header(f"{prefix}Remaining"))
        reset = _number(header(f"{prefix}Reset"))
        if remaining is not None and reset is not None:
            limit, window = _limit(header(f"{prefix}Limit"))
            date = header("Date")
            now = (http_date(date) if date else None) or wall_now
            return Quota(remaining, _delta(reset, now), limit, window)
    return None


def _current(text: str, policy: str | None) -> Quota | None:
    """``"default";r=50;t=30`` with ``"default";q=100;w=60``; of several, the one that
    leaves least."""
    policies = dict(_members(policy)) if policy else {}
    quotas = []
    for name, parameters in _members(text):
        remaining, reset = (_number(parameters.get(key)) for key in "rt")
        if remaining is None:
            continue
        told = policies.get(name, {})
        limit, window = (_number(told.get(key)) for key in "qw")
        if not limit or not window:
            limit = window = None
        if reset is None:
            reset = window
        if reset is not None:
            quotas.append(Quota(remaining, reset, limit, window))
    return min(quotas, key=_slowest, default=None)


def _slowest(quota: Quota) -> tuple[float, float]:
    return min(quota.spread, quota.sustained or math.inf), quota.spread


def _paired(text: str) -> Quota | None:
    """``limit=100, remaining=50, reset=30``, as an older draft had it."""
    pairs = dict(_PAIR.findall(text[:_MOST_TEXT]))
    remaining, reset = _number(pairs.get("remaining")), _number(pairs.get("reset"))
    if remaining is None or reset is None or reset > _LONGEST:
        return None
    return Quota(remaining, reset)


def _members(text: str) -> list[tuple[str, dict[str, str]]]:
    return [
        (match[1], dict(_PARAMETER.findall(match[2])))
        for match in _MEMBER.finditer(text[:_MOST_TEXT])
    ]


def _limit(text: str | None) -> tuple[float | None, float | None]:
    """``100, 100;w=60``: the window, where it is told, is that of the last member."""
    window = None
    limit = _number((text or "").split(",")[0].split(";")[0])
    for name, parameters in _members(text or ""):
        if _number(name) == limit and "w" in parameters:
            window = _number(parameters["w"])
    return (limit, window) if limit and window else (None, None)


def _delta(reset: float, now: float) -> float:
    """A reset may be seconds from now, or a time since 1970, or that in ms."""
    if reset > _MILLISECONDS:
        reset /= 1000
    return max(0.0, reset - now) if reset > _LONGEST else reset


def _number(text: str | None) -> float | None:
    text = (text or "").strip()
    return float(text) if _NUMBER.fullmatch(text) else None
