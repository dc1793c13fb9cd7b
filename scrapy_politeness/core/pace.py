"""When may the next request go."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

# A timer fires a little late: the event loop rounds up to a millisecond. What it is
# late is taken off the next interval, up to this much, so that 100/s asked for does
# not become 90/s sent.
_FORGIVEN_LATENESS = 0.005

_UNITS = {
    "ms": 0.001,
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_LIMIT = re.compile(r"\s*([0-9]+)\s*/\s*([0-9]+(?:\.[0-9]+)?)?\s*([a-z]+)\s*")


@dataclass(frozen=True, slots=True)
class Limit:
    """At most ``count`` requests in ``period`` seconds."""

    count: int
    period: float

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Read the notation ``"5/2s"``, ``"40/m"``, ``"1/1500ms"``, ``"1000/day"``."""
        match = _LIMIT.fullmatch(text.lower())
        if match is None:
            raise ValueError(text)
        count, number, unit = match.groups()
        if unit not in _UNITS:
            raise ValueError(text)
        period = _UNITS[unit] * float(number or 1)
        # Too many digits for a float make it infinite.
        if not (1 <= float(count) < math.inf and 0 < period < math.inf):
            raise ValueError(text)
        limit = cls(int(count), period)
        # The reciprocal of the interval is a rate.
        if not (0 < limit.interval < math.inf and 1 / limit.interval < math.inf):
            raise ValueError(text)
        return limit

    @property
    def interval(self) -> float:
        return self.period / self.count


class Pace:
    """Even spacing, counted from the start of the previous request.

    ``interval`` is the spacing to keep on average; ``floor`` is one that no two
    requests may undercut. Both are arguments because both change while a crawl runs,
    and a change holds for the very next request.
    """

    __slots__ = ("_last", "_planned")

    def __init__(self) -> None:
        self._last = -math.inf
        self._planned = -math.inf

    def ready_at(self, interval: float, floor: float) -> float:
        return max(self._planned + interval, self._last + floor)

    def take(self, now: float, interval: float, floor: float) -> None:
        ready = self.ready_at(interval, floor)
        on_time = now - ready <= min(_FORGIVEN_LATENESS, interval / 2)
        self._planned = ready if on_time else now
        self._last = now

    def restart(self, now: float) -> None:
        """Count the spacing from now, as if a request had just started."""
        self._planned = self._last = max(self._last, now)
