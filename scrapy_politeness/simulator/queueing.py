"""Model servers that take time to answer: the limit is how much they do at once."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from random import Random

from scrapy_politeness.simulator.servers import ROUNDING, Reply


class _Service:
    """Draws service times; ``variation`` is their deviation relative to the mean:
    0 is constant, 1 is exponential."""

    def __init__(self, mean: float, variation: float, seed: int) -> None:
        self._mean = mean
        self._square = variation * variation
        self._random = Random(seed)

    def draw(self) -> float:
        if not self._square:
            return self._mean
        return self._random.gammavariate(1 / self._square, self._mean * self._square)


class ConnectionLimit:
    """Serves ``limit`` requests at once and refuses more.

    What it allows is what ``limit`` connections carry when each sends its next
    request on getting an answer, ``round_trip`` seconds of travel included. A paced
    client can do better: while its requests travel, others are served.
    """

    burst = 0.0
    period = 0.0

    def __init__(
        self,
        limit: int,
        service: float,
        *,
        round_trip: float,
        variation: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.service = service
        self._limit = limit
        self._round_trip = round_trip
        self._times = _Service(service, variation, seed)
        self._busy_until: list[float] = []

    def arrive(self, now: float, page: int = 0) -> Reply:
        self._release(now)
        if len(self._busy_until) >= self._limit:
            return Reply(now, served=False)
        done = now + self._times.draw()
        heappush(self._busy_until, done)
        return Reply(done, served=True)

    def wait(self, now: float) -> float:
        self._release(now)
        full = len(self._busy_until) >= self._limit
        return self._busy_until[0] - now if full else 0.0

    def allowed(self, start: float, end: float) -> float:
        return (end - start) * self._limit / (self.service + self._round_trip)

    def changes(self, end: float) -> list[float]:
        return []

    def _release(self, now: float) -> None:
        busy = self._busy_until
        while busy and busy[0] <= now + ROUNDING:
            heappop(busy)


class QueueingServer:
    """Refuses nothing: what comes faster than ``capacity`` waits in line, and is
    served even if nobody waits for it any more."""

    burst = 0.0
    period = 0.0

    def __init__(
        self,
        capacity: float,
        *,
        workers: int = 1,
        variation: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.service = workers / capacity
        self._capacity = capacity
        self._times = _Service(self.service, variation, seed)
        self._free_at = [0.0] * workers

    def arrive(self, now: float, page: int = 0) -> Reply:
        done = max(now, self._free_at[0]) + self._times.draw()
        heapreplace(self._free_at, done)
        return Reply(done, served=True)

    def wait(self, now: float) -> float:
        return 0.0

    def allowed(self, start: float, end: float) -> float:
        return (end - start) * self._capacity

    def changes(self, end: float) -> list[float]:
        return []
