"""What came back, passed on to all that learn from it."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from scrapy_politeness.core.outcome import Outcome, Verdict

if TYPE_CHECKING:
    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.governor.host_model import Change
    from scrapy_politeness.core.route import Flight
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.scheduling.dead_hosts import DeadHosts
    from scrapy_politeness.scheduling.listener import Listener
    from scrapy_politeness.scheduling.loop_lag import LoopLag
    from scrapy_politeness.scheduling.registry import SlotRegistry
    from scrapy_politeness.scheduling.tickets import Ticket, Tickets
    from scrapy_politeness.sharing.fleet import Fleet
    from scrapy_politeness.storage.records import Records

# A request takes five turns of the event loop or more. Where one turn takes more than
# this share of the time until the answer, and more than a few milliseconds, that time
# says nothing about the host.
_OWN_SHARE = 0.1
_OWN_LEAST = 0.01


class Feedback:
    """Settles the permits of finished requests, and passes on what that has changed."""

    def __init__(
        self,
        policy: Policy,
        tickets: Tickets,
        registry: SlotRegistry,
        fleet: Fleet | None,
        records: Records | None,
        listener: Listener,
        dead_hosts: DeadHosts,
        loop_lag: LoopLag,
    ) -> None:
        self._policy = policy
        self._tickets = tickets
        self._registry = registry
        self._fleet = fleet
        self._records = records
        self._listener = listener
        self._dead_hosts = dead_hosts
        self._loop_lag = loop_lag

    def end(self, ticket: Ticket, outcome: Outcome) -> None:
        flight = ticket.end(outcome)
        if flight is not None:
            self._settle(flight, outcome)

    def sweep(self) -> None:
        """End what the downloader has lost."""
        for ticket in self._tickets.lost():
            self.end(ticket, Outcome(Verdict.IGNORED, "lost on the way"))

    def learned(self, slot: Slot, outcome: Outcome, change: Change) -> None:
        """The slot has learned from an outcome."""
        if self._records is not None and not self._registry.has_set_rate(slot.key):
            self._records.changed(slot)
        if change.pause:
            self._save_pause(slot)
        self._listener.settled(slot, outcome, change, time.monotonic())
        self._dead_hosts.learned(slot, outcome, change)

    def forget(self, slot: Slot) -> bool:
        """Return to the settings; return whether that has ended a pause."""
        self._registry.reset(slot.key)
        slot.forget()
        self._dead_hosts.forget(slot)
        was_paused = slot.reset()
        self._save_pause(slot)
        if self._records is not None:
            self._records.forget(slot.key)
        if self._fleet is not None:
            self._fleet.forget(slot)
        return was_paused

    def _settle(self, flight: Flight, outcome: Outcome) -> None:
        slot = flight.route.slot
        longest = self._policy.retry_after_max
        if outcome.wait is not None and outcome.wait > longest:
            self._listener.wait_capped(slot, outcome.wait, longest)
            outcome = replace(outcome, wait=longest)
        now = time.monotonic()
        own = max(_OWN_LEAST, _OWN_SHARE * (now - flight.permit.sent_at))
        if self._loop_lag.slowest_turn > own:
            outcome = replace(outcome, is_timely=False)
        chance = random.random()
        if flight.shared:
            budgets = flight.route.budgets
            for budget, permit in zip(budgets, flight.shared, strict=True):
                if budget.settle(permit, outcome, now, chance):
                    self._listener.proxy_slowed(budget, outcome)
        if self._fleet is not None and slot.is_joined:
            self._fleet.settled(slot, flight.permit, outcome, now, chance)
        else:
            change = slot.settle(flight.permit, outcome, now, chance)
            self.learned(slot, outcome, change)

    def _save_pause(self, slot: Slot) -> None:
        if self._records is not None:
            left = max(0.0, slot.paused_until - time.monotonic())
            self._records.paused(slot.key, time.time() + left)
