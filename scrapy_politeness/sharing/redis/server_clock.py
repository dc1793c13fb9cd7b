"""The clock of the server that several processes share, as seen from one of them."""

from __future__ import annotations

import math
import time

# What was measured long ago is not worth much: clocks drift.
_AGING = 1.02


class ServerClock:
    """Server time is in seconds since 1970, local time is monotonic.

    The quickest round trip gives the best estimate of the time there: somewhere between
    sending and receiving.
    """

    def __init__(self) -> None:
        # Until it is known better, machines are set to the same time.
        self._offset = time.time() - time.monotonic()
        self._error = math.inf

    def learn(self, sent_at: float, received_at: float, server_micros: int) -> None:
        there = server_micros / 1e6
        was_set = not sent_at <= there - self._offset <= received_at
        error = (received_at - sent_at) / 2
        self._error *= _AGING
        if was_set or error <= self._error:
            self._error = error
            self._offset = there - (sent_at + received_at) / 2

    @property
    def now(self) -> float:
        return self.at(time.monotonic())

    def at(self, local: float) -> float:
        return local + self._offset

    def local(
        self, server_micros: int, wait: float, sent_at: float, received_at: float
    ) -> float:
        """Return when it will be ``wait`` seconds after that moment on the server,
        which lies between sending and receiving."""
        there = server_micros / 1e6 - self._offset
        return min(max(there, sent_at), received_at) + wait
