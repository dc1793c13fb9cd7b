"""The hours of the day in which a host wants to be visited."""

from __future__ import annotations

from dataclasses import dataclass

_DAY = 86400


@dataclass(frozen=True, slots=True)
class Hours:
    """From ``start`` until just before ``end``, both in seconds after midnight UTC.

    An end before the start is on the next day; where both are the same, any time
    will do.
    """

    start: int
    end: int

    def __str__(self) -> str:
        clock_times = (
            f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
            for seconds in (self.start, self.end)
        )
        return f"from {' to '.join(clock_times)} UTC"

    def begin_in(self, wall_now: float) -> float:
        """Return the seconds until they begin; 0 during them."""
        length = (self.end - self.start) % _DAY or _DAY
        # A Unix day has 86,400 seconds, whatever happens to UTC.
        since_start = (wall_now - self.start) % _DAY
        return 0.0 if since_start < length else _DAY - since_start
