"""Is the host overloaded? Its own latency tells, before it fails.

A host that answers more than twice as slowly as it does when it has little to do has
more work than it can handle. But there are other reasons for slow answers, such as
larger pages: so what is done about it has to help, or else this is how fast the host
is now.
"""

from __future__ import annotations

from collections import deque

from scrapy_politeness.core.snapshot import number, optional, series, whole

# Each answer counts this share, so that a few slow pages are no sign of anything.
_SHARE = 0.04

# Slower than this many times the baseline is overload, and so much more in seconds:
# a host that answers in 5 ms is not overloaded at 15.
_FACTOR = 2.0
_LEAST_SECONDS = 0.05

# The baseline is the fastest that the host has been, and rises by this share with
# every answer: what was long ago is not worth much.
_AGING = 0.0002

# So many answers make a judgement, and so many show whether slowing down has helped.
# It does as long as they have become faster by this much: what had piled up is worked
# off slowly.
_ENOUGH = 20
_PATIENCE = 60
_HELPED = 0.9

# Slowing down is tried so often, since the first time it may have been too little.
_TRIES = 2

# So many slow answers in a row tell how many the host manages.
_FEWEST_SLOW = 5


class Strain:
    __slots__ = (
        "_answers",
        "_baseline",
        "_finished",
        "_latency",
        "_slowed_at",
        "_tries",
    )

    def __init__(self) -> None:
        self._latency = 0.0
        self._baseline = 0.0
        self._answers = 0
        # The latency for which the crawl was last slowed down, until that is over.
        self._slowed_at: float | None = None
        self._tries = 0
        # When the slow answers in a row came: in that time the host was never idle.
        self._finished: deque[float] = deque(maxlen=_PATIENCE)

    def shape(self) -> dict[str, object]:
        return {
            "_latency": number,
            "_baseline": number,
            "_answers": whole,
            "_slowed_at": optional(number),
            "_tries": whole,
            "_finished": _times,
        }

    @property
    def ratio(self) -> float:
        """How many times slower than its best the host is."""
        return self._latency / self._baseline if self._baseline else 1.0

    def observe(self, latency: float, now: float) -> float | None:
        """Return what the host manages per second, where it is newly overloaded."""
        self._count(latency, now)
        if self._answers < (_ENOUGH if self._slowed_at is None else _PATIENCE):
            return None
        if not self.is_overloaded:
            self._slowed_at = None
            self._tries = 0
        elif self._slowed_at is not None and self._latency < _HELPED * self._slowed_at:
            self._slowed_at = self._latency
            self._answers = 0
        elif self._tries < _TRIES:
            return self._slow_down(latency, now)
        else:
            self._slowed_at = None
            self._tries = 0
            self._baseline = self._latency
        return None

    def _count(self, latency: float, now: float) -> None:
        self._answers += 1
        if not self._baseline:
            self._latency = self._baseline = latency
        if latency <= _FACTOR * self._baseline:
            self._finished.clear()
        self._finished.append(now)
        self._latency += _SHARE * (latency - self._latency)
        self._baseline = min(self._baseline * (1 + _AGING), self._latency)

    def _slow_down(self, latency: float, now: float) -> float | None:
        elapsed = now - self._finished[0]
        if len(self._finished) < _FEWEST_SLOW or elapsed <= 0:
            return None
        # The average is still behind what this answer took.
        self._slowed_at = max(latency, self._latency)
        self._tries += 1
        self._answers = 0
        return (len(self._finished) - 1) / elapsed

    @property
    def is_overloaded(self) -> bool:
        return self.is_slow(_FACTOR)

    def is_slow(self, factor: float) -> bool:
        """Tell whether it is so many times slower than its best, and not only by a
        few milliseconds."""
        excess = self._latency - self._baseline
        return excess > _LEAST_SECONDS and self.ratio > factor


def _times(value: object) -> deque[float]:
    return deque(series(number)(value), maxlen=_PATIENCE)
