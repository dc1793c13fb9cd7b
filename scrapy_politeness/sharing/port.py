"""How a crawl shares its limits, and what it learns, with other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.governor.host_model import Change
    from scrapy_politeness.core.outcome import Outcome, Permit
    from scrapy_politeness.core.route import Route
    from scrapy_politeness.core.slot import Slot


class Hearer(Protocol):
    def learned(self, slot: Slot, outcome: Outcome, change: Change) -> None:
        """An outcome that was saved has changed this."""

    def paused_elsewhere(self, slot: Slot, seconds: float) -> None:
        """The host has asked another process for a pause."""


class Sharing(Protocol):
    """Slots and budgets that were joined get their permits from here, and what comes
    of them is saved here. Whenever there is something new for a slot, that slot
    announces it."""

    @property
    def is_remote(self) -> bool:
        """Tell whether permits have to be reserved elsewhere, which takes time."""

    @property
    def is_busy(self) -> bool:
        """Tell whether the queue should wait for answers before it reserves more."""

    @property
    def now(self) -> float:
        """The time by which slots learn."""

    def start(self) -> None: ...

    async def close(self) -> None:
        """Everything that was saved has been heard of when this returns."""

    def join(self, source: Slot | Budget, name: str) -> None:
        """Share it from now on, under a name that no other slot or budget has."""

    def share_concurrency(self, slot: Slot, name: str) -> None:
        """Let the slot's concurrency hold for all processes together."""

    def reserve(self, route: Route, *, ahead: bool = False) -> None:
        """Get permits for a request that waits; or, ``ahead`` of time, for those that
        will follow the one that was just sent."""

    def save(
        self, slot: Slot, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> None:
        """A request is over. What that changes is heard of now, or later."""

    def hear(self, hearer: Hearer) -> None:
        """To be called before anything is saved."""

    def forget(self, slot: Slot) -> None:
        """What was learned of this slot is out of date, for all processes."""
