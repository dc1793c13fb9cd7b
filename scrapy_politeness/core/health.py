"""How a slot is doing: one word, and a few figures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor import Phase

if TYPE_CHECKING:
    from scrapy_politeness.core.governor import Governor
    from scrapy_politeness.core.strain import Strain

# Slower than this many times its best is worth a word, well before it is overload.
_DEGRADED = 1.5


class Health(Enum):
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    OVERLOADED = "overloaded"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Status:
    """``rate`` is how many requests per second are sent now, ``ceiling`` how many the
    host is believed to allow, if that is known. ``silent_for`` are the seconds that
    are left of a pause or a hold. Of ``concurrency`` requests that may be under way
    at once, ``in_flight`` are."""

    health: Health
    rate: float
    ceiling: float | None
    silent_for: float
    in_flight: int
    concurrency: int


def health(governor: Governor, strain: Strain, *, paused: bool) -> Health:
    """A host is overloaded while its latency says so, and degraded while it recovers
    from a refusal or answers slowly. ``paused`` says that nothing is sent for now."""
    if paused:
        return Health.PAUSED
    if strain.is_overloaded:
        return Health.OVERLOADED
    if governor.phase is Phase.RECOVERY or strain.is_slow(_DEGRADED):
        return Health.DEGRADED
    return Health.HEALTHY
