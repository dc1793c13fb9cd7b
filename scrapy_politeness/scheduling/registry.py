"""All that is limited in one crawl: its slots, and the budgets that they share."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from scrapy_politeness.core.bandwidth import bandwidth
from scrapy_politeness.core.budget import Budget
from scrapy_politeness.core.lru import LRU
from scrapy_politeness.core.route import Route
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.http.scrapy_internals import host_of, proxy_of
from scrapy_politeness.scheduling.companions import share, with_companions
from scrapy_politeness.scheduling.parent_budgets import ParentBudgets
from scrapy_politeness.scheduling.slot_names import SlotNames

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.http import Response

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.config.slots import SlotPolicy
    from scrapy_politeness.http.scrapy_internals import Engine
    from scrapy_politeness.scheduling.splits import Splits
    from scrapy_politeness.sharing.port import Sharing

# Lets one request pass without waiting.
EXEMPT = "politeness_exempt"

# Stands before the slot in the queue's keys of requests that nothing limits. No name
# that a user may choose begins like this.
_FREE = "\x01free "


class SlotRegistry:
    """``is_pending`` returns whether requests wait for a slot, which must not be
    forgotten then. ``recall`` is called with a new slot, and the rate that it would
    start with, to restore what was learned earlier."""

    def __init__(
        self,
        policy: Policy,
        engine: Engine,
        is_pending: Callable[[Slot], bool],
        recall: Callable[[Slot, float], None],
        sharing: Sharing,
        splits: Splits | None = None,
    ) -> None:
        self._policy = policy
        self._engine = engine
        self._is_pending = is_pending
        self._recall = recall
        self._sharing = sharing
        self._has_shared_limits = policy.has_shared_limits
        # Whether a part of a host has a slot of its own, because of its answers.
        self.has_splits = False
        self.names = SlotNames(policy, engine, splits)
        # Of all slots.
        self.listeners: list[Callable[[Slot], None]] = []
        self.slots = LRU[str, Slot | None](policy.max_slots, self._may_forget)
        self.parents = ParentBudgets(policy, sharing, self.slots.__contains__)
        # Whether there are budgets that slots line up for.
        self.has_lines = (
            (sharing.is_remote and policy.has_windows)
            or policy.ip_limit is not None
            or self.parents.is_needed
        )
        # What the user has set while the crawl runs outlives the slot's memory.
        self._rates: dict[str, float] = {}
        self.overall: Budget | None = None
        if policy.global_limit or policy.global_bandwidth:
            self.overall = Budget(
                "the whole crawl",
                policy.global_limit,
                bandwidth=bandwidth(policy.global_bandwidth),
            )
            share(sharing, self.overall, "all")
        self._proxies = LRU[str, Budget](policy.max_slots, _is_idle)
        self._servers = LRU[str, Budget](policy.max_slots, _is_idle)
        # By host, and by slot: there it is where the last answer came from.
        self._addresses = LRU[str, str](
            policy.max_slots, lambda name, _: name not in self.slots
        )

    def __len__(self) -> int:
        return len(self.slots)

    def key_for(self, request: Request) -> str:
        return self.names.of(request).key

    def slot_for(self, request: Request) -> Slot | None:
        """Return the slot that limits this request; None where nothing does."""
        name = self.names.of(request)
        return None if name.is_free else self.slot(name.key)

    def split(self, key: str) -> Slot | None:
        """Requests that belonged to other slots so far may belong to this one now."""
        self.parents.split()
        self._has_shared_limits = self.has_lines = self.has_splits = True
        return self.slot(key)

    def slot(self, key: str) -> Slot | None:
        if key not in self.slots:
            self.slots[key] = self._new_slot(key)
        self.slots.move_to_end(key)
        return self.slots.get(key)

    def route_for(self, request: Request, slot: Slot) -> Route:
        """Return all that this request, which is about to be sent, needs permits of."""
        if not self._has_shared_limits:
            return Route(slot)
        proxy = proxy_of(request)
        host = host_of(request)
        if not proxy and slot.key not in self._addresses and host in self._addresses:
            self._addresses[slot.key] = self._addresses[host]
        shared = self._shared(slot.key)
        # The server's address is not known to requests that go through a proxy.
        other = self._proxy(proxy) if proxy else self.server_of(host)
        needed: tuple[Budget, ...] = () if other is None else (other,)
        if self.parents.is_needed:
            needed += self.parents.of_request(self.names.of(request))
        needed = with_companions(needed)
        return Route(slot, shared, tuple(b for b in needed if b not in shared))

    def keep_robots_delay(self, request: Request, delay: float, since: float) -> None:
        """The host of this request asks for a delay, in whatever slot."""
        if self.parents.is_needed:
            self.parents.obey_robots(self.names.of(request), delay, since)

    def queue_key(self, request: Request) -> str:
        """Return under which key a request waits in the queue."""
        name = self.names.of(request)
        exempt = name.is_free or request.meta.get(EXEMPT)
        if exempt or self._policy.is_off(name.key):
            return _FREE + name.key
        if self.parents.is_needed:
            self.parents.met(name)
        return name.key

    @staticmethod
    def is_free(queue_key: str) -> bool:
        return queue_key.startswith(_FREE)

    def seen(self, queue_key: str) -> Slot | None:
        """Return the slot, unless none of its requests was sent so far."""
        return self.slots.get(queue_key)

    def queue_route(self, queue_key: str) -> Route | None:
        """Return what the queue knows of a request's route: all but the proxy."""
        if self.is_free(queue_key):
            return None
        slot = self.slot(queue_key)
        if slot is None:
            return None
        if not self._has_shared_limits:
            return Route(slot)
        return Route(slot, self._shared(queue_key))

    def server_at(self, address: str) -> Budget:
        if address not in self._servers:
            limit = self._policy.ip_limit
            assert limit is not None
            server = self._servers[address] = Budget(address, limit)
            share(self._sharing, server, f"address:{address}")
        return self._servers[address]

    def knows_way(self, request: Request) -> bool:
        """Tell whether the address of the request's host is known, or plays no part."""
        if self._policy.ip_limit is None or proxy_of(request):
            return True
        return host_of(request) in self._addresses

    def learn_way(self, request: Request, address: str) -> None:
        """This is where the host of the request is."""
        self._addresses[host_of(request)] = address
        self._addresses[self.key_for(request)] = address

    def learn_address(self, request: Request, response: Response, sent: Route) -> None:
        """Learn from a response at which address its host is."""
        if (
            self._policy.ip_limit is None
            or response.ip_address is None
            or proxy_of(request)
        ):
            return
        address = str(response.ip_address)
        self.learn_way(request, address)
        server = self.server_at(address)
        if server not in sent.budgets:
            # It went elsewhere than was thought, but it counts.
            server.take(time.monotonic())

    def set_rate(self, key: str, rate: float) -> Slot | None:
        """Replace the user's own limits of a slot; they stay replaced until reset."""
        self._rates[key] = rate
        return self._reconfigured(key)

    def has_set_rate(self, key: str) -> bool:
        return key in self._rates

    def reset(self, key: str) -> Slot | None:
        """Return to the settings, and forget all that was learned."""
        self._rates.pop(key, None)
        return self._reconfigured(key)

    def _reconfigured(self, key: str) -> Slot | None:
        slot = self.slot(key)
        own = self._slot_policy(key)
        if slot is not None and own is not None:
            slot.reconfigure(
                own.bounds,
                spacing=own.spacing,
                floor=own.floor,
                windows=own.windows,
            )
        return slot

    def _new_slot(self, key: str) -> Slot | None:
        own = self._slot_policy(key)
        if own is None:
            return None
        slot = Slot(
            key,
            own.bounds,
            spacing=own.spacing,
            concurrency=own.concurrency,
            floor=own.floor,
            burst=own.burst,
            windows=own.windows,
            from_finish=own.from_finish,
            bandwidth=bandwidth(own.bandwidth),
            listeners=self.listeners,
        )
        share(self._sharing, slot, f"slot:{key}")
        if own.shares_concurrency:
            self._sharing.share_concurrency(slot, f"slot:{key}")
        if own.bounds.adaptive and not self.has_set_rate(key):
            self._recall(slot, own.bounds.start_rate)
        return slot

    def _slot_policy(self, key: str) -> SlotPolicy | None:
        own = self._policy.for_slot(key)
        rate = self._rates.get(key)
        if own is None or rate is None:
            return own
        low = min(own.bounds.min_rate, rate)
        bounds = replace(own.bounds, start_rate=rate, max_rate=rate, min_rate=low)
        return replace(own, bounds=bounds, spacing=0.0, floor=0.0, windows=())

    def _shared(self, key: str) -> tuple[Budget, ...]:
        """Return the budgets beside the slot's own that the queue knows of."""
        overall = () if self.overall is None else (self.overall,)
        return overall + self.lined_up_for(key)

    def lined_up_for(self, key: str) -> tuple[Budget, ...]:
        """Return those of them that slots line up for."""
        server = self.server_of(key)
        budgets: tuple[Budget, ...] = () if server is None else (server,)
        if self.parents.is_needed:
            budgets += self.parents.of_slot(key)
        if not (self._sharing.is_remote and self._policy.has_windows):
            return budgets
        slot = self.slots.get(key)
        own = () if slot is None else slot.companions
        overall = () if self.overall is None else self.overall.companions
        return with_companions(budgets) + own + overall

    def server_of(self, name: str) -> Budget | None:
        """Return the budget of the address that a host or a slot was last seen at."""
        if self._policy.ip_limit is None or name not in self._addresses:
            return None
        return self.server_at(self._addresses[name])

    def _proxy(self, proxy: str) -> Budget | None:
        limit = self._policy.proxy_limit
        if limit is None:
            return None
        if proxy not in self._proxies:
            bounds = self._policy.bounds_within(limit)
            budget = self._proxies[proxy] = Budget(proxy, limit, bounds)
            share(self._sharing, budget, f"proxy:{proxy}")
        return self._proxies[proxy]

    def _may_forget(self, key: str, slot: Slot | None) -> bool:
        if slot is None:
            return True
        return slot.is_idle(time.monotonic()) and not self._is_pending(slot)


def _is_idle(key: str, budget: Budget) -> bool:
    return budget.is_idle(time.monotonic())
