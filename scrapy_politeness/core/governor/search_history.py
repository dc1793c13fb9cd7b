"""What a host has served until its first refusal."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scrapy_politeness.core.governor.belief import Belief
from scrapy_politeness.core.snapshot import State, kept, series, when, whole

# The search is remembered in stretches of this many requests each, at most the second
# number of them: older ones are merged, and of those at most the last number are run
# through the models at the first refusal.
_STRETCH = 10
_MOST_STRETCHES = 12
_MOST_REPLAYED = 600


@dataclass(eq=False, slots=True)
class SearchHistory(State):
    """When what was served had been sent. Crawls idle now and then: a mere count would
    say little."""

    # When each stretch began, and how many requests were served in it.
    _stretches: list[tuple[float, int]] = kept(series(when, whole), [])

    def add(self, sent_at: float) -> None:
        stretches = self._stretches
        if not stretches or stretches[-1][1] >= _STRETCH:
            stretches.append((sent_at, 0))
        since, served = stretches[-1]
        stretches[-1] = since, served + 1
        if len(stretches) > _MOST_STRETCHES:
            (since, served), (_, more) = stretches[:2]
            stretches[:2] = [(since, served + more)]

    def rate(self, at: float) -> float:
        """Of what was served lately; infinite if nothing was."""
        lately = self._stretches[-2:]
        since = lately[0][0] if lately else at
        served = sum(served for _, served in lately)
        return served / (at - since) if at > since else math.inf

    def end(self, rate: float, start_rate: float, at: float) -> Belief:
        """A request sent then was the first to be refused: return the belief that
        follows from what was served before."""
        stretches, self._stretches = self._stretches[-_MOST_STRETCHES:], []
        belief = Belief(rate, start_rate, stretches[0][0] if stretches else at)
        ends = [start for start, _ in stretches[1:]]
        for (start, served), end in zip(stretches, [*ends, at], strict=False):
            for number_of in range(min(served, _MOST_REPLAYED), 0, -1):
                belief.served(end - number_of * (end - start) / served)
        return belief
