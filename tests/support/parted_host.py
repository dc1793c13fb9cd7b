"""A host that some paths have limits of their own on, crawled on virtual time."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.outcome import TOO_MANY_REQUESTS, Outcome, Permit, Verdict
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.scheduling.splits import Splits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scrapy_politeness.simulator import Server

HOST = "host"

# Seconds, one way, and by how much more on average.
_TRAVEL_TIME = 0.0025
_DELAY = 0.0005

# A page that was refused stays behind the others for this long after the pause.
_BEHIND = 60.0


class _Flight(NamedTuple):
    slot: Slot
    permit: Permit
    path: str
    is_new: bool


@dataclass
class _Line:
    """Paths that wait for a slot, and those that were refused, with a time."""

    slot: Slot
    paths: deque[str] = field(default_factory=deque)
    refused: list[tuple[float, str]] = field(default_factory=list)

    @property
    def due(self) -> float:
        has_work = self.slot.has_room and (self.paths or self.refused)
        return self.slot.ready_at if has_work else math.inf

    def pop(self, now: float) -> str:
        if self.refused and (self.refused[0][0] <= now or not self.paths):
            return heappop(self.refused)[1]
        return self.paths.popleft()


class PartedHost:
    """Paths that begin alike have one limit, and those that begin with none of the
    ``limits`` are served. Each slot that is split off gets what belongs to it when the
    host's own would have sent it. With ``spacings``, those are known: each is a slot
    of its own from the start.
    """

    def __init__(
        self,
        limits: Mapping[str, Server],
        *,
        seed: int = 0,
        spacings: Mapping[str, float] | None = None,
    ) -> None:
        self.served: list[tuple[float, str]] = []
        self.refused: list[tuple[float, str]] = []
        self.splits: list[tuple[float, str]] = []
        self._limits = limits
        self._random = Random(seed)
        self._splits = Splits(10, None, is_applied=True)
        self._spacings = spacings or {}
        self._lines = {HOST: _line(HOST)}
        self._lines |= {key: _line(key, each) for key, each in self._spacings.items()}
        self._asked: set[str] = set()
        self._events: list[tuple[float, int, _Flight, bool | None]] = []
        self._number = 0

    def crawl(self, paths: Sequence[str], end: float = math.inf) -> None:
        for path in paths:
            self._lines[self._key(path)].paths.append(path)
        now = 0.0
        while now < end and len(self.served) < len(paths):
            line = min(self._lines.values(), key=lambda line: line.due)
            if self._events and self._events[0][0] <= line.due:
                now, _, flight, is_served = heappop(self._events)
                if is_served is None:
                    self._arrive(now, flight)
                else:
                    self._settle(now, flight, is_served)
            elif line.due == math.inf:
                break
            else:
                now = max(now, line.due)
                self._send(now, line)

    def _send(self, now: float, line: _Line) -> None:
        path = line.pop(now)
        own = self._lines[self._key(path)]
        if own is not line:
            own.paths.append(path)
            return
        flight = _Flight(line.slot, line.slot.take(now), path, path not in self._asked)
        self._asked.add(path)
        self._plan(now, flight, None)

    def _arrive(self, now: float, flight: _Flight) -> None:
        begin = next((b for b in self._limits if flight.path.startswith(b)), None)
        is_served = begin is None or self._limits[begin].arrive(now).served
        log = self.served if is_served else self.refused
        log.append((now, flight.path))
        self._plan(now, flight, is_served)

    def _settle(self, now: float, flight: _Flight, is_served: bool) -> None:
        slot, permit, path, is_new = flight
        outcome = Outcome(Verdict.SERVED)
        if not is_served:
            outcome = Outcome(Verdict.REFUSED, TOO_MANY_REQUESTS)
        slot.settle(permit, outcome, now, self._random.random())
        if not is_served:
            behind = max(now, slot.ready_at) + _BEHIND
            heappush(self._lines[self._key(path)].refused, (behind, path))
        if slot.key != HOST:
            return
        url = f"http://{HOST}{path}"
        split = self._splits.answered(HOST, url, permit, outcome, now, is_new=is_new)
        if split is not None:
            self.splits.append((now, split.name))
            line = self._lines[split.name] = _line(split.name)
            split.apply(slot, line.slot, permit, now)

    def _key(self, path: str) -> str:
        known = next((key for key in self._spacings if path.startswith(key)), None)
        return known or self._splits.slot_for(HOST, f"http://{HOST}{path}") or HOST

    def _plan(self, now: float, flight: _Flight, is_served: bool | None) -> None:
        at = now + _TRAVEL_TIME + self._random.expovariate(1 / _DELAY)
        self._number += 1
        heappush(self._events, (at, self._number, flight, is_served))


def _line(key: str, spacing: float = 0.0) -> _Line:
    return _Line(Slot(key, Bounds(), spacing=spacing, concurrency=8))
