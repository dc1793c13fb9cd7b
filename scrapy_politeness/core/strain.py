"""Is the host overloaded? Its own latency tells, before it fails.

A host that answers more than twice as slowly as it does when it has little to do has
more work than it can handle. But there are other reasons for slow answers, such as
larger pages: so what is done about it has to help, or else this is how fast the host
is now.
"""

from __future__ import annotations

from collections import deque

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
_ENOUGH = 20
_PATIENCE = 60


class Strain:
    __slots__ = ("_answers", "_baseline", "_finished", "_latency", "_slowed")

    def __init__(self) -> None:
        self._latency = 0.0
        self._baseline = 0.0
        self._answers = 0
        self._slowed = False
        self._finished: deque[float] = deque(maxlen=_ENOUGH)

    @property
    def ratio(self) -> float:
        """How many times slower than its best the host is."""
        return self._latency / self._baseline if self._baseline else 1.0

    def observe(self, latency: float, now: float) -> float | None:
        """Return what the host manages per second, where it is newly overloaded."""
        self._finished.append(now)
        self._answers += 1
        if not self._baseline:
            self._latency = self._baseline = latency
        self._latency += _SHARE * (latency - self._latency)
        self._baseline = min(self._baseline * (1 + _AGING), self._latency)
        if self._answers < (_PATIENCE if self._slowed else _ENOUGH):
            return None
        if not self._is_overloaded:
            self._slowed = False
            return None
        if self._slowed:
            self._baseline = self._latency
            self._slowed = False
            return None
        self._slowed = True
        self._answers = 0
        elapsed = now - self._finished[0]
        return (len(self._finished) - 1) / elapsed if elapsed > 0 else None

    @property
    def _is_overloaded(self) -> bool:
        excess = self._latency - self._baseline
        return excess > _LEAST_SECONDS and self.ratio > _FACTOR
