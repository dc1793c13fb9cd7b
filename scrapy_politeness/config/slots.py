"""Settings for individual slots: POLITENESS_LIMITS and DOWNLOAD_SLOTS."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy.settings import BaseSettings

from scrapy_politeness.config import rules
from scrapy_politeness.core.leases import grace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_politeness.core.governor.bounds import Bounds
    from scrapy_politeness.core.pace import Limit
    from scrapy_politeness.core.windows import Window

Limits = Mapping[str, Mapping[str, Any]]

_EXAMPLE = '{"example.org": {"concurrency": 2}}'


class Key(NamedTuple):
    """``meaning`` is Markdown, for docs/reference.md."""

    rule: Callable[[Any], Any]
    meaning: str


def _spacing(value: Any) -> str:
    if value not in ("start", "finish"):
        raise ValueError('must be "start" or "finish"')
    return str(value)


# fmt: off
KEYS = {
    "limit": Key(rules.limit,
        'a number of requests per period, such as `"5/2s"`, `"40/m"`, `"1/1500ms"` or '
        '`"1000/day"`; or a [list](limits.md#several-limits-at-once) of those, which '
        "all apply"),
    "burst": Key(rules.at_least_one,
        "how many requests may go at once after an idle time; 1 by default"),
    "spacing": Key(_spacing,
        '`"start"`, or `"finish"` to measure delays from the end of each request and '
        "send one at a time"),
    "start_rate": Key(rules.not_negative,
        "overrides `POLITENESS_START_RATE`; 0 turns limiting off for the slot"),
    "min_rate": Key(rules.positive, "overrides `POLITENESS_MIN_RATE`"),
    "max_rate": Key(rules.not_negative,
        "overrides `POLITENESS_MAX_RATE`; 0 turns limiting off for the slot"),
    "concurrency": Key(rules.at_least_one,
        "overrides `CONCURRENT_REQUESTS_PER_DOMAIN`; through Redis, it holds for all "
        "processes together"),
    "bandwidth": Key(rules.bandwidth,
        'bytes per second on average, such as `"2MB/s"` or `"500kB/s"` '
        "([how](limits.md#bandwidth))"),
    "adaptive": Key(rules.flag,
        "`False`: the rate never changes; pauses are still respected"),
}
# fmt: on
_SCRAPY_KEYS = {
    "delay": Key(rules.not_negative, ""),
    "concurrency": KEYS["concurrency"],
}


@dataclass(frozen=True)
class SlotPolicy:
    """The arguments of a Slot."""

    bounds: Bounds
    spacing: float
    concurrency: int
    floor: float = 0.0
    burst: int = 1
    windows: tuple[Window, ...] = ()
    from_finish: bool = False
    bandwidth: float | None = None
    # Whether the concurrency is a limit of the site, and not of this process.
    shares_concurrency: bool = False


def limits(value: Any) -> dict[str, dict[str, Any]]:
    limits = {
        rules.slot_name(slot): _checked(slot, entry, KEYS)
        for slot, entry in _entries(value).items()
    }
    for slot, own in limits.items():
        if 0 < own.get("max_rate", math.inf) < own.get("min_rate", 0):
            raise ValueError(
                f"min_rate={own['min_rate']!r} of {slot!r} must not exceed its max_rate"
            )
        for key in ("burst", "concurrency"):
            if own.get("spacing") == "finish" and own.get(key, 1) > 1:
                raise ValueError(
                    f"{key}={own[key]!r} of {slot!r} cannot be combined with "
                    'spacing="finish", which sends one at a time'
                )
    return limits


def download_slots(value: Any) -> dict[str, dict[str, Any]]:
    """Scrapy's own setting; only two of its keys are about limits."""
    return {
        slot: _checked(
            slot, {k: v for k, v in entry.items() if k in _SCRAPY_KEYS}, _SCRAPY_KEYS
        )
        for slot, entry in _entries(value).items()
    }


def _entries(value: Any) -> Limits:
    try:
        entries = BaseSettings({"slots": value}).getdict("slots")
    except (TypeError, ValueError, RecursionError):
        raise ValueError(f"must be a dict or JSON, such as {_EXAMPLE}") from None
    for slot, entry in entries.items():
        if not isinstance(entry, Mapping):
            raise ValueError(f"the entry for {slot!r} must be a dict, as in {_EXAMPLE}")
    return {str(slot).lower(): entry for slot, entry in entries.items()}


def _checked(
    slot_key: str, entry: Mapping[str, Any], known: Mapping[str, Key]
) -> dict[str, Any]:
    checked = {}
    for key, value in entry.items():
        if key not in known:
            raise ValueError(
                f"{slot_key!r} has an unknown key {key!r}; "
                f"known keys: {', '.join(known)}"
            )
        try:
            checked[key] = known[key].rule(value)
        except ValueError as error:
            raise ValueError(f"{key}={value!r} of {slot_key!r} {error}") from None
    return checked


def names(host: str) -> Iterator[str]:
    """Return the names that stand for this host in settings, the most specific
    first."""
    yield host
    domain = host
    while "." in domain:
        _, domain = domain.split(".", 1)
        yield "*." + domain


def consistent(bounds: Bounds) -> Bounds:
    """Where two bounds disagree, the slower one wins."""
    start = min(bounds.start_rate, bounds.max_rate)
    return replace(bounds, start_rate=start, min_rate=min(bounds.min_rate, start))


def own_bounds(bounds: Bounds, own: Mapping[str, Any]) -> Bounds:
    if limit := own.get("limit"):
        # A limit is meant to be used, even above POLITENESS_MAX_RATE.
        bounds = replace(bounds, max_rate=1 / limit.interval)
        if not own.get("adaptive", True):
            bounds = replace(bounds, start_rate=bounds.max_rate)
    keys = ("start_rate", "min_rate", "max_rate", "adaptive")
    return consistent(replace(bounds, **{k: own[k] for k in keys if k in own}))


def floor(limit: Limit | None, spacing: float, burst: int) -> float:
    if burst > 1:
        return spacing  # a burst never shortens the user's own delay
    return limit.floor if limit is not None else 0.0


def with_slack(entries: Limits) -> Limits:
    slack: dict[str, Callable[[Any], Any]] = {"limit": slackened, "delay": longer}
    return {
        slot: {key: slack[key](v) if key in slack else v for key, v in entry.items()}
        for slot, entry in entries.items()
    }


def slackened(limit: Limit | None) -> Limit | None:
    return limit and limit.slackened(grace(limit.interval))


def longer(delay: float) -> float:
    return delay + grace(delay) if delay else 0.0
