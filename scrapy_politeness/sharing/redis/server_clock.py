"""The clock of the server that several processes share, and how far away it is, as seen
from one of them."""

from __future__ import annotations

import math
import time

# What was measured long ago is not worth much: clocks drift.
_AGING = 1.02

# Seconds. By less than this, it was not set, but drifts.
_NOTICED = 0.01

# As TCP does it (RFC 6298): how much the last round trip counts for the usual one, and
# for how much they differ; and how many of those differences to allow for.
_USUAL = 1 / 8
_DIFFERENCE = 1 / 4
_DIFFERENCES = 4.0

# Seconds. A server further away than this is of no use: requests would be reserved so
# long before they are sent that a refusal would be heard of too late.
LONGEST_ROUND_TRIP = 0.5
_NO_ACCIDENT = 4


def seconds_asleep() -> float:
    """For how long this machine was suspended since it was started, where that can be
    told: its monotonic clock stood still for that long."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    if boot_time is None:
        return 0.0
    return time.clock_gettime(boot_time) - time.monotonic()


class ServerClock:
    """Server time is in seconds since 1970, local time is monotonic.

    The quickest round trip gives the best estimate of the time there: somewhere between
    sending and receiving.
    """

    def __init__(self) -> None:
        # Until it is known better, machines are set to the same time.
        self.offset = time.time() - time.monotonic()
        self._error = math.inf

    @property
    def is_known(self) -> bool:
        return self._error < math.inf

    def learn(self, sent_at: float, received_at: float, server_micros: int) -> bool:
        """Return whether it was set forward since then."""
        there = server_micros / 1e6
        was_set = not sent_at <= there - self.offset <= received_at
        error = (received_at - sent_at) / 2
        is_forward = there - self.offset > received_at + self._error + _NOTICED
        self._error *= _AGING
        if was_set or error <= self._error:
            self._error = error
            self.offset = there - (sent_at + received_at) / 2
        return is_forward

    @property
    def now(self) -> float:
        return self.at(time.monotonic())

    def at(self, local: float) -> float:
        return local + self.offset

    def local(
        self, server_micros: int, wait: float, sent_at: float, received_at: float
    ) -> float:
        """Return when it will be ``wait`` seconds after that moment on the server,
        which lies between sending and receiving."""
        there = server_micros / 1e6 - self.offset
        return min(max(there, sent_at), received_at) + wait


class RoundTrip:
    """How long it takes to get an answer and to use it, in seconds."""

    def __init__(self) -> None:
        self.start(0.0)

    def start(self, seconds: float) -> None:
        """The connection is new."""
        self.usual, self._difference = seconds, seconds / 2
        self._too_long = 0

    def learn(self, seconds: float) -> None:
        self._too_long = self._too_long + 1 if seconds > LONGEST_ROUND_TRIP else 0
        difference = abs(seconds - self.usual)
        self._difference += _DIFFERENCE * (difference - self._difference)
        self.usual += _USUAL * (seconds - self.usual)

    @property
    def most(self) -> float:
        """Few take longer."""
        longest = self.usual + _DIFFERENCES * self._difference
        return min(longest, LONGEST_ROUND_TRIP + self.usual)

    @property
    def back(self) -> float:
        """How long the answer takes at most."""
        return self.most - self.usual / 2

    @property
    def is_too_long(self) -> bool:
        """Tell whether that is no accident."""
        return self._too_long >= _NO_ACCIDENT
