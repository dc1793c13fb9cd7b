"""What is announced about slots. Listeners decide nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.governor.host_model import Change
    from scrapy_politeness.core.hours import Hours
    from scrapy_politeness.core.outcome import Outcome
    from scrapy_politeness.core.slot import Slot


class Listener(Protocol):
    def queued(self, slot: Slot | None, now: float) -> None:
        """A request waits for this slot, for which none did."""

    def settled(self, slot: Slot, outcome: Outcome, change: Change, now: float) -> None:
        """A request of this slot is over."""

    def wait_capped(self, slot: Slot, wait: float, longest: float) -> None:
        """A Retry-After was cut to the longest that is obeyed."""

    def paused_elsewhere(self, slot: Slot, seconds: float) -> None:
        """The host has asked another process for a pause."""

    def given_up(self, slot_key: str) -> None:
        """A request was given up: its host is dead, or its page fails."""

    def blocked(self, slot: Slot, reason: str) -> None:
        """This crawler is not welcome: the slot was stopped."""

    def proxy_slowed(self, budget: Budget, outcome: Outcome) -> None: ...

    def robots_delay(self, slot: Slot, delay: float) -> None: ...

    def outside_hours(self, slot: Slot, hours: Hours, seconds: float) -> None: ...

    def robots_unreachable(self, slot: Slot, seconds: float) -> None:
        """Nothing is sent for that time, after which robots.txt is requested again."""
