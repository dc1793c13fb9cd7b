"""All that a request needs permits of, to be had together or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.outcome import Permit
    from scrapy_politeness.core.scope import Scope


class Route(NamedTuple):
    """``shared`` are the budgets beside the slot's own: of the whole crawl, of the
    server's address, of the proxy."""

    slot: Scope
    shared: tuple[Budget, ...] = ()

    @property
    def ready_at(self) -> float:
        if not self.shared:
            return self.slot.ready_at
        return max(self.slot.ready_at, *(budget.ready_at for budget in self.shared))

    def may_go(self, now: float) -> bool:
        return self.slot.has_room and self.ready_at <= now

    def claim(self, claimant: object, now: float) -> None:
        """A request was handed out and is on its way to be sent."""
        self.slot.claim(now)
        for budget in self.shared:
            budget.claim(claimant, now)

    def unclaim(self, claimant: object) -> None:
        """That request was sent, or will never be."""
        self.slot.unclaim()
        for budget in self.shared:
            budget.unclaim(claimant)

    def take(self, now: float) -> Flight:
        """Let one request through, now."""
        permit = self.slot.take(now)
        return Flight(self, permit, tuple(budget.take(now) for budget in self.shared))


class Flight(NamedTuple):
    """A request that was sent; ``shared`` are its permits from ``route.shared``."""

    route: Route
    permit: Permit
    shared: tuple[Permit, ...]
