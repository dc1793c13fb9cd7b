"""A rate limiter for pipelines and scripts, outside the crawl."""

from __future__ import annotations

import inspect
import math
import threading
import time
from collections import deque
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from scrapy_politeness.config import rules
from scrapy_politeness.config.rules import checked
from scrapy_politeness.core.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

_T = TypeVar("_T")
_P = ParamSpec("_P")

# Seconds. Sums of such intervals are finite.
_LONGEST_INTERVAL = 1e9

# 2.0**1024 would overflow.
_MOST_DOUBLINGS = 1000


class RateLimiter:
    """Lets callers through at ``rate`` a second (or ``"5/2s"``), or with ``delay``
    seconds between them; exactly one of the two is given.

    The first call never waits. Threads that share a limiter are let through in the
    order in which they came. After an idle time, ``burst`` calls may go at once; in a
    time t, no more than ``t * rate + burst`` do. A rate or delay of 0 disables the
    limiter. ``clock`` and ``sleep`` are for tests.
    """

    def __init__(
        self,
        rate: float | str | None = None,
        *,
        delay: float | None = None,
        burst: int = 1,
        backoff_base: float = 5.0,
        backoff_max: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[
            [threading.Condition, float], object
        ] = threading.Condition.wait,
    ) -> None:
        if (rate is None) == (delay is None):
            raise ValueError(
                f"rate={rate!r}, delay={delay!r}: exactly one of them must be given"
            )
        if delay is None:
            interval = checked("rate", rate, _interval)
        else:
            interval = checked("delay", delay, rules.not_negative)
        self._interval = min(interval, _LONGEST_INTERVAL)
        self._burst = checked("burst", burst, rules.at_least_one)
        # A rate holds on average, so that a late timer costs nothing; a delay holds
        # between any two calls.
        exact = delay is not None and self._burst == 1
        self._floor = self._interval if exact else 0.0
        self._backoff_base = checked("backoff_base", backoff_base, rules.not_negative)
        self._backoff_max = checked("backoff_max", backoff_max, rules.not_negative)
        self._clock = clock
        self._sleep = sleep
        # Reentrant, for the signal handler that calls reset() while its thread is here.
        self._lock = threading.RLock()
        # Only the first in line watches the clock, and wakes the next when it leaves.
        # Nothing is reserved ahead, so a backoff holds all of them.
        self._line: deque[threading.Condition] = deque()
        self._backoff_over = threading.Condition(self._lock)
        self._enabled = self._interval > 0
        self._pace = Pace(self._burst)
        self._last: float | None = None

    def wait(self) -> float:
        """Block until the next call may go; return the seconds waited."""
        with self._lock:
            came_at = now = self._clock()
            turn = threading.Condition(self._lock)
            self._line.append(turn)
            try:
                while (left := self._left(turn, now)) > 0:
                    self._sleep(turn, min(left, threading.TIMEOUT_MAX))
                    now = self._clock()
                self._let_through(now)
            finally:
                self._line.remove(turn)
                if self._line:
                    self._line[0].notify()
            return now - came_at

    def backoff(self, attempt: int) -> float:
        """Sleep ``backoff_base * 2**attempt`` seconds, at most ``backoff_max``, and
        return that; no other call is let through meanwhile. Of several backoffs at a
        time the latest end counts, not the sum."""
        doublings = checked("attempt", attempt, _doublings)
        with self._lock:
            if not self._enabled:
                return 0.0
            seconds = min(self._backoff_base * 2.0**doublings, self._backoff_max)
            now = self._clock()
            until = now + seconds
            pace = self._pace
            # The first in line notices when its time comes.
            pace.pause_until(until, self._interval)
            # Only reset() puts another pace in its place.
            while self._enabled and self._pace is pace and now < until:
                self._sleep(self._backoff_over, min(until - now, threading.TIMEOUT_MAX))
                now = self._clock()
            return seconds

    def reset(self) -> None:
        """Forget all calls and end all backoffs: the next call may go at once."""
        with self._lock:
            self._pace = Pace(self._burst)
            self._last = None
            self._wake_all()

    @property
    def enabled(self) -> bool:
        """While this is False, nothing ever waits."""
        return self._enabled

    @enabled.setter
    def enabled(self, value: bool) -> None:
        with self._lock:
            self._enabled = value
            self._wake_all()

    @property
    def elapsed_time(self) -> float:
        """Seconds since the last call was let through; 0.0 before the first."""
        with self._lock:
            return 0.0 if self._last is None else self._clock() - self._last

    @property
    def remaining_wait_time(self) -> float:
        """Seconds until one more call may go: the first in line, if there is one."""
        with self._lock:
            return max(0.0, self._seconds_left(self._clock()))

    def __enter__(self) -> Self:
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, function: Callable[_P, _T]) -> Callable[_P, _T]:
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(
            function
        ):
            raise TypeError(
                f"{function!r} is async, and wait() would block its event loop"
            )

        @wraps(function)
        def limited(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            self.wait()
            return function(*args, **kwargs)

        return limited

    def _left(self, turn: threading.Condition, now: float) -> float:
        if self._enabled and self._line[0] is not turn:
            return math.inf
        return self._seconds_left(now)

    def _seconds_left(self, now: float) -> float:
        if not self._enabled:
            return 0.0
        return self._pace.ready_at(self._interval, self._floor) - now

    def _let_through(self, now: float) -> None:
        self._last = now
        if self._enabled:
            self._pace.take(now, self._interval, self._floor)
        else:
            # Otherwise the first call once it is enabled would pay for all of these.
            self._pace.restart(now)

    def _wake_all(self) -> None:
        self._backoff_over.notify_all()
        for turn in self._line:
            turn.notify()


def _interval(rate: Any) -> float:
    if isinstance(rate, str):
        return rules.limit(rate).interval
    number = rules.not_negative(rate)
    return 1 / number if number else 0.0


def _doublings(attempt: Any) -> int:
    # An int may be too large for a float.
    if isinstance(attempt, int):
        attempt = min(attempt, _MOST_DOUBLINGS)
    return min(rules.count(attempt), _MOST_DOUBLINGS)
