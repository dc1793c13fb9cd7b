"""Model servers that take time to answer: the limit is how much they do at once."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from random import Random

from scrapy_politeness.simulator.servers import ROUNDING, Reply, Server


class _ServiceTimes:
    """``variation`` is the deviation relative to the mean: 0 is constant, 1 is
    exponential."""

    def __init__(self, mean: float, variation: float, seed: int) -> None:
        self._mean = mean
        self._square = variation * variation
        self._random = Random(seed)

    def draw(self) -> float:
        if not self._square:
            return self._mean
        return self._random.gammavariate(1 / self._square, self._mean * self._square)


class ConnectionLimit(Server):
    """Serves ``limit`` requests at once and refuses more.

    It allows what ``limit`` connections can carry if each sends its next request when
    the response arrives, after ``round_trip`` seconds of travel. A client that paces
    its requests can do better: while some travel, others are served.
    """

    def __init__(
        self,
        limit: int,
        service: float,
        *,
        round_trip: float,
        variation: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(limit / (service + round_trip))
        self.service = service
        self._limit = limit
        self._times = _ServiceTimes(service, variation, seed)
        self._busy_until: list[float] = []

    def arrive(self, now: float, page: int = 0) -> Reply:
        if self.wait(now):
            return Reply(now, served=False)
        done = now + self._times.draw()
        heappush(self._busy_until, done)
        return Reply(done, served=True)

    def wait(self, now: float) -> float:
        busy = self._busy_until
        while busy and busy[0] <= now + ROUNDING:
            heappop(busy)
        return busy[0] - now if len(busy) >= self._limit else 0.0


class QueueingServer(Server):
    """Refuses nothing: requests beyond ``capacity`` wait in line, and are served even
    after the client has given up."""

    def __init__(
        self,
        capacity: float,
        *,
        workers: int = 1,
        variation: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(capacity)
        self.service = workers / capacity
        self._times = _ServiceTimes(self.service, variation, seed)
        self._free_at = [0.0] * workers

    def arrive(self, now: float, page: int = 0) -> Reply:
        done = max(now, self._free_at[0]) + self._times.draw()
        heapreplace(self._free_at, done)
        return Reply(done, served=True)
