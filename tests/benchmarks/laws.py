"""The laws that ours is compared with, after their published descriptions.

All have the surface of `Slot`, and none sends faster than the user allows. Where a
law knows nothing of pauses, as AutoThrottle and the AWS SDKs' client-wide limiter,
refusals pause nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.governor.host_model import Change
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.simulator.servers import Wrapper
from tests.benchmarks.aws_adaptive import AwsAdaptive

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_politeness.simulator import Law, Server

BOUNDS = Bounds(start_rate=1.0, min_rate=0.1, max_rate=100.0)


class _Spaced:
    """Even spacing at a rate, a pause, and a limit of concurrency."""

    def __init__(self, rate: float, concurrency: int, bounds: Bounds) -> None:
        self.rate = rate
        self._bounds = bounds
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
        self.rate = min(self.rate, self._bounds.max_rate)
        self._paused_until = max(self._paused_until, now + pause)
        return Change(old_rate, self.rate, pause, cut=self.rate < old_rate)

    def _learn(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> float:
        """Set the rate; return for how long to be silent."""
        return 0.0


class _Yielding(_Spaced):
    """Yields once per flight of requests to a refusal or timeout, with our backoff."""

    _JITTER = 0.1

    def __init__(self, concurrency: int, bounds: Bounds) -> None:
        super().__init__(bounds.start_rate, concurrency, bounds)
        self._setbacks = 0
        self._cut_at = -math.inf

    def _learn(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> float:
        if permit.sent_at < self._cut_at:
            return outcome.wait or 0.0
        if outcome.verdict is Verdict.SERVED:
            self._setbacks = 0
            self._grow(now)
        if not outcome.verdict.is_overload:
            return 0.0
        self._cut_at = now
        self._setbacks += 1
        self._cut()
        self.rate = max(self._bounds.min_rate, self.rate)
        return self._backoff(chance) if outcome.wait is None else outcome.wait

    def _grow(self, now: float) -> None:
        raise NotImplementedError

    def _cut(self) -> None:
        raise NotImplementedError

    def _backoff(self, chance: float) -> float:
        pause = self._bounds.backoff_base * 2.0 ** min(self._setbacks - 1, 64)
        return min(self._bounds.backoff_max, pause * (1 + self._JITTER * chance))


class Aimd(_Yielding):
    """A tenth more after ten successes, half after a refusal."""

    _RAISE_AFTER = 10
    _RAISE = 1.1
    _CUT = 0.5
    _successes = 0

    def _grow(self, now: float) -> None:
        self._successes += 1
        if self._successes >= self._RAISE_AFTER:
            self._successes = 0
            self.rate *= self._RAISE

    def _cut(self) -> None:
        self._successes = 0
        self.rate *= self._CUT


class Cubic(_Yielding):
    """TCP's CUBIC (RFC 9438) of a rate instead of a window: after a refusal the rate
    times beta, then along a cubic curve back to the rate that was refused and past it.
    The curve begins with the first success after the silence. Until the first refusal
    the rate doubles with every ten successes."""

    _BETA = 0.7
    _SCALE = 0.4
    _SLOW_START = 2.0**0.1

    def __init__(self, concurrency: int, bounds: Bounds) -> None:
        super().__init__(concurrency, bounds)
        self._refused_rate: float | None = None
        self._since: float | None = None

    def _grow(self, now: float) -> None:
        top = self._refused_rate
        if top is None:
            self.rate *= self._SLOW_START
            return
        if self._since is None:
            self._since = now
        back_in = (top * (1 - self._BETA) / self._SCALE) ** (1 / 3)
        self.rate = self._SCALE * (now - self._since - back_in) ** 3 + top

    def _cut(self) -> None:
        self._refused_rate = self.rate
        self._since = None
        self.rate *= self._BETA


class AutoThrottle(_Spaced):
    """Scrapy's, with its default settings: the delay is drawn to the latency, and an
    answer that is no 200 never lowers it. (Its randomised delay is left out: it
    spreads the requests without changing their number.)"""

    _START_DELAY = 5.0
    _MAX_DELAY = 60.0
    _TARGET_CONCURRENCY = 1.0

    def __init__(self, concurrency: int, bounds: Bounds) -> None:
        super().__init__(1 / self._START_DELAY, concurrency, bounds)

    def _learn(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> float:
        # It hears of responses only.
        if outcome.verdict in (Verdict.TIMED_OUT, Verdict.FAILED):
            return 0.0
        delay = 1 / self.rate
        target = (now - permit.sent_at) / self._TARGET_CONCURRENCY
        new_delay = min(self._MAX_DELAY, max(target, (delay + target) / 2))
        if outcome.verdict is Verdict.SERVED or new_delay > delay:
            self.rate = 1 / new_delay
        return 0.0


class Oracle(_Spaced):
    """Knows the limit at every time, and how many share it; sends just under its
    part of it, evenly, and waits for the end of an outage. Where the limit is one of
    connections, it keeps as many busy and needs no pace."""

    # Requests overtake each other on their way, so that an even pace at the very
    # limit is refused now and then.
    _MARGIN = 0.985

    def __init__(
        self,
        server: Server,
        concurrency: int,
        bounds: Bounds,
        clients: int,
        connections: int | None,
    ) -> None:
        super().__init__(bounds.max_rate, connections or concurrency, bounds)
        self._server = server
        # Bad luck takes its share of what is sent: that is no reason to send less.
        self._limit = _innermost(server)
        self._paced = connections is None
        self._share = self._MARGIN / clients

    def take(self, now: float) -> Permit:
        if self._paced:
            rate = self._share * self._limit.allowed(now, now + 1)
            self.rate = min(rate, self._bounds.max_rate)
        if not self._server.allowed(now, now + 1 / self.rate):
            healthy_at = (t for t in self._server.changes(math.inf) if t > now)
            self._paused_until = next(healthy_at, math.inf)
        return super().take(now)


def _innermost(server: Server) -> Server:
    while isinstance(server, Wrapper):
        server = server.server
    return server


def law(
    name: str,
    server: Server,
    concurrency: int,
    *,
    bounds: Bounds = BOUNDS,
    clients: int = 1,
    connections: int | None = None,
) -> Law:
    """The law of that name, for one of ``clients`` clients of the server."""
    if name == "oracle":
        return Oracle(server, concurrency, bounds, clients, connections)
    return _LAWS[name](concurrency, bounds)


def _ours(concurrency: int, bounds: Bounds) -> Law:
    return Slot("host", bounds, spacing=0.0, concurrency=concurrency)


_LAWS: dict[str, Callable[[int, Bounds], Law]] = {
    "ours": _ours,
    "AIMD": Aimd,
    "CUBIC": Cubic,
    "AutoThrottle": AutoThrottle,
    "AWS adaptive": AwsAdaptive,
}

NAMES = [*_LAWS, "oracle"]
