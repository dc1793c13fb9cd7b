"""One thing that is limited: a download slot."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import TYPE_CHECKING

from scrapy_politeness.core.admission import Admission
from scrapy_politeness.core.block_limit import BlockLimit
from scrapy_politeness.core.cause import Block, Cause
from scrapy_politeness.core.governor.control_law import Phase
from scrapy_politeness.core.health import Health, Status, health
from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.learner import Learner
from scrapy_politeness.core.leases import LeaseTerms, grace
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.pace import (
    PROMPT,
    TRAVEL_TIME_DIFFERENCE,
)
from scrapy_politeness.core.part_limit import PartLimit
from scrapy_politeness.core.permits import Permits
from scrapy_politeness.core.turns import turn_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scrapy_politeness.core.governor.bounds import Bounds
    from scrapy_politeness.core.governor.host_model import Change, HostModel
    from scrapy_politeness.core.history import Answered
    from scrapy_politeness.core.outage import Outage
    from scrapy_politeness.core.windows import Window


@dataclass(eq=False, repr=False, slots=True)
class Slot(Admission):
    """Pace, governor, pause and concurrency of one slot.

    ``spacing`` is the user's own minimum between two requests on average, ``floor``
    between any two, ``concurrency`` how many may be in flight at once, ``burst``
    how many may go at once after a time of rest, ``windows`` how many may go in longer
    times, and ``bandwidth`` how much may arrive. With ``from_finish``, requests go one
    at a time, and spacings are counted from the end of each.

    A slot that has joined others in sharing one budget and one governor sends by
    leases of that, and hands its outcomes in. Parted from them, it goes on alone with
    its share, and never faster than they were.
    """

    bounds: InitVar[Bounds]
    _: KW_ONLY
    windows: InitVar[Sequence[Window]] = ()
    learner: Learner = field(init=False)
    _block_limit: BlockLimit | None = field(default=None, init=False)
    _part_limit: PartLimit | None = field(default=None, init=False)
    # Whether one of these is below what the governor finds best.
    _is_held: bool = field(default=False, init=False)
    _robots_delay: float = field(default=0.0, init=False)

    def __post_init__(self, bounds: Bounds, windows: Sequence[Window]) -> None:
        self.permits = Permits(self.burst, windows)
        self.learner = Learner(bounds, self.concurrency, self.permits)
        self._update()

    def __repr__(self) -> str:
        return f"<Slot {self.key!r}: {self.rate:.3g}/s, {self.in_flight} in flight>"

    def _update(self) -> None:
        """To be called after anything that these depend on has changed."""
        share = self.permits.share
        rate = self.learner.rate
        if self._block_limit is not None:
            rate = min(rate, self._block_limit.rate)
        if self._part_limit is not None:
            rate = min(rate, self._part_limit.rate)
        self._is_held = rate < self.learner.rate
        self._interval = max(1 / rate, self.spacing) * share
        self._gap = max(self._robots_delay, self.floor) * share
        self.concurrency = self.learner.max_in_flight

    def take(self, now: float) -> Permit:
        """Let one request through, now."""
        interval, gap = self._interval, self._gap
        blocks, permits = self._blocks, self.permits
        late = min(now - blocks.until, permits.take(now, interval, gap))
        resumed = blocks.until > -math.inf
        if resumed:
            blocks.clear()
        self.in_flight += 1
        slowest = max(interval, gap)
        kept_up = late <= max(slowest, PROMPT)
        # Where something else than the rate holds, a higher rate would change nothing.
        by_rate = not self._is_held and interval > max(
            self.spacing * permits.share, gap
        )
        model = self.learner.model
        return Permit(
            now,
            paced=by_rate and kept_up and not (model is not None and model.is_capped),
            beside=self.in_flight,
            rate=1 / slowest if kept_up else None,
            resumed=resumed,
            late=late,
            cuts=0 if permits.leases is None else permits.leases.cuts,
            full=self.in_flight + self.claims + self.aside >= self.concurrency,
        )

    def settle(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Change:
        """A request that was let through is over."""
        if outcome.verdict.may_be_block:
            outcome = self.serving.judged(permit, outcome)
        was_shut = self.serving.is_shut
        to_blame = self._land(permit, outcome, now)
        if was_shut or outcome.is_block or self._block_limit is not None:
            if self._block_limit is None:
                self._block_limit = BlockLimit()
            self._block_limit.observe(
                permit,
                outcome,
                now,
                was_shut=was_shut,
                is_shut=self.serving.is_shut,
                learner=self.learner,
            )
        if self._part_limit is not None and self.learner.is_current(permit):
            model = self.learner.model
            likely = None if model is None else model.governor.likely_limit
            self._part_limit.answered(permit, outcome, likely, now)
        if to_blame is not permit and self.learner.is_current(to_blame):
            permit = to_blame
        change = self.conclude(permit, outcome, now, chance)
        self.announce()
        return change

    def conclude(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Change:
        """Learn from a request that is over."""
        change = self.learner.observe(permit, outcome, now, chance)
        self._update()
        if change.pause:
            self._block(Block.PAUSE, now + change.pause)
        return change

    def hand_in(self, permit: Permit, outcome: Outcome, now: float) -> float:
        """A request is over, and what it teaches will be learned together with others:
        until that is done, nothing more is sent if it was refused. Return how likely
        it was refused because too many were in flight."""
        outcome = self.serving.judged(permit, outcome)
        self._land(permit, outcome, now)
        leases = self.permits.leases
        assert leases is not None
        is_new = not outcome.verdict.is_overload or leases.refused(permit.cuts)
        likely = 0.0
        if is_new and not outcome.is_block:
            likely = self.learner.observe_concurrency(permit, outcome)
            self._update()
        self.announce()
        return likely

    def _land(self, permit: Permit, outcome: Outcome, now: float) -> Permit:
        """Return which request is to blame."""
        self.in_flight -= 1
        if self.learner.answers_needed and outcome.verdict is not Verdict.IGNORED:
            self.learner.answers_needed -= 1
        if self.from_finish:
            self.permits.restart(now)
        return self.serving.landed(permit, outcome)

    def join(self, members: int = 1) -> None:
        """From now on, share one budget and one model with other processes."""
        self.learner.join()
        self.permits.join(members)
        self._update()

    def part(self, now: float, chance: float, offset: float = 0.0) -> None:
        """Go on alone, with an equal share of what all were sending; see
        ``Permits.part``."""
        step = self.terms.step
        self.learner.part(offset)
        interval = max(1 / self.learner.rate, self.spacing)
        self.permits.part(now, chance, interval, step, offset)
        self._update()

    def adopt(self, model: HostModel) -> None:
        """Go on with what was learned together."""
        self.learner.adopt(model)
        self._update()

    def recall(self, learned: Learned, now: float) -> None:
        self.learner.recall(learned, now)
        self._update()

    @property
    def terms(self) -> LeaseTerms:
        """On what terms leases are asked for, apart from what is learned."""
        fastest = max(self.spacing, 1 / self.learner.bounds.max_rate)
        floor = max(self._robots_delay, self.floor)
        least = max(self.spacing, floor) if self.burst == 1 else floor
        return LeaseTerms(
            self._interval,
            fastest,
            self._gap,
            self.burst,
            turn_step(least),
            self._robots_delay,
        )

    def status(self, now: float) -> Status:
        paused_for = 0.0 if self.is_stopped else max(0.0, self._blocks.until - now)
        how = Health.PAUSED if paused_for else Health.HEALTHY
        model = self.learner.model
        if self.is_stopped:
            how = Health.BLOCKED
        elif model is not None:
            how = health(model.governor, model.latency, paused=paused_for > 0)
        return Status(
            how,
            self.rate,
            self.ceiling,
            paused_for,
            self.in_flight,
            self.concurrency,
            self.bad_luck,
            self._blocks.longest.value if paused_for else "",
        )

    @property
    def outage(self) -> Outage | None:
        """For how long it has refused everything, if it has answered at all."""
        return None if self.learner.model is None else self.learner.model.outage

    @property
    def learned(self) -> Learned | None:
        return self.learner.learned

    @property
    def ceiling(self) -> float | None:
        """What the host is believed to allow, if that is known."""
        return self.learner.ceiling

    @property
    def noise(self) -> float:
        """The share of all requests that the host fails, whatever the rate is."""
        model = self.learner.model
        refused = 0.0 if model is None else model.governor.unlucky
        return max(refused, self.serving.noise)

    @property
    def limits_connections(self) -> bool:
        """Tell whether the host is known to take no more requests at once."""
        concurrency = self.learner.concurrency
        return concurrency is not None and concurrency.is_found

    @property
    def bad_luck(self) -> float:
        """The noise, but 0 as long as it is too little to speak of."""
        model = self.learner.model
        has_some = model is not None and model.governor.has_bad_luck
        return self.noise if has_some or self.serving.noise else 0.0

    @property
    def bound_by(self) -> Cause:
        """What sets the time between two requests, apart from pauses."""
        learner, interval = self.learner, self._interval
        if self._gap >= interval:
            by_robots = self._robots_delay >= self.floor
            return Cause.ROBOTS if by_robots else Cause.SETTINGS
        bounds, model = learner.bounds, learner.model
        own_rate = learner.rate >= bounds.max_rate or not bounds.adaptive
        if own_rate or self.spacing * self.permits.share >= interval:
            return Cause.SETTINGS
        if model is None:
            return Cause.START
        searching = model.governor.phase is Phase.SEARCH
        return Cause.START if searching and not model.is_capped else Cause.HOST

    def reconfigure(
        self,
        bounds: Bounds,
        *,
        spacing: float,
        floor: float,
        windows: Sequence[Window] = (),
    ) -> None:
        """Go on with other limits, and forget what was learned under the old ones,
        unless that is shared with others."""
        self.learner.reconfigure(bounds)
        self._part_limit = None
        self.spacing = spacing
        self.floor = floor
        self.permits.limit(windows)
        if self.permits.leases is not None:
            self.permits.leases.renew()
        self._update()

    def relearn(self, answers: Iterable[Answered], rate: float, now: float) -> None:
        """Forget what was learned, and learn from these answers alone, as if ``rate``
        were known to be no problem before. A pause ends unless it follows from them."""
        self.forget()
        self.recall(Learned(rate, None, None), now)
        until = self.learner.learn_from(answers)
        self._update()
        self.unblock(Block.PAUSE)
        if until > now:
            self.block(Block.PAUSE, until)

    def keep_to(self, limit: float, spread: float, now: float) -> None:
        """The part of a host that it is for was found to have that limit, which may
        differ by a factor of e^``spread``."""
        self._part_limit = PartLimit(limit, now)
        self.recall(Learned(limit, spread, None), now)

    def forget(self) -> None:
        """Nothing is known any more."""
        self.learner.forget()
        self.serving.forget()
        self._block_limit = self._part_limit = None
        self._update()

    def obey_robots(self, delay: float, now: float) -> bool:
        """Keep ``delay`` seconds between requests, counted from ``now``, when
        robots.txt arrived: asking for it was a request too.

        Return whether that is news.
        """
        delay += TRAVEL_TIME_DIFFERENCE
        if self.permits.leases is not None:
            delay += grace(delay)
        if delay <= self._robots_delay:
            return False
        self._robots_delay = delay
        self._update()
        self.permits.restart(now)
        self.announce()
        return True

    def forget_robots(self) -> None:
        """Its robots.txt has changed, and asks for less than before."""
        self._robots_delay = 0.0
        self._update()
        self.announce()
