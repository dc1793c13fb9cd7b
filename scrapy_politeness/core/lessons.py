"""What the answers of a host teach about its rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor import Bounds, Governor
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.snapshot import number, part, whole
from scrapy_politeness.core.strain import Strain

if TYPE_CHECKING:
    from collections.abc import Callable

# A rate that differs by no more than this from another is the same.
_NEWS = 0.1

# Seconds. Outcomes are reported in any order, but not so much later.
_CLOCK_WAS_SET = 60.0


@dataclass(frozen=True, slots=True)
class Change:
    """What an outcome did to a scope. It was ``relieved`` if the host answers too
    slowly; ``settled_at`` is the rate at which it has just settled, if it has."""

    old_rate: float
    new_rate: float
    pause: float
    cut: bool
    relieved: bool = False
    settled_at: float | None = None


class Lessons:
    """Governor and strain of one host. Many hosts are asked only once, and most slots
    of a broad crawl wait for their first answer: so it is made with that.

    ``cuts`` counts how often the rate was cut. Processes that learn together tell by
    it which of their requests were sent before the last cut.
    """

    __slots__ = ("_bounds", "_observed_at", "_settled_at", "cuts", "governor", "strain")

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._observed_at = -math.inf
        self.governor = Governor(bounds)
        self.strain = Strain()
        self.cuts = 0
        self._settled_at = 0.0

    def shape(self) -> dict[str, object]:
        return {
            "governor": part(self.governor),
            "strain": part(self.strain),
            "cuts": whole,
            "_settled_at": number,
            "_observed_at": number,
        }

    def observe(
        self,
        permit: Permit,
        outcome: Outcome,
        now: float,
        chance: float,
        crowded: Callable[[], bool],
        *,
        stale: bool = False,
    ) -> Change:
        """Learn from a finished request; ``crowded`` tells whether that has shown how
        many requests at once are too many. ``stale`` is as in ``Governor.observe``."""
        if now < self._observed_at - _CLOCK_WAS_SET:
            self._start_over(now)
        self._observed_at = now
        governor = self.governor
        old_rate = governor.rate
        advice = governor.observe(permit, outcome, now, chance, stale=stale)
        self.cuts += advice.cut
        manages = None
        if outcome.verdict is Verdict.SERVED and outcome.is_timely:
            manages = self.strain.observe(now - permit.sent_at, now)
            if manages is not None:
                governor.relieve(manages, now)
        # Of a flight that was refused, one says as much as all.
        news = advice.cut or not outcome.verdict.is_overload
        if news and crowded():
            # It was the crowd that was too much, not the rate.
            governor.forget(now)
        return Change(
            old_rate,
            governor.rate,
            advice.pause,
            advice.cut,
            manages is not None,
            self._newly_settled_at(),
        )

    def _start_over(self, now: float) -> None:
        """The clock that several processes share was set back: times that are still to
        come mean nothing, but the limit is what it was."""
        before, self.governor = self.governor, Governor(self._bounds)
        self.strain = Strain()
        if before.ceiling is not None:
            self.governor.recall(before.ceiling, before.burst, now)

    def _newly_settled_at(self) -> float | None:
        """Return the rate that was settled at, if that is news. Each probe leads
        away from there, and most lead back: that is none."""
        rate = self.governor.rate
        moved = abs(rate - self._settled_at) > _NEWS * rate
        if not self.governor.is_settled or not moved:
            return None
        self._settled_at = rate
        return rate
