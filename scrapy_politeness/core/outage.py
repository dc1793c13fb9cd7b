"""A host that refuses everything, until it counts as dead."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.snapshot import State, kept, number, whole

# A host that is asked once a day is not given up after the second day.
_FEWEST_TIMES = 5


@dataclass(slots=True, eq=False)
class Outage(State):
    """Nothing was served from ``since`` to ``until``, in ``times`` attempts, by any of
    the processes that learn together; the last one failed because of ``reason``."""

    since: float = kept(number, -math.inf)
    until: float = kept(number, -math.inf)
    times: int = kept(whole, 0)
    reason: str = "a refusal that another process got"

    @property
    def seconds(self) -> float:
        return self.until - self.since if self.times else 0.0

    def observe(self, outcome: Outcome, now: float, *, is_news: bool) -> None:
        """Learn from a finished request; requests refused together count once, with
        the one that ``is_news``."""
        # A redirect that asks for a pause leads nowhere if the next one does, too.
        if not outcome.verdict.calls_for_pause and not outcome.wait:
            if outcome.verdict is Verdict.SERVED:
                self.times = 0
            return
        if not self.times:
            self.since = now
        self.times += is_news or not self.times
        self.until = now
        self.reason = outcome.reason

    def is_dead(self, patience: float) -> bool:
        """A host may refuse for ``patience`` seconds; 0 means forever."""
        if not patience:
            return False
        return self.seconds >= patience and self.times >= _FEWEST_TIMES

    def shifted(self, seconds: float) -> Outage:
        """The same by a clock that is ahead by that much."""
        outage = Outage()
        outage.since, outage.until = self.since + seconds, self.until + seconds
        outage.times, outage.reason = self.times, self.reason
        return outage
