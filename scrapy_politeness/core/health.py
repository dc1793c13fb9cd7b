"""How a host is doing, in one word."""

from __future__ import annotations

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
