"""When a slot may send one more request: the one question of readiness."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy_politeness.core.blocks import Blocks
from scrapy_politeness.core.cause import Block
from scrapy_politeness.core.pace import HEAD_START, ON_THE_WAY
from scrapy_politeness.core.permits import Permits, Referable
from scrapy_politeness.core.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy_politeness.core.bandwidth import Bandwidth
    from scrapy_politeness.core.budget import Budget

# What is not sent in these cannot be made up for by a burst.
_PAUSES = (Block.PAUSE, Block.HOURS)

# How much a request that took longer to get to the gate says about the next one: the
# event loop may have been busy. One that took less time proves that the way is short.
_WAY_SHARE = 0.5


@dataclass(eq=False, repr=False, slots=True)
class Admission(Referable):
    """``ready_at`` and ``claimable_at`` alone decide when a slot sends. Whatever has a
    reason for it to send nothing blocks it, and when the answer changes, it announces
    that to its ``listeners``.
    """

    key: str
    _: KW_ONLY
    spacing: float
    # What the user allows, or less where the host was found to take less.
    concurrency: int
    floor: float = 0.0
    burst: int = 1
    from_finish: bool = False
    bandwidth: Bandwidth | None = None
    # Where other processes share it, its longer windows are budgets of their own.
    companions: tuple[Budget, ...] = ()
    # Called with the slot.
    listeners: Sequence[Callable[[Any], None]] = ()

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
    serving: Serving = field(default_factory=Serving, init=False)
    _blocks: Blocks = field(default_factory=Blocks, init=False)
    _claimed_at: float = field(default=-math.inf, init=False)
    _way: float = field(default=0.0, init=False)
    # What to keep between requests on average, and between any two.
    _interval: float = field(default=0.0, init=False)
    _gap: float = field(default=0.0, init=False)

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
    def rate(self) -> float:
        """How many requests per second may be sent now, apart from pauses."""
        return 1 / max(self._interval, self._gap)

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
