"""Hosts that do nothing but refuse, until there is no hope left."""

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
    """Nothing was served ``since`` then, which was found out so many ``times``; the
    last time at ``until``, because of ``reason``."""

    since: float
    until: float
    times: int
    reason: str

    @property
    def seconds(self) -> float:
        return self.until - self.since


class Outages:
    """``patience`` is how many seconds a host may refuse; 0 for ever. Of hosts with
    an outage, the ``most`` that were heard of last are remembered, and those of which
    ``may_forget`` returns False."""

    def __init__(
        self, patience: float, most: int, may_forget: Callable[[str], bool]
    ) -> None:
        self._patience = patience
        self._outages = LRU[str, Outage](most, lambda key, _: may_forget(key))

    def observe(
        self, key: str, outcome: Outcome, now: float, *, is_news: bool
    ) -> Outage | None:
        """Learn from a finished request; what was refused together with others counts
        once, with the one that ``is_news``. Return the outage, if it is one."""
        # A redirect that asks for silence leads nowhere if the next one does, too.
        refused = outcome.verdict.calls_for_silence or bool(outcome.wait)
        if not refused:
            if outcome.verdict is Verdict.SERVED and key in self._outages:
                del self._outages[key]
            return None
        if key not in self._outages:
            self._outages[key] = Outage(now, now, 0, outcome.reason)
        outage = self._outages[key]
        outage.times += is_news
        outage.until = now
        outage.reason = outcome.reason
        return outage if is_news else None

    def is_beyond_hope(self, key: str) -> bool:
        outage = self._outages.get(key)
        if outage is None or not self._patience:
            return False
        return outage.seconds >= self._patience and outage.times >= _FEWEST_TIMES

    def of(self, key: str) -> Outage | None:
        return self._outages.get(key)

    def forget(self, key: str) -> None:
        if key in self._outages:
            del self._outages[key]
