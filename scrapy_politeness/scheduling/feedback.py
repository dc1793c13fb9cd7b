"""What came back, passed on to all that learn from it."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.route import Flight, Route
from scrapy_politeness.http.scrapy_internals import host_of

if TYPE_CHECKING:
    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.governor.host_model import Change
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.scheduling.dead_hosts import DeadHosts
    from scrapy_politeness.scheduling.listener import Listener
    from scrapy_politeness.scheduling.loop_lag import LoopLag
    from scrapy_politeness.scheduling.registry import SlotRegistry
    from scrapy_politeness.scheduling.splits import Splits
    from scrapy_politeness.scheduling.tickets import Ticket, Tickets
    from scrapy_politeness.sharing.port import Sharing
    from scrapy_politeness.storage.records import Records

# A request takes five turns of the event loop or more. Where one turn takes more than
# this share of the time until the answer, and more than a few milliseconds, that time
# says nothing about the host.
_OWN_SHARE = 0.1
_OWN_LEAST = 0.01


@dataclass(slots=True, eq=False)
class Feedback:
    """Settles the permits of finished requests, and passes on what that has changed."""

    policy: Policy
    tickets: Tickets
    registry: SlotRegistry
    sharing: Sharing
    records: Records | None
    listener: Listener
    dead_hosts: DeadHosts
    loop_lag: LoopLag
    splits: Splits | None = None

    def __post_init__(self) -> None:
        self.sharing.hear(self)

    def end(self, ticket: Ticket, outcome: Outcome) -> None:
        flight = ticket.end(outcome)
        if flight is None:
            return
        if outcome.quota is not None or self.registry.has_splits:
            outcome = self._settle_part(ticket, flight, outcome)
        self._settle(flight, outcome)

    def settle_again(self, flight: Flight, outcome: Outcome) -> None:
        """A request that was settled has turned out to be refused."""
        flight.route.slot.in_flight += 1
        self._settle(flight, outcome)

    def sweep(self) -> None:
        """End what the downloader no longer has."""
        for ticket in self.tickets.lost():
            self.end(ticket, Outcome(Verdict.IGNORED, "lost"))

    def learned(self, slot: Slot, outcome: Outcome, change: Change) -> None:
        """The slot has learned from an outcome."""
        if self.records is not None and not self.registry.has_set_rate(slot.key):
            self.records.changed(slot)
        if change.pause:
            self._save_pause(slot)
        self.listener.settled(slot, outcome, change, time.monotonic())
        self.dead_hosts.learned(slot, outcome, change)

    def paused_elsewhere(self, slot: Slot, seconds: float) -> None:
        """The host has asked another process for a pause."""
        self.listener.paused_elsewhere(slot, seconds)
        self.dead_hosts.heard(slot)

    def forget(self, slot: Slot) -> bool:
        """Return to the settings; return whether that has ended a pause."""
        self.registry.reset(slot.key)
        slot.forget()
        self.dead_hosts.forget(slot)
        was_paused = slot.reset()
        self._save_pause(slot)
        if self.records is not None:
            self.records.forget(slot.key)
        self.sharing.forget(slot)
        return was_paused

    def compare_parts(self, ticket: Ticket, outcome: Outcome, *, is_new: bool) -> None:
        """A page that was answered says which part of its host it belongs to. One that
        is not new may be broken, and its refusal says nothing."""
        if self.splits is None or ticket.flight is None:
            return
        slot, permit = ticket.flight.route.slot, ticket.flight.permit
        url, now = ticket.request.url, time.monotonic()
        if not _may_be_split(slot, ticket):
            return
        if self.registry.has_splits and self.splits.slot_for(slot.key, url):
            return
        is_refused = outcome.verdict is Verdict.REFUSED and not outcome.is_block
        if not is_refused and outcome.verdict is not Verdict.SERVED:
            return
        split = self.splits.answered(slot.key, url, permit, outcome, now, is_new=is_new)
        part = None if split is None else self.registry.split(split.name)
        if split is not None and part is not None:
            split.apply(slot, part, permit, self.sharing.now)
            self._save_pause(slot)
            self._save_pause(part)

    def _settle_part(self, ticket: Ticket, flight: Flight, outcome: Outcome) -> Outcome:
        """Pass on to the slot of its part what was sent before that had one, or states
        a quota that is the part's alone. Return what remains for the host's slot."""
        slot, quota, url = flight.route.slot, outcome.quota, ticket.request.url
        if self.splits is None or not _may_be_split(slot, ticket):
            return outcome
        name = self.splits.slot_for(slot.key, url)
        if name is None and quota is not None and quota.strictest < slot.rate:
            name = self.splits.quota_slot(slot.key, url, quota)
        part = None if name is None else self.registry.split(name)
        if part is None:
            return outcome
        part.in_flight += 1
        permit = flight.permit._replace(paced=False, rate=None, cuts=0)
        self._settle(Flight(Route(part), permit, ()), outcome)
        return Outcome(Verdict.IGNORED, "of another slot")

    def _settle(self, flight: Flight, outcome: Outcome) -> None:
        slot = flight.route.slot
        longest = self.policy.retry_after_max
        if outcome.wait is not None and outcome.wait > longest:
            self.listener.wait_capped(slot, outcome.wait, longest)
            outcome = outcome._replace(wait=longest)
        now = time.monotonic()
        own = max(_OWN_LEAST, _OWN_SHARE * (now - flight.permit.sent_at))
        if self.loop_lag.slowest_turn(now) > own:
            outcome = outcome._replace(is_timely=False)
        chance = random.random()
        if flight.transfer is not None:
            flight.transfer.end(now)
        if flight.shared:
            budgets = flight.route.budgets
            for budget, permit in zip(budgets, flight.shared, strict=True):
                if budget.settle(permit, outcome, now, chance):
                    self.listener.proxy_slowed(budget, outcome)
        self.sharing.save(slot, flight.permit, outcome, now, chance)

    def _save_pause(self, slot: Slot) -> None:
        if self.records is not None:
            left = max(0.0, slot.paused_until - time.monotonic())
            self.records.paused(slot.key, time.time() + left)


def _may_be_split(slot: Slot, ticket: Ticket) -> bool:
    return slot.key == host_of(ticket.request) and slot.learner.bounds.adaptive
