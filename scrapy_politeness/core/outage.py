"""Hosts that refuse everything, until they count as dead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_politeness.core.lru import LRU
from scrapy_politeness.core.outcome import Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

# A host that is asked once a day is not given up after the second day.
_FEWEST_TIMES = 5


@dataclass(slots=True)
class Outage:
    """Nothing was served from ``since`` to ``until``, in ``times`` attempts; the last
    one failed because of ``reason``."""

    since: float
    until: float
    times: int
    reason: str

    @property
    def seconds(self) -> float:
        return self.until - self.since


class Outages:
    """A host may refuse for ``patience`` seconds; 0 means forever. The ``most`` recent
    outages are remembered, and those for which ``may_forget`` returns False."""

    def __init__(
        self, patience: float, most: int, may_forget: Callable[[str], bool]
    ) -> None:
        self._patience = patience
        self._outages = LRU[str, Outage](most, lambda key, _: may_forget(key))

    def observe(
        self, key: str, outcome: Outcome, now: float, *, is_news: bool
    ) -> Outage | None:
        """Learn from a finished request; requests refused together count once, with
        the one that ``is_news``. Return the outage, if it is one."""
        # A redirect that asks for a pause leads nowhere if the next one does, too.
        if not outcome.verdict.calls_for_pause and not outcome.wait:
            if outcome.verdict is Verdict.SERVED:
                self.forget(key)
            return None
        if key not in self._outages:
            self._outages[key] = Outage(now, now, 0, outcome.reason)
        outage = self._outages[key]
        outage.times += is_news
        outage.until = now
        outage.reason = outcome.reason
        return outage if is_news else None

    def is_dead(self, key: str) -> bool:
        outage = self._outages.get(key)
        if outage is None or not self._patience:
            return False
        return outage.seconds >= self._patience and outage.times >= _FEWEST_TIMES

    def of(self, key: str) -> Outage | None:
        return self._outages.get(key)

    def forget(self, key: str) -> None:
        if key in self._outages:
            del self._outages[key]
