"""The client-side limiter of the AWS SDKs' retry mode "adaptive"."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor.host_model import Change
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict

if TYPE_CHECKING:
    from scrapy_politeness.core.governor.bounds import Bounds


class AwsAdaptive:
    """Nothing is held back until the first throttling error. From then on requests take
    tokens from a bucket whose fill rate follows CUBIC: after an error the measured
    rate times beta, then along a cubic curve back to the rate of the error and past
    it, never to more than twice the measured rate.
    """

    _BETA = 0.7
    _SCALE = 0.4
    _MIN_FILL_RATE = 0.5
    _MIN_CAPACITY = 1.0
    _MOST_OVER_MEASURED = 2.0
    _SMOOTHING = 0.8
    _MEASURED_EVERY = 0.5

    def __init__(self, concurrency: int, bounds: Bounds) -> None:
        self._room = concurrency
        self._fastest = 1 / bounds.max_rate
        self._sent_at = -math.inf
        self._enabled = False
        self._fill_rate = self._capacity = 1.0
        self._tokens = 0.0
        self._filled_at = 0.0
        self._max_rate = 0.0
        self._failed_at = 0.0
        self._measured = 0.0
        self._count = 0
        self._measured_at = 0.0

    @property
    def has_room(self) -> bool:
        return self._room > 0

    @property
    def ready_at(self) -> float:
        spaced_at = self._sent_at + self._fastest
        if not self._enabled:
            return spaced_at
        filled_at = self._filled_at + (1 - self._tokens) / self._fill_rate
        return max(spaced_at, filled_at)

    def take(self, now: float) -> Permit:
        self._room -= 1
        self._sent_at = now
        if self._enabled:
            self._fill(now)
            self._tokens -= 1
        return Permit(now, paced=True)

    def settle(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Change:
        self._room += 1
        old_rate = self._fill_rate
        self._measure(now)
        refused = outcome.verdict is Verdict.REFUSED
        rate = self._fail(now) if refused else self._cubic(now)
        self._set_fill_rate(min(rate, self._MOST_OVER_MEASURED * self._measured), now)
        return Change(old_rate, self._fill_rate, 0.0, cut=refused)

    def _measure(self, now: float) -> None:
        self._count += 1
        at = math.floor(now / self._MEASURED_EVERY) * self._MEASURED_EVERY
        if at > self._measured_at:
            rate = self._count / (at - self._measured_at)
            self._measured += self._SMOOTHING * (rate - self._measured)
            self._count = 0
            self._measured_at = at

    def _fail(self, now: float) -> float:
        limit = self._fill_rate if self._enabled else math.inf
        self._max_rate = min(self._measured, limit)
        self._failed_at = now
        self._enabled = True
        return self._max_rate * self._BETA

    def _cubic(self, now: float) -> float:
        back_in = (self._max_rate * (1 - self._BETA) / self._SCALE) ** (1 / 3)
        since: float = now - self._failed_at - back_in
        return self._SCALE * since**3 + self._max_rate

    def _set_fill_rate(self, rate: float, now: float) -> None:
        self._fill(now)
        self._fill_rate = max(rate, self._MIN_FILL_RATE)
        self._capacity = max(rate, self._MIN_CAPACITY)
        self._tokens = min(self._tokens, self._capacity)

    def _fill(self, now: float) -> None:
        filled = self._tokens + (now - self._filled_at) * self._fill_rate
        self._tokens = min(self._capacity, filled)
        self._filled_at = now
