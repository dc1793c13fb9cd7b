"""Sliding windows of time, each with room for a number of requests."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# How many times are kept for a window, however many requests it holds.
_MOST_TIMES = 1000

# What share of a window may be used up at once, where all times cannot be kept.
_BURST_SHARE = 10


@dataclass(frozen=True, slots=True)
class Window:
    """Room for ``count`` requests in ``seconds``."""

    count: int
    seconds: float

    @property
    def group(self) -> int:
        """How many requests share one time, which is that of the last of them."""
        return math.ceil(self.count / _MOST_TIMES)

    @property
    def groups(self) -> int:
        """How many groups fit, none of them full."""
        return self.count // self.group

    @property
    def burst(self) -> int:
        """Where many processes count together: how many may go at once."""
        return max(1, self.count // _BURST_SHARE)

    @property
    def interval(self) -> float:
        """How to space what comes after such a burst, so that all of it fits."""
        return self.seconds / (self.count - self.burst + 1)

    def shared(self, processes: int) -> Window:
        """What is left for one of several processes, at least one request."""
        seconds = self.seconds * max(1.0, processes / self.count)
        return Window(max(1, self.count // processes), seconds)


class Windows:
    """Remembers when requests were sent. As many as fit may go; the next one goes as
    soon as the oldest has left the window."""

    __slots__ = ("_logs",)

    def __init__(self, windows: Sequence[Window]) -> None:
        self._logs = [_Log(window) for window in windows]

    @property
    def ready_at(self) -> float:
        """From when on there is room in all of them."""
        return max(log.ready_at for log in self._logs)

    @property
    def empty_at(self) -> float:
        """From when on it is as if there had never been a request."""
        return max(log.empty_at for log in self._logs)

    def take(self, now: float) -> None:
        for log in self._logs:
            log.take(now)


class _Log:
    __slots__ = ("_in_last", "_times", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._times: deque[float] = deque(maxlen=window.groups)
        # How many requests the last group has.
        self._in_last = window.group

    @property
    def ready_at(self) -> float:
        is_full = len(self._times) == self._window.groups
        if not is_full or self._in_last < self._window.group:
            return -math.inf
        return self._times[0] + self._window.seconds

    @property
    def empty_at(self) -> float:
        return self._times[-1] + self._window.seconds if self._times else -math.inf

    def take(self, now: float) -> None:
        if self._in_last < self._window.group:
            self._in_last += 1
            self._times[-1] = now
        else:
            self._in_last = 1
            self._times.append(now)
