"""What holds for a host, or for a domain, over all of its slots."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from scrapy_politeness.core.bandwidth import bandwidth
from scrapy_politeness.core.budget import Budget
from scrapy_politeness.core.lru import LRU
from scrapy_politeness.core.pace import TRAVEL_TIME_DIFFERENCE
from scrapy_politeness.scheduling.companions import share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.scheduling.slot_names import SlotName
    from scrapy_politeness.sharing.port import Sharing


class ParentBudgets:
    """Where a pattern puts some of a host's requests into another slot, the host's own
    limits, and the delay in its robots.txt, are a budget that both slots share. Where
    a domain is one slot, limits that the settings have for one of its hosts are.

    The queue knows the budgets of a slot as long as all of its requests share them.
    """

    def __init__(
        self, policy: Policy, sharing: Sharing, is_slot: Callable[[str], bool]
    ) -> None:
        self._policy = policy
        self._sharing = sharing
        self._by_domain = policy.group_by == "domain"
        self._has_parts = bool(policy.slots)
        self.is_needed = self._has_parts or self._by_domain
        self._budgets = LRU[str, Budget | None](policy.max_slots, _may_forget)
        # Of each slot: the names that its requests have in common, None for several.
        self._names = LRU[str, tuple[str, ...] | None](
            policy.max_slots, lambda key, _: not is_slot(key)
        )

    def split(self) -> None:
        """A host has more slots than its own from now on."""
        self._has_parts = self.is_needed = True

    def met(self, name: SlotName) -> None:
        """A request has this name."""
        names = self.names_above(name)
        is_same = self._names.get(name.key, names) == names
        self._names[name.key] = names if is_same else None

    def of_slot(self, key: str) -> tuple[Budget, ...]:
        """Return those that all requests of a slot need."""
        return tuple(self._existing(self._names.get(key) or ()))

    def of_request(self, name: SlotName) -> tuple[Budget, ...]:
        return tuple(self._existing(self.names_above(name)))

    def obey_robots(self, name: SlotName, delay: float, since: float) -> None:
        """Keep the delay of a host over all of its slots."""
        if not self._has_parts or not name.parent:
            return
        budget = self._budget(name.parent)
        if budget is None:
            budget = self._add(name.parent, Budget(_key(name.parent)))
        budget.keep_gap(delay + TRAVEL_TIME_DIFFERENCE, since)

    def names_above(self, name: SlotName) -> tuple[str, ...]:
        """Return whose limits hold for a request in addition to those of its slot."""
        if not name.parent:
            return ()
        names: tuple[str, ...] = (name.parent,) if self._has_parts else ()
        if name.host not in (name.parent, name.key) and self._by_domain:
            names += (name.host,)
        return names

    def _existing(self, names: tuple[str, ...]) -> Iterator[Budget]:
        for name in names:
            budget = self._budget(name)
            if budget is not None:
                yield budget

    def _budget(self, name: str) -> Budget | None:
        if name not in self._budgets:
            self._budgets[name] = None
            if self._has_parts or self._policy.has_own_limits(name):
                self._make(name)
        return self._budgets[name]

    def _make(self, name: str) -> None:
        own = self._policy.for_slot(name)
        if own is None:
            return
        concurrency = own.concurrency if own.shares_concurrency else math.inf
        is_limit = own.spacing or own.floor or own.bandwidth
        if not is_limit and concurrency == math.inf:
            return
        budget = Budget(
            _key(name),
            spacing=own.spacing,
            gap=own.floor,
            burst=own.burst,
            windows=own.windows,
            bandwidth=bandwidth(own.bandwidth),
            concurrency=concurrency,
        )
        self._add(name, budget)

    def _add(self, name: str, budget: Budget) -> Budget:
        self._budgets[name] = budget
        share(self._sharing, budget, budget.key)
        return budget


def _key(name: str) -> str:
    """Unlike that of any server's address."""
    return f"host:{name}"


def _may_forget(name: str, budget: Budget | None) -> bool:
    return budget is None or budget.is_idle(time.monotonic())
