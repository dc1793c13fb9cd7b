"""Pages that take times of their own, on a host that is healthy all the same."""

from __future__ import annotations

import math
from random import Random
from statistics import median
from typing import TYPE_CHECKING

from scrapy_politeness.simulator.servers import Reply, Server, Wrapper

if TYPE_CHECKING:
    from collections.abc import Sequence

# Of each kind of chance, so many pages differ; a prime, so that it has no rhythm in
# common with anything.
_DIFFERENT = 4999


def runs(*kinds: float, length: int) -> list[float]:
    """Pages of one kind follow each other: so many of each, in turn."""
    return [seconds for seconds in kinds for _ in range(length)]


def mixed(*kinds: float, seed: int = 0) -> list[float]:
    return Random(f"mixed {seed}").choices(kinds, k=_DIFFERENT)


def lognormal(typical: float, sigma: float, seed: int = 0) -> list[float]:
    """``typical`` is the median."""
    draw = Random(f"lognormal {seed}").lognormvariate
    return [draw(math.log(typical), sigma) for _ in range(_DIFFERENT)]


class Latencies(Wrapper[Server]):
    """Pages take the seconds of the table in turn, each always the same. ``first`` is
    for a file such as robots.txt, which is what a crawl asks for first."""

    def __init__(
        self, server: Server, table: Sequence[float], *, first: float | None = None
    ) -> None:
        super().__init__(server)
        self.service = server.service + median(table)
        self._table = table
        self._first = first

    def arrive(self, now: float, page: int = 0) -> Reply:
        reply = self.server.arrive(now, page)
        if page == 0 and self._first is not None:
            return reply._replace(at=reply.at + self._first)
        return reply._replace(at=reply.at + self._table[page % len(self._table)])
