"""When may the next request go."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

# A timer fires a little late: the event loop rounds up to a millisecond. What it is
# late is taken off the next interval, up to this much, so that 100/s asked for does
# not become 90/s sent.
_FORGIVEN_LATENESS = 0.005

_PERIODS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PERIOD_NAMES = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h"}
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
        name = unit if unit in _PERIODS else unit.removesuffix("s")
        seconds = _PERIODS.get(_PERIOD_NAMES.get(name, name.replace("day", "d")))
        if seconds is None:
            raise ValueError(text)
        limit = cls(int(count), seconds * float(number or 1))
        if limit.count < 1 or not 0 < limit.period < math.inf:
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
