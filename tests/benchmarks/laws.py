"""The laws that ours is compared with, after their published descriptions.

All have the surface of `Scope` and send from an endless backlog. Where a law knows
nothing of pauses, as AutoThrottle and the AWS SDKs' client-wide limiter, refusals
pause nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor import Bounds
from scrapy_politeness.core.lessons import Change
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_politeness.simulator import Law, Server

BOUNDS = Bounds(start_rate=1.0, min_rate=0.1, max_rate=100.0)


class _Spaced:
    """Even spacing at a rate, a pause, and a limit of concurrency."""

    def __init__(self, rate: float, concurrency: int) -> None:
        self.rate = rate
        self._room = concurrency
        self._sent_at = -math.inf
        self._paused_until = -math.inf

    @property
    def has_room(self) -> bool:
        return self._room > 0

    @property
    def ready_at(self) -> float:
        return max(self._paused_until, self._sent_at + 1 / self.rate)

    def take(self, now: float) -> Permit:
        self._room -= 1
        self._sent_at = now
        return Permit(now, paced=True)

    def settle(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Change:
        self._room += 1
        old_rate = self.rate
        pause = self._learn(permit, outcome, now, chance)
        self._paused_until = max(self._paused_until, now + pause)
        return Change(old_rate, self.rate, pause, cut=self.rate < old_rate)

    def _learn(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> float:
        """Set the rate; return for how long to be silent."""
        return 0.0


class Aimd(_Spaced):
    """A tenth more after ten successes, half after a refusal, with our backoff."""

    _RAISE_AFTER = 10
    _RAISE = 1.1
    _CUT = 0.5
    _JITTER = 0.1

    def __init__(self, concurrency: int) -> None:
        super().__init__(BOUNDS.start_rate, concurrency)
        self._successes = 0
        self._setbacks = 0
        self._cut_at = -math.inf

    def _learn(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> float:
        if permit.sent_at < self._cut_at:
            return outcome.wait or 0.0
        if outcome.verdict is Verdict.SERVED:
            self._climb()
            return 0.0
        self._cut_at = now
        self._successes = 0
        self._setbacks += 1
        self.rate = max(BOUNDS.min_rate, self.rate * self._CUT)
        return self._backoff(chance) if outcome.wait is None else outcome.wait

    def _climb(self) -> None:
        self._setbacks = 0
        self._successes += 1
        if self._successes >= self._RAISE_AFTER:
            self._successes = 0
            self.rate = min(BOUNDS.max_rate, self.rate * self._RAISE)

    def _backoff(self, chance: float) -> float:
        pause = BOUNDS.backoff_base * 2.0 ** min(self._setbacks - 1, 64)
        return min(BOUNDS.backoff_max, pause * (1 + self._JITTER * chance))


class AutoThrottle(_Spaced):
    """Scrapy's, with its default settings: the delay is drawn to the latency, and an
    answer that is no 200 never lowers it. (Its randomised delay is left out: it
    spreads the requests without changing their number.)"""

    _START_DELAY = 5.0
    _MAX_DELAY = 60.0
    _TARGET_CONCURRENCY = 1.0

    def __init__(self, concurrency: int) -> None:
        super().__init__(1 / self._START_DELAY, concurrency)

    def _learn(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> float:
        if outcome.verdict is Verdict.TIMED_OUT:  # it hears of responses only
            return 0.0
        delay = 1 / self.rate
        target = (now - permit.sent_at) / self._TARGET_CONCURRENCY
        new_delay = min(self._MAX_DELAY, max(target, (delay + target) / 2))
        if outcome.verdict is Verdict.SERVED or new_delay > delay:
            self.rate = 1 / new_delay
        return 0.0


class AwsAdaptive:
    """The client-side limiter of the AWS SDKs' retry mode "adaptive".

    Nothing is held back until the first throttling error. From then on requests take
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

    def __init__(self, concurrency: int) -> None:
        self._room = concurrency
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
        if not self._enabled:
            return -math.inf
        return self._filled_at + (1 - self._tokens) / self._fill_rate

    def take(self, now: float) -> Permit:
        self._room -= 1
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


class Oracle(_Spaced):
    """Knows the limit at every time, and how many share it; sends just under its
    part of it, evenly. Where the limit is one of connections, it keeps as many busy
    and needs no pace."""

    # Requests overtake each other on their way, so that an even pace at the very
    # limit is refused now and then.
    _MARGIN = 0.985

    def __init__(
        self, server: Server, concurrency: int, clients: int, connections: int | None
    ) -> None:
        super().__init__(BOUNDS.max_rate, connections or concurrency)
        self._server = server
        self._paced = connections is None
        self._share = self._MARGIN / clients

    def take(self, now: float) -> Permit:
        if self._paced:
            self.rate = self._share * self._server.allowed(now, now + 1)
        return super().take(now)


def law(
    name: str,
    server: Server,
    concurrency: int,
    *,
    clients: int = 1,
    connections: int | None = None,
) -> Law:
    """The law of that name, for one of ``clients`` clients of the server."""
    if name == "oracle":
        return Oracle(server, concurrency, clients, connections)
    return _LAWS[name](concurrency)


def _ours(concurrency: int) -> Law:
    return Scope("host", BOUNDS, spacing=0.0, concurrency=concurrency)


_LAWS: dict[str, Callable[[int], Law]] = {
    "ours": _ours,
    "AIMD": Aimd,
    "AutoThrottle": AutoThrottle,
    "AWS adaptive": AwsAdaptive,
}

NAMES = [*_LAWS, "oracle"]
