"""Permits that several processes share: asked for before they are needed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import is_asyncio_available

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider

    from scrapy_politeness.conduct import Conduct
    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.route import Route
    from scrapy_politeness.core.scope import Scope
    from scrapy_politeness.fleet import Fleet
    from scrapy_politeness.layers import Layers


def open_fleet(policy: Policy, conduct: Conduct, spider: Spider | None) -> Fleet | None:
    if policy.redis_url is None:
        return None
    if not is_asyncio_available():
        raise policy.bad_redis(
            "needs asyncio, so TWISTED_REACTOR must be left as it is, or be "
            "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
        )
    # Only who has asked for it needs the package redis.
    from scrapy_politeness.fleet import Fleet

    return Fleet(
        policy.redis_url,
        policy,
        learned=lambda *told: conduct.feedback.learned(*told),
        silenced=lambda slot, wait: conduct.news.silenced(slot, wait),
        pending=conduct.pending,
        count=lambda name, number: conduct.stats.inc_value(name, number),
        spider=spider,
    )


class Permits:
    """``waiting`` returns how many requests wait for a slot."""

    def __init__(
        self, fleet: Fleet, layers: Layers, waiting: Callable[[Scope], int]
    ) -> None:
        self._fleet = fleet
        self._layers = layers
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

    def claimable_at(self, slot: Scope | None) -> float:
        """Return from when on a request may be handed out, or permits for it are worth
        asking for. None is a slot that nothing was sent to yet."""
        if slot is None:
            overall = self._layers.overall
            told_at = None if overall is None else overall.told_at
            return -math.inf if told_at is None else told_at
        if not slot.is_joined:
            return slot.claimable_at
        return max(slot.claimable_at, self._told_at(slot))

    def may_hand_out(self, queue_key: str, now: float) -> bool:
        """Tell whether a request of this slot, which is due, is paid for. If not, it
        is asked for, and the queue will be told."""
        if self._layers.is_free(queue_key):
            return True
        slot = self._layers.seen(queue_key)
        if slot is None and self._layers.overall is not None:
            # Its own budget is untouched, but that of all may not be.
            slot = self._layers.slot(queue_key)
        if slot is None or not slot.is_joined or slot.way:
            return True
        route = self._layers.queue_route(queue_key)
        if slot.leases is None or route is None:
            return True
        if slot.leases.has_lease_for(slot.claims, now, route.shared):
            return True
        if not self._fleet.is_full:
            self._fleet.want(route)
        return False

    def _told_at(self, slot: Scope) -> float:
        """Return when the budgets that a slot shares with others may have something
        for it, if it needs that."""
        if slot.leases is not None and len(slot.leases) > slot.claims:
            return -math.inf
        route = self._layers.queue_route(slot.key)
        told = () if route is None else (budget.told_at for budget in route.shared)
        return max((at for at in told if at is not None), default=-math.inf)
