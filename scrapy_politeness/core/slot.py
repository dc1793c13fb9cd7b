"""One thing that is limited: a download slot."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from scrapy_politeness.core.cause import Block, Cause
from scrapy_politeness.core.governor.concurrency import Concurrency
from scrapy_politeness.core.governor.control_law import Phase
from scrapy_politeness.core.governor.host_model import Change, HostModel
from scrapy_politeness.core.health import Health, Status, health
from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.leases import LeaseTerms, grace
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.pace import HEAD_START, ON_THE_WAY, PROMPT, Pace
from scrapy_politeness.core.streak import Streak

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy_politeness.core.governor.control_law import Bounds
    from scrapy_politeness.core.leases import Leases

# The host measures a Crawl-delay at its own door, and no two requests travel equally
# fast: a connection to open, a busy event loop.
_TRAVEL_TIME_DIFFERENCE = 0.01

# What is not sent in these cannot be made up for by a burst.
_PAUSES = (Block.PAUSE, Block.HOURS)

# How much a request that took longer to get to the gate says about the next one: the
# event loop may have been busy. One that took less time proves that the way is short.
_WAY_SHARE = 0.5


class Slot:
    """Pace, governor, pause and concurrency of one slot.

    ``spacing`` is the user's own minimum between two requests on average, ``floor``
    between any two, ``concurrency`` how many may be under way at once, and ``burst``
    how many may go at once after a time of rest. With ``from_finish``, requests go one
    at a time, and spacings are counted from the end of each.

    ``ready_at`` and ``claimable_at`` are all that decides on when it sends. Whoever has
    a reason for it to send nothing, or to do so later or earlier, tells it; and when
    the answer has changed, it tells its ``listeners``.

    A slot that has joined others in sharing one budget and one governor sends by
    ``leases`` of that, and hands its outcomes in. Parted from them, it goes on alone
    with its share, and never faster than they were.
    """

    __slots__ = (
        "__weakref__",
        "_blocks",
        "_bounds",
        "_burst",
        "_claimed_at",
        "_common",
        "_common_bounds",
        "_concurrency",
        "_floor",
        "_from_finish",
        "_is_parted",
        "_known_interval",
        "_model",
        "_most",
        "_pace",
        "_robots_delay",
        "_share",
        "_spacing",
        "_streak",
        "_way",
        "aside",
        "blocked_until",
        "claims",
        "finished_at",
        "found_alone",
        "in_flight",
        "is_dead",
        "key",
        "leases",
        "listeners",
        "served_sent_at",
    )

    def __init__(
        self,
        key: str,
        bounds: Bounds,
        *,
        spacing: float,
        concurrency: int,
        floor: float = 0.0,
        burst: int = 1,
        from_finish: bool = False,
        listeners: Sequence[Callable[[Slot], None]] = (),
    ) -> None:
        self.key = key
        self.listeners = listeners
        self.in_flight = 0
        self.claims = 0
        # Those on their way who wait for something else: they take a place each, but
        # hold up nobody.
        self.aside = 0
        # When the last of those was sent that this process saw served.
        self.served_sent_at = -math.inf
        self._claimed_at = -math.inf
        self._way = 0.0
        # Until when each lasts, and until when any of those at the gate does.
        self._blocks: dict[Block, float] = {}
        self.blocked_until = -math.inf
        self.is_dead = False
        self._burst = burst
        self._pace: Pace | Leases = Pace(burst)
        self.leases: Leases | None = None
        self._known_interval: float | None = None
        # By how many the budget has to be divided while each goes on alone.
        self._share = 1
        self._robots_delay = 0.0
        self._spacing = spacing
        self._floor = floor
        self._from_finish = from_finish
        # Where spacings count from the end of a request, that of the last one.
        self.finished_at: float | None = None
        self._bounds = bounds
        self._most = concurrency
        self._model: HostModel | None = None
        self._concurrency: Concurrency | None = None
        self._streak: Streak | None = None
        # While parted: what all had learned together, if anything.
        self._is_parted = False
        self._common: HostModel | None = None
        # What this process has found while it was alone, until all know it.
        self.found_alone: float | None = None
        # What one process changes for itself is not for all.
        self._common_bounds = bounds

    @property
    def concurrency(self) -> int:
        """How many may be under way at once: what the user allows, or less where the
        host was found to take less."""
        return self._most if self._concurrency is None else self._concurrency.limit

    @property
    def _places(self) -> int:
        """The same, but one at a time asks whether a block is over."""
        is_blocked = self._streak is not None and self._streak.is_block
        return 1 if is_blocked else self.concurrency

    @property
    def has_room(self) -> bool:
        return self.in_flight < self._places

    @property
    def ready_at(self) -> float:
        """From when on one more request may be sent."""
        return max(
            self.blocked_until, self._pace.ready_at(self._interval, self._least_gap)
        )

    @property
    def _least_gap(self) -> float:
        return max(self._robots_delay, self._floor) * self._share

    @property
    def claimable_at(self) -> float:
        """From when on one more request may be handed out, to be sent at once.

        Infinite while there is no room, or robots.txt is not known: then something has
        to be sent, settled or unblocked first.
        """
        if Block.ROBOTS in self._blocks:
            return math.inf
        way = self.way
        # Those on a long way take no place of those under way meanwhile.
        most = self._places + (int(way * self.rate) if way else 0)
        if self.in_flight + self.claims + self.aside >= most:
            return math.inf
        since = max(self._claimed_at, self.blocked_until)
        at = self._pace.claimable_at(
            self.claims, since, self._interval, self._least_gap, way
        )
        return max(at, self.blocked_until - max(HEAD_START, way))

    @property
    def way(self) -> float:
        """What it takes to get from the queue to the gate, in seconds; 0 where that is
        not worth mentioning."""
        return self._way if self._way > ON_THE_WAY else 0.0

    def arrived(self, seconds: float) -> None:
        """A request of the queue's has come to the gate after that time."""
        longer = max(0.0, seconds - self._way)
        self._way = min(self._way, seconds) + _WAY_SHARE * longer

    def has_permit(self, now: float, shared: object = ()) -> bool:
        """Tell whether, where other processes share it, one more request is paid for
        that needs those other budgets, too."""
        return self._pace.has_permit(now, shared)

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
        interval = self._interval
        gap = self._least_gap
        late = min(now - self.blocked_until, self._pace.lateness(now, interval, gap))
        # Where something else than the rate holds, a higher rate would change nothing.
        by_rate = self._share / self._rate > max(self._spacing * self._share, gap)
        self._pace.take(now, interval, gap)
        resumed = self.blocked_until > -math.inf
        if resumed:
            self._clear_blocks()
        self.in_flight += 1
        slowest = max(interval, gap)
        kept_up = late <= max(slowest, PROMPT)
        rate = 1 / slowest if kept_up else None
        capped = self._model is not None and self._model.is_capped
        paced = by_rate and kept_up and not capped
        cuts = 0 if self.leases is None else self.leases.cuts
        full = self.in_flight + self.claims + self.aside >= self.concurrency
        return Permit(now, paced, self.in_flight, rate, resumed, late, cuts, full)

    def judged(self, permit: Permit, outcome: Outcome) -> Outcome:
        """Return what an outcome means, for all that came before it: a failure that is
        one of a row which is no accident means that the host shuts us out."""
        if not outcome.verdict.may_be_block or not self._is_in_a_row(permit):
            return outcome
        if self._streak is None:
            self._streak = Streak()
        if not self._streak.is_block_with(1):
            return outcome
        return replace(outcome, verdict=Verdict.REFUSED, is_block=True)

    def _is_in_a_row(self, permit: Permit) -> bool:
        """Tell whether nothing was served that was sent later."""
        return permit.sent_at >= self.served_sent_at

    def settle(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Change:
        """A request that was let through is over."""
        outcome = self.judged(permit, outcome)
        self._land(permit, outcome, now)
        change = self.conclude(permit, outcome, now, chance)
        self.announce()
        return change

    def conclude(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Change:
        """Learn from a request that is over."""
        model, concurrency = self._learn()
        governor = model.governor
        otherwise = 0.0
        # Of a flight that was refused, one says as much as all; and a block has another
        # reason than that too many were under way.
        is_news = governor.is_current(permit) or not outcome.verdict.is_overload
        if is_news and not outcome.is_block:
            otherwise = concurrency.observe(permit, outcome, governor.chance_of_refusal)
        change = model.observe(permit, outcome, now, chance, otherwise=otherwise)
        self._known_interval = None
        if change.pause:
            self._block(Block.PAUSE, now + change.pause)
        # A share is no place where a rate has settled.
        return replace(change, settled_at=None) if self._is_parted else change

    def hand_in(self, permit: Permit, outcome: Outcome, now: float) -> float:
        """A request is over, and what it teaches will be learned together with others:
        until that is done, nothing more is sent if it was refused. Return how likely
        it was refused because too many were under way."""
        outcome = self.judged(permit, outcome)
        self._land(permit, outcome, now)
        assert self.leases is not None
        model, concurrency = self._learn()
        is_new = not outcome.verdict.is_overload or self.leases.refused(permit.cuts)
        self.announce()
        if not is_new:
            return 0.0
        return concurrency.observe(permit, outcome, model.governor.chance_of_refusal)

    def _land(self, permit: Permit, outcome: Outcome, now: float) -> None:
        self.in_flight -= 1
        if outcome.verdict is Verdict.SERVED:
            self.served_sent_at = max(self.served_sent_at, permit.sent_at)
            if self._streak is not None:
                self._streak.served()
        elif (outcome.is_block or outcome.verdict.may_be_block) and (
            self._streak is not None and self._is_in_a_row(permit)
        ):
            self._streak.failed()
        if self._from_finish:
            self._pace.restart(now)
            self.finished_at = now

    def join(self, leases: Leases) -> None:
        """From now on, send by leases of a budget that is shared with others."""
        if self._is_parted:
            if self._model is not None:
                self.found_alone = self._model.governor.limit
            self._model, self._common = self._common, None
        self._is_parted = False
        self._share = 1
        self._known_interval = None
        self._pace = self.leases = leases

    def part(self, now: float, chance: float) -> None:
        """Go on alone, with an equal share of what all were sending. ``chance`` is a
        random number from [0, 1): not all of them shall begin at the same time."""
        assert self.leases is not None
        self._share = max(1, self.leases.members)
        rate = self._rate
        ceiling = None if self._model is None else self._model.governor.limit
        rate = min(rate, ceiling or rate)
        self._common = self._model
        self._is_parted = True
        low = min(self._bounds.min_rate, rate)
        self._model = HostModel(
            replace(self._bounds, start_rate=rate, max_rate=rate, min_rate=low)
        )
        self._known_interval = None
        self._pace = Pace(self._burst)
        self._pace.restart(now - chance * self._interval)

    @property
    def is_joined(self) -> bool:
        return self._pace is self.leases

    @property
    def model(self) -> HostModel | None:
        """What is known, and shared with others while joined."""
        return self._model

    @property
    def start_rate(self) -> float:
        return self._bounds.start_rate

    def new_model(self) -> HostModel:
        """To be filled with what others have learned."""
        return HostModel(self._common_bounds)

    def adopt(self, model: HostModel) -> None:
        """Go on with what was learned together."""
        self._learn()
        self._model = model
        self._known_interval = None

    @property
    def terms(self) -> LeaseTerms:
        """On what terms leases are asked for, apart from what is learned."""
        fastest = max(self._spacing, 1 / self._bounds.max_rate)
        return LeaseTerms(self._interval, fastest, self._least_gap, self._burst)

    @property
    def learned(self) -> Learned | None:
        """What is worth keeping for another run. A fixed rate looks for no limit."""
        model = self._common if self._is_parted else self._model
        if model is None or self._concurrency is None or not self._bounds.adaptive:
            return None
        governor = model.governor
        # What the user allows was not learned: another time it may be more.
        found = self._concurrency.likely
        limit = governor.likely_limit
        if limit is not None:
            return Learned(limit, governor.spread, found)
        if governor.survived is None and found is None:
            return None
        return Learned(governor.survived, None, found)

    def recall(self, learned: Learned, now: float) -> None:
        model, concurrency = self._learn()
        if learned.ceiling is not None:
            model.governor.recall(learned.ceiling, learned.spread, learned.trust, now)
        self._known_interval = None
        if learned.concurrency is not None:
            concurrency.recall(learned.concurrency)

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
        was_blocked = self._blocks.pop(reason, None) is not None
        if was_blocked:
            self._find_blocked_until()
            if reason in _PAUSES:
                self._pace.forget_pause()
            self.announce()
        return was_blocked

    def blocked_for(self, reason: Block) -> float:
        """Return until when; minus infinity where it is not."""
        return self._blocks.get(reason, -math.inf)

    def reset(self) -> bool:
        """End all pauses; return whether there was any."""
        was_paused = self.blocked_until > -math.inf
        self._clear_blocks()
        self._pace.forget_pause()
        self.announce()
        return was_paused

    def set_dead(self, is_dead: bool) -> None:
        """A host that has refused everything for too long is dead."""
        if is_dead is not self.is_dead:
            self.is_dead = is_dead
            self.announce()

    def is_given_up(self, now: float) -> bool:
        """Tell whether what waits for it need not wait for the end of its pause."""
        return self.is_dead and self.paused_until > now

    @property
    def paused_until(self) -> float:
        return self.blocked_for(Block.PAUSE)

    @property
    def _longest_block(self) -> Block:
        at_gate = [why for why in self._blocks if why is not Block.ROBOTS]
        return max(at_gate, key=self._blocks.__getitem__)

    def _block(self, reason: Block, until: float) -> bool:
        if until <= self.blocked_for(reason):
            return False
        self._blocks[reason] = until
        self._find_blocked_until()
        if reason in _PAUSES:
            self._pace.pause_until(until, self._interval)
        return True

    def _clear_blocks(self) -> None:
        is_shut = self._blocks.get(Block.ROBOTS)
        self._blocks = {} if is_shut is None else {Block.ROBOTS: is_shut}
        self.blocked_until = -math.inf

    def _find_blocked_until(self) -> None:
        at_gate = (at for why, at in self._blocks.items() if why is not Block.ROBOTS)
        self.blocked_until = max(at_gate, default=-math.inf)

    def status(self, now: float) -> Status:
        paused_for = max(0.0, self.blocked_until - now)
        how = Health.PAUSED if paused_for else Health.HEALTHY
        if self._model is not None:
            governor, latency = self._model.governor, self._model.latency
            how = health(governor, latency, paused=paused_for > 0)
        return Status(
            how,
            self.rate,
            self.ceiling,
            paused_for,
            self.in_flight,
            self.concurrency,
            self.bad_luck,
            self._longest_block.value if paused_for else "",
        )

    @property
    def rate(self) -> float:
        """How many requests per second may be sent now, apart from pauses."""
        return 1 / max(self._interval, self._least_gap)

    @property
    def ceiling(self) -> float | None:
        """What the host is believed to allow, if that is known."""
        return None if self._model is None else self._model.governor.limit

    @property
    def noise(self) -> float:
        """The share of all requests that the host fails, whatever the rate is."""
        refused = 0.0 if self._model is None else self._model.governor.unlucky
        if self._streak is None or not self._streak.is_noisy:
            return refused
        return max(refused, self._streak.share)

    @property
    def cuts_connections(self) -> bool:
        """Tell whether so many connections fail that RETRY_TIMES would give up pages
        which can be had."""
        return self._streak is not None and self._streak.is_noisy

    @property
    def bad_luck(self) -> float:
        """The same, but 0 as long as it is too little to speak of."""
        if self._model is None or not self._model.governor.has_bad_luck:
            return 0.0
        return self.noise

    @property
    def bound_by(self) -> Cause:
        """What sets the time between two requests, apart from pauses."""
        gap = self._interval
        if self._least_gap >= gap:
            by_robots = self._robots_delay >= self._floor
            return Cause.ROBOTS if by_robots else Cause.SETTINGS
        own_rate = self._rate >= self._bounds.max_rate or not self._bounds.adaptive
        if own_rate or self._spacing * self._share >= gap:
            return Cause.SETTINGS
        if self._model is None:
            return Cause.START
        searching = self._model.governor.phase is Phase.SEARCH
        if searching and not self._model.is_capped:
            return Cause.START
        return Cause.HOST

    def is_idle(self, now: float) -> bool:
        """Tell whether nothing is under way, and the next request could go at once."""
        busy = self.in_flight or self.claims or self.aside
        if busy or Block.ROBOTS in self._blocks:
            return False
        idle_at = self._pace.idle_at(self._interval, self._least_gap)
        return max(self.ready_at, idle_at) <= now

    def reconfigure(self, bounds: Bounds, *, spacing: float, floor: float) -> None:
        """Go on with other limits, and forget what was learned under the old ones,
        unless that is shared with others."""
        self._bounds = bounds
        self._spacing = spacing
        self._floor = floor
        self._known_interval = None
        if not self.is_joined:
            self._model = self._concurrency = None

    def forget(self) -> None:
        """Nothing is known any more."""
        self._model = self._concurrency = self._common = None
        self._known_interval = None

    def obey_robots(self, delay: float, now: float) -> bool:
        """Keep ``delay`` seconds between requests, counted from ``now``, when
        robots.txt arrived: asking for it was a request too.

        Return whether that is news.
        """
        delay += _TRAVEL_TIME_DIFFERENCE
        if self.leases is not None:
            delay += grace(delay)
        if delay <= self._robots_delay:
            return False
        self._robots_delay = delay
        self._pace.restart(now)
        self.announce()
        return True

    @property
    def _interval(self) -> float:
        # Asked for at every turn, and the same until something was learned.
        if self._known_interval is None:
            self._known_interval = max(1 / self._rate, self._spacing) * self._share
        return self._known_interval

    @property
    def _rate(self) -> float:
        if self._model is None:
            return self._bounds.start_rate
        return min(self._model.rate, self._bounds.max_rate)

    def _learn(self) -> tuple[HostModel, Concurrency]:
        if self._model is None:
            bounds = self._common_bounds if self.is_joined else self._bounds
            self._model = HostModel(bounds)
            self._known_interval = None
        if self._concurrency is None:
            self._concurrency = Concurrency(self._most)
        return self._model, self._concurrency
