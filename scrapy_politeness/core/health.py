"""How a slot is doing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_politeness.core.governor.control_law import Governor
    from scrapy_politeness.core.governor.latency import Latency


class Health(Enum):
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    OVERLOADED = "overloaded"
    PAUSED = "paused"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Status:
    """``rate`` is how many requests per second are sent now, ``ceiling`` how many the
    host is believed to allow, if that is known. ``paused_for`` are the seconds left of
    a pause or a hold, and ``paused_because`` says why. Of ``concurrency`` requests that
    may be under way at once, ``in_flight`` are. ``bad_luck`` is the share of requests
    that fail whatever the rate, 0 until that is known."""

    health: Health
    rate: float
    ceiling: float | None
    paused_for: float
    in_flight: int
    concurrency: int
    bad_luck: float = 0.0
    paused_because: str = ""


def health(governor: Governor, latency: Latency, *, paused: bool) -> Health:
    """A host is overloaded while our requests pile up there, and degraded while it
    recovers from a refusal or is spared so that they do not."""
    if paused:
        return Health.PAUSED
    if latency.is_overloaded:
        return Health.OVERLOADED
    if governor.is_recovering or latency.cap < governor.rate:
        return Health.DEGRADED
    return Health.HEALTHY
