"""Permits that several processes share: asked for before they are needed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_politeness.core.route import Route
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.scheduling.registry import SlotRegistry
    from scrapy_politeness.sharing.fleet import Fleet


class Permits:
    """``waiting`` returns how many requests wait for a slot."""

    def __init__(
        self, fleet: Fleet, registry: SlotRegistry, waiting: Callable[[Slot], int]
    ) -> None:
        self._fleet = fleet
        self._registry = registry
        self._waiting = waiting

    @property
    def asks_enough(self) -> bool:
        """Tell whether the queue had better wait for the answers to what was asked."""
        return self._fleet.is_full

    def want(self, route: Route) -> None:
        """A request waits for its permits."""
        self._fleet.want(route)

    def sent(self, route: Route) -> None:
        """A request was sent, and more may follow."""
        if self._waiting(route.slot):
            self._fleet.want(route)

    def claimable_at(self, slot: Slot | None) -> float:
        """Return from when on a request may be handed out, or permits for it are worth
        asking for. None is a slot that nothing was sent to yet."""
        if slot is None:
            overall = self._registry.overall
            told_at = None if overall is None else overall.told_at
            return -math.inf if told_at is None else told_at
        if not slot.is_joined:
            return slot.claimable_at
        return max(slot.claimable_at, self._told_at(slot))

    def may_hand_out(self, queue_key: str, now: float) -> bool:
        """Tell whether a request of this slot, which is due, is paid for. If not, it
        is asked for, and the queue will be told."""
        if self._registry.is_free(queue_key):
            return True
        slot = self._registry.seen(queue_key)
        if slot is None and self._registry.overall is not None:
            # Its own budget is untouched, but that of all may not be.
            slot = self._registry.slot(queue_key)
        if slot is None or not slot.is_joined or slot.way:
            return True
        route = self._registry.queue_route(queue_key)
        if slot.leases is None or route is None:
            return True
        if slot.leases.has_lease_for(slot.claims, now, route.shared):
            return True
        if not self._fleet.is_full:
            self._fleet.want(route)
        return False

    def _told_at(self, slot: Slot) -> float:
        """Return when the budgets that a slot shares with others may have something
        for it, if it needs that."""
        if slot.leases is not None and len(slot.leases) > slot.claims:
            return -math.inf
        route = self._registry.queue_route(slot.key)
        told = () if route is None else (budget.told_at for budget in route.shared)
        return max((at for at in told if at is not None), default=-math.inf)
