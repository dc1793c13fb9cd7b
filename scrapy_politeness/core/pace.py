"""When the next request may be sent."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scrapy_politeness.core.windows import Window, Windows

if TYPE_CHECKING:
    from collections.abc import Sequence

# A timer fires a little late: the event loop rounds up to a millisecond. What it is
# late is taken off the next interval, up to this much, so that 100/s asked for does
# not become 90/s sent.
_FORGIVEN_LATENESS = 0.005

# What is forgiven, and what requests differ in travel time, must not bring one more
# into a window than the limit says. For short periods nobody can measure that.
_MARGIN = 0.015
# Seconds. Where requests are counted, one that opens a connection arrives later than
# the one that takes its place.
_LATE_ARRIVAL = 1.0
_MARGIN_SHARE = 0.01

# The host measures a Crawl-delay at its own door, and no two requests travel equally
# fast: a connection to open, a busy event loop.
TRAVEL_TIME_DIFFERENCE = 0.01

# A request sent up to this long after its time was still held back by the pace: the
# event loop was busy, not the spider out of work.
PROMPT = 0.05

# A request that is handed out needs a few turns of the event loop to get to the gate.
HEAD_START = 0.005

# Seconds. A shorter wait is not reported: a request that is handed out a little early
# waits a few milliseconds.
NO_WAIT = 0.05

# Where robots.txt has to come first, it takes longer. Until it is sent, no more are
# handed out than could be sent in this time.
ON_THE_WAY = 0.05

# How many may be on a long way, as a multiple of what can be sent in the time that it
# usually takes; not all take equally long.
_ENOUGH = 1.25

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
    """At most ``count`` requests in ``period`` seconds, evenly spread, and no more than
    the ``longer`` windows hold. ``slack`` is how many seconds one may be late without
    delaying the next ones."""

    count: int
    period: float
    slack: float = 0.0
    longer: tuple[Limit, ...] = ()

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

    @classmethod
    def together(cls, limits: Sequence[Limit]) -> Limit:
        """Return one limit for several that all apply. The shortest period comes first,
        and of two with the same period the smaller count."""
        first, *others = sorted(limits, key=lambda limit: (limit.period, limit.count))
        longer = tuple(limit for limit in others if limit.period > first.period)
        return replace(first, longer=longer)

    def __str__(self) -> str:
        windows = (f"{each.count}/{each.period:g}s" for each in (self, *self.longer))
        return " and ".join(windows)

    def slackened(self, slack: float) -> Limit:
        longer = tuple(replace(limit, slack=slack) for limit in self.longer)
        return replace(self, slack=slack, longer=longer)

    @property
    def windows(self) -> tuple[Window, ...]:
        """The longer ones, in which requests are counted."""
        return tuple(
            Window(each.count, each._whole + each._late_arrival) for each in self.longer
        )

    @property
    def average_interval(self) -> float:
        """The interval that can be kept indefinitely."""
        return max(each.interval for each in (self, *self.longer))

    @property
    def interval(self) -> float:
        """The even spacing that keeps every window of ``period`` within ``count``,
        measured at the host's door."""
        return self._whole / self.count

    @property
    def _late_arrival(self) -> float:
        return min(_LATE_ARRIVAL, _MARGIN_SHARE * self.period)

    @property
    def _whole(self) -> float:
        return self.period + self._margin

    @property
    def floor(self) -> float:
        """The spacing that no two requests may undercut."""
        return 0.0 if self._margin >= _FORGIVEN_LATENESS else self.interval

    @property
    def _margin(self) -> float:
        return min(_MARGIN, _MARGIN_SHARE * self.period) + self.slack


class Pace:
    """Even spacing, counted from the start of the previous request, with bursts of up
    to ``burst`` requests after an idle time (a token bucket), and never more than fit
    into ``windows``.

    In a time t, no more than ``t / interval + burst`` requests go. ``interval`` is the
    spacing to keep on average; ``floor`` is one that no two requests may undercut.
    Both are arguments because both change while a crawl runs, and a change holds for
    the very next request.
    """

    __slots__ = ("_at", "_burst", "_last", "_tokens", "_windows")

    _windows: Windows | None

    def __init__(self, burst: int = 1, windows: Sequence[Window] = ()) -> None:
        self._burst = burst
        self.limit(windows)
        self._last = -math.inf
        # The tokens at that time; negative if some requests were sent too early.
        self._tokens = float(burst)
        self._at = -math.inf

    def ready_at(self, interval: float, floor: float = 0.0) -> float:
        at = self._at
        if self._tokens < 1:
            at += (1 - self._tokens) * interval
        if self._last + floor > at:
            at = self._last + floor
        return at if self._windows is None else max(at, self._windows.ready_at)

    def has_permit(self, now: float, shared: object = ()) -> bool:
        return True

    def claimable_at(
        self,
        claims: int,
        since: float,
        interval: float,
        floor: float = 0.0,
        way: float = 0.0,
    ) -> float:
        """From when on one more request may be handed out, to be sent at once, while
        ``claims`` are on their way, the first of them ``since`` then. ``way`` is how
        long that takes where it takes long."""
        if not claims:
            return self.ready_at(interval, floor) - max(HEAD_START, way)
        slowest = max(interval, floor)
        if is_enough(claims, slowest, way):
            return math.inf
        return max(self.ready_at(interval, floor) - way, since) + claims * slowest

    def idle_at(self, interval: float, floor: float = 0.0) -> float:
        """From when on it is as if there had never been a request."""
        missing = self._burst - self._tokens
        at = max(self._at + missing * interval, self._last + floor)
        return at if self._windows is None else max(at, self._windows.empty_at)

    def take(self, now: float, interval: float, floor: float = 0.0) -> float:
        """Return for how long the request could have gone already."""
        late = now - self.ready_at(interval, floor)
        on_time = 0 <= late <= min(_FORGIVEN_LATENESS, interval / 2)
        at = now - late if on_time else now
        tokens = self._tokens + (at - self._at) / interval if interval else math.inf
        self._tokens = min(self._burst, tokens) - 1
        self._at = at
        self._last = now
        if self._windows is not None:
            self._windows.take(now)
        return late

    def limit(self, windows: Sequence[Window]) -> None:
        self._windows = Windows(windows) if windows else None

    def restart(self, now: float) -> None:
        """Count the spacing from now, as if a request had just started."""
        self._at = self._last = max(self._last, now)
        self._tokens = 0.0

    def pause_until(self, until: float, interval: float) -> None:
        """Save up no tokens until then: no burst comes next."""
        if self.ready_at(interval) < until:
            self._at = until
            self._tokens = 1.0

    def forget_pause(self) -> None:
        """Count from the last request again."""
        if self._at > self._last:
            self.restart(self._last)


def is_enough(claims: int, interval: float, way: float) -> bool:
    """Tell whether one more request would have to wait at the end of the way."""
    return claims * interval >= max(ON_THE_WAY, _ENOUGH * way)
