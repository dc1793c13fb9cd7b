"""A crawl at one moment: its slots, what was done and what is left to do."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_politeness.core.health import Health
from scrapy_politeness.core.text import duration
from scrapy_politeness.http.names import printable
from scrapy_politeness.observe.figures import columns, figures_of
from scrapy_politeness.observe.tally import Tallies, Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy.statscollectors import StatsCollector

    from scrapy_politeness.core.health import Status
    from scrapy_politeness.http.scrapy_internals import Engine
    from scrapy_politeness.scheduling.gate import Gate
    from scrapy_politeness.scheduling.registry import SlotRegistry
    from scrapy_politeness.scheduling.slot_queue import SlotQueue

# The worst last.
_SEVERITY = tuple(Health)

_MOST_PRINTED = 20


@dataclass(frozen=True, slots=True)
class SlotView:
    """``status`` is None for a slot that was forgotten, or that nothing limits;
    ``pending`` requests wait for it, in the scheduler or at the gate. ``key`` may
    contain anything: show it through ``names.printable``."""

    key: str
    status: Status | None
    pending: int
    tally: Tally

    def __str__(self) -> str:
        known = figures_of(self)
        shown = (f"{f.title.lower()} {f.text(known)}" for f in columns([known]))
        return f"{printable(self.key)}: {self.condition}; {', '.join(shown)}"

    @property
    def condition(self) -> str:
        status = self.status
        if status is None:
            return "forgotten"
        left = f", {duration(status.paused_for)} left" if status.paused_for else ""
        return f"{status.health.value}{left}"

    @property
    def eta(self) -> float:
        if self.status is None or not self.pending:
            return 0.0
        return self.pending / self.status.rate + self.status.paused_for

    @property
    def interest(self) -> tuple[bool, int, float, int, int]:
        """Sorts busy slots before idle ones, then by severity and by what is left."""
        status, tally = self.status, self.tally
        busy = self.pending > 0 or (status is not None and status.in_flight > 0)
        severity = _SEVERITY.index(status.health) if status is not None else 0
        refused = tally.refused + tally.timed_out
        return busy, severity, self.eta, refused, tally.sent


@dataclass(frozen=True, slots=True)
class Census:
    """``slots`` come in the order of their interest. Slots that are no longer tallied
    one by one are ``others``; ``other`` is their tally, ``total`` that of all slots.

    ``done`` counts the responses that the crawl received, including exempt hosts, the
    cache and robots.txt, but not refusals that were rescheduled; ``pending`` counts the
    requests in the scheduler, ``in_progress`` those that have left it.
    """

    at: float
    slots: tuple[SlotView, ...]
    other: Tally
    others: int
    total: Tally
    done: int
    pending: int
    in_progress: int

    def top(self, most: int) -> tuple[SlotView, ...]:
        return self.slots[:most]

    def __str__(self) -> str:
        """For a console: ``print(politeness.census())``."""
        head = (
            f"{self.done} done, {self.pending} in the scheduler, {self.in_progress} in "
            f"progress; held back for {duration(self.total.waited)} in total"
        )
        return "\n".join((head, *map(str, self.top(_MOST_PRINTED))))

    @property
    def eta(self) -> float:
        """Seconds that the slowest slot needs for the requests waiting now, at its
        current rate and after its current pause."""
        return max((view.eta for view in self.slots), default=0.0)


class CensusTaker:
    """The cost of a census is bounded, however many slots there are."""

    def __init__(
        self,
        registry: SlotRegistry,
        gate: Gate,
        queues: Sequence[SlotQueue],
        engine: Engine,
        stats: StatsCollector,
    ) -> None:
        self._registry, self._gate, self._queues = registry, gate, queues
        self._engine, self._stats = engine, stats
        self._latest: Census | None = None
        self.tallies = Tallies(self.pending)

    def census(self, max_age: float) -> Census:
        now = time.monotonic()
        if self._latest is None or now - self._latest.at > max_age:
            self._latest = self._take(now)
        return self._latest

    def _take(self, now: float) -> Census:
        views = [self._view(key, tally, now) for key, tally in self.tallies]
        views.sort(key=lambda view: view.interest, reverse=True)
        return Census(
            at=now,
            slots=tuple(views),
            other=self.tallies.other.copy(),
            others=self.tallies.others,
            total=self.tallies.total,
            done=self._stats.get_value("response_received_count", 0),
            pending=sum(map(len, self._queues)),
            in_progress=len(self._engine.in_progress()),
        )

    def _view(self, key: str, tally: Tally, now: float) -> SlotView:
        slot = self._registry.seen(key)
        status = None if slot is None else slot.status(now)
        return SlotView(key, status, self.pending(key), tally.copy())

    def pending(self, slot_key: str) -> int:
        """Count the requests that wait for a slot, in the scheduler or at the gate."""
        pending = 0
        for queue in self._queues:
            pending += queue.backlog.count(slot_key)
        slot = self._registry.slots.get(slot_key)
        return pending if slot is None else pending + self._gate.waiting(slot)
