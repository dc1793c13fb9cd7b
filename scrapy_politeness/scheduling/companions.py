"""Longer windows of a limit, where other processes share it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_politeness.core.budget import Budget

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.core.windows import Window
    from scrapy_politeness.sharing.port import Sharing


def share(sharing: Sharing, source: Slot | Budget, name: str) -> None:
    """Share it under that name. Not all times of what was sent are known to all
    processes, so each longer window becomes a budget that goes with it."""
    sharing.join(source, name)
    if sharing.is_remote:
        source.companions = tuple(
            _companion(sharing, window, name) for window in source.permits.windows
        )


def with_companions(budgets: Iterable[Budget]) -> tuple[Budget, ...]:
    return tuple(each for b in budgets for each in (b, *b.companions))


def _companion(sharing: Sharing, window: Window, name: str) -> Budget:
    key = f"{name}:{window.count}/{window.seconds:g}"
    budget = Budget(key, spacing=window.interval, burst=window.burst)
    sharing.join(budget, key)
    return budget
