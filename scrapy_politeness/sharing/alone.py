"""One process, which shares nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.outcome import Outcome, Permit
    from scrapy_politeness.core.route import Route
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.sharing.port import Hearer


class Alone:
    """Slots and budgets have their own pace, and learn at once."""

    is_remote = False
    is_busy = False
    _hearer: Hearer

    @property
    def now(self) -> float:
        return time.monotonic()

    def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def join(self, source: Slot | Budget, name: str) -> None:
        pass

    def share_concurrency(self, slot: Slot, name: str) -> None:
        pass

    def reserve(self, route: Route, *, ahead: bool = False) -> None:
        pass

    def save(
        self, slot: Slot, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> None:
        change = slot.settle(permit, outcome, now, chance)
        self._hearer.learned(slot, outcome, change)

    def hear(self, hearer: Hearer) -> None:
        self._hearer = hearer

    def forget(self, slot: Slot) -> None:
        pass
