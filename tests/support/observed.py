"""Slots on virtual time, logged and counted as in a crawl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.utils.test import get_crawler

from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.route import Flight, Route
from scrapy_politeness.observe.census import Census, SlotView
from scrapy_politeness.observe.events import Events
from scrapy_politeness.observe.reporter import report_of
from scrapy_politeness.observe.tally import Tallies

if TYPE_CHECKING:
    from scrapy_politeness.core.governor.host_model import Change
    from scrapy_politeness.core.outcome import Permit
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.observe.report import Report
    from scrapy_politeness.observe.timeline import Sampler


class ObservedCrawl:
    """``waiting`` requests wait for each slot, all the time."""

    def __init__(self, waiting: int = 100, sampler: Sampler | None = None) -> None:
        self.crawler = get_crawler()
        self.tallies = Tallies(lambda slot: waiting)
        self.events = Events(self.crawler, self.tallies, sampler)

        self._sampler = sampler
        self._slots: dict[str, Slot] = {}
        self._waiting = waiting

    def observe(self, slot: Slot) -> Observed:
        self._slots[slot.key] = slot
        return Observed(slot, self.events)

    def census(self, now: float) -> Census:
        views = tuple(
            SlotView(key, self._slots[key].status(now), self._waiting, tally.copy())
            for key, tally in self.tallies
        )
        total = self.tallies.total
        return Census(
            at=now,
            slots=views,
            other=self.tallies.other,
            others=self.tallies.others,
            total=total,
            done=total.served,
            pending=0,
            in_progress=0,
        )

    def report(self, now: float) -> Report:
        """The report of a crawl that began at 0."""
        assert self._sampler is not None
        census = self.census(now)
        return report_of(census, self.tallies, self._sampler, "spider", "finished")


class Followed:
    """A law for the simulator: that of the slot."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot

    @property
    def ready_at(self) -> float:
        return self.slot.ready_at

    @property
    def has_room(self) -> bool:
        return self.slot.has_room

    def take(self, now: float) -> Permit:
        return self.slot.take(now)

    def settle(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Change:
        return self.slot.settle(permit, outcome, now, chance)


class Observed(Followed):
    """Everything that happens is passed to ``events``."""

    def __init__(self, slot: Slot, events: Events) -> None:
        super().__init__(slot)
        self._events = events

    def take(self, now: float) -> Permit:
        permit = super().take(now)
        self._events.sent(Flight(Route(self.slot), permit, ()), now)
        return permit

    def settle(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Change:
        change = super().settle(permit, outcome, now, chance)
        self._events.settled(self.slot, outcome, change, now)
        return change

    def serve(self, permit: Permit, now: float) -> None:
        self.settle(permit, Outcome(Verdict.SERVED), now, 0.0)
