"""One thing that is limited: a download slot."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import TYPE_CHECKING

from scrapy_politeness.core.block_limit import BlockLimit
from scrapy_politeness.core.blocks import Blocks
from scrapy_politeness.core.cause import Block, Cause
from scrapy_politeness.core.governor.control_law import Phase
from scrapy_politeness.core.health import Health, Status, health
from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.learner import Learner
from scrapy_politeness.core.leases import LeaseTerms, grace
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.pace import (
    HEAD_START,
    ON_THE_WAY,
    PROMPT,
    TRAVEL_TIME_DIFFERENCE,
)
from scrapy_politeness.core.part_limit import PartLimit
from scrapy_politeness.core.permits import Permits, Referable
from scrapy_politeness.core.serving import Serving
from scrapy_politeness.core.turns import turn_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scrapy_politeness.core.bandwidth import Bandwidth
    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.governor.control_law import Bounds
    from scrapy_politeness.core.governor.host_model import Change, HostModel
    from scrapy_politeness.core.history import Answered
    from scrapy_politeness.core.outage import Outage
    from scrapy_politeness.core.windows import Window

# What is not sent in these cannot be made up for by a burst.
_PAUSES = (Block.PAUSE, Block.HOURS)

# How much a request that took longer to get to the gate says about the next one: the
# event loop may have been busy. One that took less time proves that the way is short.
_WAY_SHARE = 0.5

# Where there is no need for a random one.
_MEAN_CHANCE = 0.5


@dataclass(eq=False, repr=False, slots=True)
class Slot(Referable):
    """Pace, governor, pause and concurrency of one slot.

    ``spacing`` is the user's own minimum between two requests on average, ``floor``
    between any two, ``concurrency`` how many may be in flight at once, ``burst``
    how many may go at once after a time of rest, ``windows`` how many may go in longer
    times, and ``bandwidth`` how much may arrive. With ``from_finish``, requests go one
    at a time, and spacings are counted from the end of each.

    ``ready_at`` and ``claimable_at`` alone decide when it sends. Whatever has a reason
    for it to send nothing blocks it, and when the answer changes, the slot announces
    that to its ``listeners``.

    A slot that has joined others in sharing one budget and one governor sends by
    leases of that, and hands its outcomes in. Parted from them, it goes on alone with
    its share, and never faster than they were.
    """

    key: str
    bounds: InitVar[Bounds]
    _: KW_ONLY
    spacing: float
    # What the user allows, or less where the host was found to take less.
    concurrency: int
    floor: float = 0.0
    burst: int = 1
    windows: InitVar[Sequence[Window]] = ()
    from_finish: bool = False
    bandwidth: Bandwidth | None = None
    # Where other processes share it, its longer windows are budgets of their own.
    companions: tuple[Budget, ...] = ()
    listeners: Sequence[Callable[[Slot], None]] = ()

    in_flight: int = field(default=0, init=False)
    # How many this process may have in flight, where others share that.
    allowed: int | None = field(default=None, init=False)
    # Handed out, and on their way to the gate.
    claims: int = field(default=0, init=False)
    # Of those, the ones that wait for something else: each takes a place, but holds up
    # no other.
    aside: int = field(default=0, init=False)
    is_dead: bool = field(default=False, init=False)
    permits: Permits = field(init=False)
    learner: Learner = field(init=False)
    serving: Serving = field(default_factory=Serving, init=False)
    _blocks: Blocks = field(default_factory=Blocks, init=False)
    _block_limit: BlockLimit | None = field(default=None, init=False)
    _part_limit: PartLimit | None = field(default=None, init=False)
    # Whether one of these is below what the governor finds best.
    _is_held: bool = field(default=False, init=False)
    _claimed_at: float = field(default=-math.inf, init=False)
    _way: float = field(default=0.0, init=False)
    _robots_delay: float = field(default=0.0, init=False)
    # What to keep between requests on average, and between any two.
    _interval: float = field(init=False)
    _gap: float = field(init=False)

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

    @property
    def _places(self) -> int:
        """How many places there are; one at a time asks whether a block is over."""
        places = 1 if self.serving.is_shut else self.concurrency
        return places if self.allowed is None else min(places, self.allowed)

    @property
    def has_room(self) -> bool:
        return self.in_flight < self._places

    def is_open(self, now: float) -> bool:
        """Tell whether nothing but a permit is missing."""
        return self.has_room and not self._blocks.in_queue and self._blocks.until <= now

    @property
    def ready_at(self) -> float:
        """From when on one more request may be sent."""
        at = self.permits.pace.ready_at(self._interval, self._gap)
        if self.bandwidth is not None:
            at = max(at, self.bandwidth.ready_at)
        until = self._blocks.until
        return at if at > until else until

    @property
    def claimable_at(self) -> float:
        """From when on one more request may be handed out, to be sent at once.

        Infinite while there is no room, or robots.txt is not known: then something has
        to be sent, settled or unblocked first.
        """
        blocks = self._blocks
        if blocks.in_queue:
            return math.inf
        way = self._way if self._way > ON_THE_WAY else 0.0
        # Those on a long way take no place of those in flight meanwhile.
        most = self._places + (int(way * self.rate) if way else 0)
        if self.in_flight + self.claims + self.aside >= most:
            return math.inf
        since = max(self._claimed_at, blocks.until)
        at = self.permits.pace.claimable_at(
            self.claims, since, self._interval, self._gap, way
        )
        if self.bandwidth is not None:
            at = max(at, self.bandwidth.ready_at - HEAD_START)
        return max(at, blocks.until - max(HEAD_START, way))

    @property
    def way(self) -> float:
        """What it takes to get from the queue to the gate, in seconds; 0 where that is
        not worth mentioning."""
        return self._way if self._way > ON_THE_WAY else 0.0

    def arrived(self, seconds: float) -> None:
        """A request from the queue has come to the gate after that time."""
        if seconds < self._way:
            self._way = seconds
        else:
            self._way += _WAY_SHARE * (seconds - self._way)

    def has_permit(self, now: float, shared: object = ()) -> bool:
        """Tell whether, where other processes share it, one more request is paid for
        that needs those other budgets, too."""
        return self.permits.pace.has_permit(now, shared)

    def allow(self, places: int) -> None:
        """Of what many processes may have in flight together, this is our part."""
        if places != self.allowed:
            self.allowed = places
            self.announce()

    def claim(self, now: float) -> None:
        """A request was handed out and is on its way to be sent."""
        if not self.claims:
            self._claimed_at = now
        self.claims += 1

    def unclaim(self) -> None:
        """That request was sent, or will never be."""
        self.claims -= 1
        self.announce()

    def step_aside(self) -> None:
        """That request waits for something else."""
        self.claims -= 1
        self.aside += 1
        self.announce()

    def step_back(self) -> None:
        """It does so no longer, and is sent, or will never be."""
        self.aside -= 1
        self.announce()

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
        by_rate = interval > max(self.spacing * permits.share, gap)
        by_rate = by_rate and not self._is_held
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
        outcome = self.serving.judged(permit, outcome)
        was_shut = self.serving.is_shut
        to_blame = self._land(permit, outcome, now)
        if was_shut or outcome.is_block or self._block_limit is not None:
            self._heed_block(permit, outcome, was_shut, now)
        if self._part_limit is not None:
            self._part_limit.answered(permit, outcome, now)
        if self.learner.is_current(to_blame):
            permit = to_blame
        change = self.conclude(permit, outcome, now, chance)
        self.announce()
        return change

    def _heed_block(
        self, permit: Permit, outcome: Outcome, was_shut: bool, now: float
    ) -> None:
        if self._block_limit is None:
            self._block_limit = BlockLimit()
        if outcome.verdict is Verdict.SERVED:
            self._block_limit.served()
        is_shut, model = self.serving.is_shut, self.learner.model
        if is_shut and not was_shut:
            limit = None if model is None else model.governor.likely_limit
            self._block_limit.began(permit.rate, limit, now)
        elif was_shut and not is_shut:
            self._block_limit.ended(now)
        self._block_limit.pass_time(now)

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
        if outcome.verdict is not Verdict.IGNORED:
            self.learner.answered()
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

    def announce(self) -> None:
        """Say that it may be ready at another time than before."""
        for listener in self.listeners:
            listener(self)

    def block(self, reason: Block, until: float = math.inf) -> bool:
        """Send nothing until then, or until it is unblocked; of several times for one
        reason the latest counts. Return whether that is news."""
        is_news = self._block(reason, until)
        if is_news:
            self.announce()
        return is_news

    def unblock(self, reason: Block) -> bool:
        """Return whether it was blocked for that reason."""
        was_blocked = self._blocks.remove(reason)
        if was_blocked:
            if reason in _PAUSES:
                self.permits.pace.forget_pause()
            self.announce()
        return was_blocked

    def _block(self, reason: Block, until: float) -> bool:
        is_news = self._blocks.add(reason, until)
        if is_news and reason in _PAUSES:
            self.permits.pace.pause_until(until, self._interval)
        return is_news

    def blocked_for(self, reason: Block) -> float:
        """Return until when; minus infinity where it is not."""
        return self._blocks.end_of(reason)

    @property
    def blocked_until(self) -> float:
        return self._blocks.until

    @property
    def paused_until(self) -> float:
        return self._blocks.end_of(Block.PAUSE)

    def reset(self) -> bool:
        """End all pauses; return whether there was any."""
        was_paused = self._blocks.until > -math.inf
        self._blocks.clear()
        self.permits.pace.forget_pause()
        self.announce()
        return was_paused

    def set_dead(self, is_dead: bool) -> None:
        """A host that has refused everything for too long is dead."""
        if is_dead is not self.is_dead:
            self.is_dead = is_dead
            self.announce()

    def stop(self) -> None:
        """Send nothing any more: we are not welcome."""
        self.is_dead = True  # first, since blocking it announces both
        self.block(Block.UNWELCOME)

    @property
    def is_stopped(self) -> bool:
        return self._blocks.end_of(Block.UNWELCOME) > -math.inf

    def is_given_up(self, now: float) -> bool:
        """Tell whether what waits for it need not wait for the end of its pause."""
        return self.is_dead and (self.is_stopped or self.paused_until > now)

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
    def rate(self) -> float:
        """How many requests per second may be sent now, apart from pauses."""
        return 1 / max(self._interval, self._gap)

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

    def is_idle(self, now: float) -> bool:
        """Tell whether nothing is under way, and the next request could go at once, or
        never."""
        busy = self.in_flight or self.claims or self.aside
        if busy or self._blocks.in_queue:
            return False
        if self.is_stopped:
            return True  # if it is ever met again, that is found out again
        idle_at = self.permits.pace.idle_at(self._interval, self._gap)
        return max(self.ready_at, idle_at) <= now

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
        until = -math.inf
        longest = self.learner.bounds.longest_pause
        for permit, outcome, at in answers:
            if outcome.wait is not None:  # as the host has stated it
                outcome = outcome._replace(wait=min(outcome.wait, longest))
            change = self.learner.observe(permit, outcome, at, _MEAN_CHANCE)
            until = max(until, at + change.pause)
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
