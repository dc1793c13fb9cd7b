"""What the answers of a host teach about its rate."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.core.governor.control_law import Governor
from scrapy_politeness.core.governor.latency import Latency, Stage
from scrapy_politeness.core.outage import Outage
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.snapshot import State, kept, kept_part, number, part, whole

if TYPE_CHECKING:
    from scrapy_politeness.core.governor.bounds import Bounds

# A rate that differs by no more than this from another is the same.
_NEWS = 0.1

# Seconds. Outcomes are reported in any order, but not so much later.
_CLOCK_WAS_SET = 60.0


class Change(NamedTuple):
    """What an outcome did to a slot. It was ``relieved`` if the host was found to
    answer more slowly the faster it is asked. A ``trial`` of that has begun, or ended
    otherwise. ``settled_at`` is the rate at which it has just settled, if it has."""

    old_rate: float
    new_rate: float
    pause: float
    cut: bool
    relieved: bool = False
    settled_at: float | None = None
    trial: bool = False

    @property
    def is_none(self) -> bool:
        return self.old_rate == self.new_rate and not any(self[2:])


@dataclass(eq=False, slots=True)
class HostModel(State):
    """Governor, latency and outage of one host. Many hosts are asked only once, and
    most slots of a broad crawl wait for their first answer: so it is made with that.

    ``cuts`` counts how often the rate was cut. Processes that learn together tell by
    it which of their requests were sent before the last cut.
    """

    _bounds: Bounds
    governor: Governor = field(init=False)
    latency: Latency = field(init=False)
    outage: Outage = kept_part(Outage)
    cuts: int = kept(whole, 0)
    _settled_at: float = kept(number, 0.0)
    _observed_at: float = kept(number, -math.inf)

    def __post_init__(self) -> None:
        self.governor = Governor(self._bounds)
        self.latency = Latency(self._bounds.min_rate)

    def shape(self) -> dict[str, object]:
        learned = {"governor": part(self.governor), "latency": part(self.latency)}
        return {**State.shape(self), **learned}

    @property
    def rate(self) -> float:
        """What may be sent per second, for all that is known of the host."""
        return min(self.governor.rate, self.latency.cap)

    @property
    def is_capped(self) -> bool:
        """Tell whether it is the latency that sets the rate."""
        return self.latency.cap < self.governor.rate

    def observe(
        self,
        permit: Permit,
        outcome: Outcome,
        now: float,
        chance: float,
        *,
        stale: bool = False,
        otherwise: float = 0.0,
    ) -> Change:
        """Learn from a finished request; ``stale`` and ``otherwise`` are as in
        ``Governor.observe``."""
        if now < self._observed_at - _CLOCK_WAS_SET:
            self._start_over(now)
        self._observed_at = now
        governor = self.governor
        old_rate = self.rate
        advice = governor.observe(
            permit, outcome, now, chance, stale=stale, otherwise=otherwise
        )
        self.cuts += advice.cut
        asked_for_pause = not outcome.verdict.is_overload and advice.pause > 0
        self.outage.observe(outcome, now, is_news=advice.cut or asked_for_pause)
        stage = self.latency.stage
        relieved = self._observe_latency(permit, outcome, now)
        relieved = relieved and self.rate < self.latency.slowed_from
        if relieved:
            # A trial has found it out, at a rate that was lowered for the purpose.
            old_rate = self.latency.slowed_from
        on_trial = (stage is Stage.TRIAL) != (self.latency.stage is Stage.TRIAL)
        if advice.pause or advice.cut:
            self.latency.interrupt(now)
        return Change(
            old_rate,
            self.rate,
            advice.pause,
            advice.cut,
            relieved,
            self._newly_settled_at(),
            on_trial and not relieved,
        )

    def _observe_latency(self, permit: Permit, outcome: Outcome, now: float) -> bool:
        if outcome.verdict is not Verdict.SERVED or not self._bounds.adaptive:
            return False
        if not outcome.is_timely:
            self.latency.interrupt(now)
            return False
        if permit.rate is None and not permit.full:
            self.latency.interrupt(permit.sent_at)
            return False
        return self.latency.observe(
            now - permit.sent_at,
            permit.sent_at,
            now,
            rate=self.governor.rate,
            full=permit.full,
        )

    def _start_over(self, now: float) -> None:
        """The clock that several processes share was set back: times that are still to
        come mean nothing, but the limit is what it was."""
        before, self.governor = self.governor, Governor(self._bounds)
        self.latency = Latency(self._bounds.min_rate)
        self.outage = Outage()
        if before.limit is not None:
            self.governor.recall(before.limit, before.spread, 1.0, now)

    def _newly_settled_at(self) -> float | None:
        """Return the rate that was settled at, if that is news. Each probe leads
        away from there, and most lead back: that is none."""
        rate = self.governor.rate
        moved = abs(rate - self._settled_at) > _NEWS * rate
        if not self.governor.is_settled or self.is_capped or not moved:
            return None
        self._settled_at = rate
        return rate
