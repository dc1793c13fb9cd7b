"""One thing that is limited: a download slot."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scrapy_politeness.core.cause import Cause
from scrapy_politeness.core.crowd import Crowd
from scrapy_politeness.core.governor import Bounds, Governor, Phase
from scrapy_politeness.core.health import Health, Status, health
from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.pace import HEAD_START, PROMPT, Pace
from scrapy_politeness.core.strain import Strain

# A request on its way to the gate needs longer where robots.txt has to come first.
# Until it is sent, no more are handed out than could be sent in this time.
_ON_THE_WAY = 0.05

# A rate that differs by no more than this from another is the same.
_NEWS = 0.1

# The host measures a Crawl-delay at its own door, and no two requests travel equally
# fast: a connection to open, a busy event loop.
_TRAVEL_TIME_DIFFERENCE = 0.01


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


class _Lessons:
    """What the answers of a host teach. Many hosts are asked only once, and most
    slots of a broad crawl wait for their first answer: so it is made with that."""

    __slots__ = ("_settled_at", "crowd", "governor", "strain")

    def __init__(self, bounds: Bounds, concurrency: int) -> None:
        self.governor = Governor(bounds)
        self.crowd = Crowd(concurrency)
        self.strain = Strain()
        self._settled_at = 0.0

    def newly_settled_at(self) -> float | None:
        """Return the rate that was settled at, if that is news. Each probe leads
        away from there, and most lead back: that is none."""
        rate = self.governor.rate
        moved = abs(rate - self._settled_at) > _NEWS * rate
        if not self.governor.is_settled or not moved:
            return None
        self._settled_at = rate
        return rate


class Scope:
    """Pace, governor, pause and concurrency of one slot.

    ``spacing`` is the user's own minimum between two requests on average, ``floor``
    between any two, ``concurrency`` how many may be under way at once, and ``burst``
    how many may go at once after a time of rest. With ``from_finish``, requests go one
    at a time, and spacings are counted from the end of each.
    """

    __slots__ = (
        "_bounds",
        "_claimed_at",
        "_floor",
        "_from_finish",
        "_lessons",
        "_most",
        "_pace",
        "_robots_delay",
        "_spacing",
        "aside",
        "claims",
        "held_until",
        "in_flight",
        "key",
        "paused_until",
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
    ) -> None:
        self.key = key
        self.in_flight = 0
        self.claims = 0
        # Those on their way who wait for something else: they take a place each, but
        # hold up nobody.
        self.aside = 0
        self._claimed_at = -math.inf
        self.paused_until = -math.inf
        self.held_until = -math.inf
        self._pace = Pace(burst)
        self._robots_delay = 0.0
        self._spacing = spacing
        self._floor = floor
        self._from_finish = from_finish
        self._bounds = bounds
        self._most = concurrency
        self._lessons: _Lessons | None = None

    @property
    def concurrency(self) -> int:
        """How many may be under way at once: what the user allows, or less where the
        host was found to take less."""
        return self._most if self._lessons is None else self._lessons.crowd.limit

    @property
    def has_room(self) -> bool:
        return self.in_flight < self.concurrency

    @property
    def ready_at(self) -> float:
        """From when on the pace and the pause allow one more request."""
        return max(
            self.paused_until,
            self.held_until,
            self._pace.ready_at(self._interval, self._least_gap),
        )

    @property
    def _least_gap(self) -> float:
        return max(self._robots_delay, self._floor)

    @property
    def claimable_at(self) -> float:
        """From when on one more request may be handed out, to be sent at once.

        Infinite while there is no room: then something has to be sent or settled
        first.
        """
        if self.in_flight + self.claims + self.aside >= self.concurrency:
            return math.inf
        if not self.claims:
            return self.ready_at - HEAD_START
        interval = max(self._interval, self._least_gap)
        if self.claims * interval >= _ON_THE_WAY:
            return math.inf
        return max(self.ready_at, self._claimed_at) + self.claims * interval

    def claim(self, now: float) -> None:
        """A request was handed out and is on its way to be sent."""
        if not self.claims:
            self._claimed_at = now
        self.claims += 1

    def unclaim(self) -> None:
        """That request was sent, or will never be."""
        self.claims -= 1

    def take(self, now: float) -> Permit:
        """Let one request through, now."""
        late = now - self.ready_at
        interval = self._interval
        gap = self._least_gap
        # Where something else than the rate holds, a higher rate would change nothing.
        by_rate = 1 / self._rate > max(self._spacing, gap)
        self._pace.take(now, interval, gap)
        resumed = max(self.paused_until, self.held_until) > -math.inf
        self.paused_until = self.held_until = -math.inf
        self.in_flight += 1
        slowest = max(interval, gap)
        kept_up = late <= max(slowest, PROMPT)
        rate = 1 / slowest if kept_up else None
        return Permit(now, by_rate and kept_up, self.in_flight, rate, resumed, late)

    def settle(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Change:
        """A request that was let through is over."""
        self.in_flight -= 1
        if self._from_finish:
            self._pace.restart(now)
        lessons = self._learn()
        governor = lessons.governor
        old_rate = governor.rate
        advice = governor.observe(permit, outcome, now, chance)
        manages = None
        if outcome.verdict is Verdict.SERVED:
            manages = lessons.strain.observe(now - permit.sent_at, now)
            if manages is not None:
                governor.relieve(manages, now)
        # Of a flight that was refused, one says as much as all.
        news = advice.cut or not outcome.verdict.is_overload
        if news and lessons.crowd.observe(permit, outcome):
            # It was the crowd that was too much, not the rate.
            governor.forget(now)
        if advice.pause:
            self.pause(now + advice.pause)
        return Change(
            old_rate,
            governor.rate,
            advice.pause,
            advice.cut,
            manages is not None,
            lessons.newly_settled_at(),
        )

    @property
    def learned(self) -> Learned | None:
        """What is worth keeping for another run. A fixed rate looks for no limit."""
        if self._lessons is None or not self._bounds.adaptive:
            return None
        governor = self._lessons.governor
        # What the user allows was not learned: another time it may be more.
        found = self._lessons.crowd.found
        if governor.survived is None and found is None:
            return None
        return Learned(governor.survived, governor.burst, found)

    def recall(self, learned: Learned, now: float) -> None:
        lessons = self._learn()
        if learned.ceiling is not None:
            lessons.governor.recall(learned.ceiling, learned.burst, now)
        if learned.concurrency is not None:
            lessons.crowd.limit = min(lessons.crowd.limit, learned.concurrency)

    def pause(self, until: float) -> None:
        """The host wants silence until then; of several pauses the latest counts."""
        self.paused_until = max(self.paused_until, until)
        self._pace.rest_until(until, self._interval)

    def hold(self, until: float) -> bool:
        """The user wants silence until then; of several holds the latest counts.

        Return whether that is news.
        """
        is_longer = until > self.held_until
        self.held_until = max(self.held_until, until)
        return is_longer

    def release(self) -> bool:
        """End a hold of the user's; return whether there was one."""
        was_held = self.held_until > -math.inf
        self.held_until = -math.inf
        return was_held

    def reset(self) -> bool:
        """End all silence; return whether there was any."""
        was_paused = self.paused_until > -math.inf
        self.paused_until = -math.inf
        self._pace.forget_rest()
        return self.release() or was_paused

    def status(self, now: float) -> Status:
        silent_for = max(0.0, self.paused_until - now, self.held_until - now)
        how = Health.PAUSED if silent_for else Health.HEALTHY
        if self._lessons is not None:
            governor, strain = self._lessons.governor, self._lessons.strain
            how = health(governor, strain, paused=silent_for > 0)
        return Status(
            how, self.rate, self.ceiling, silent_for, self.in_flight, self.concurrency
        )

    @property
    def rate(self) -> float:
        """How many requests per second may be sent now, apart from silence."""
        return 1 / max(self._interval, self._least_gap)

    @property
    def ceiling(self) -> float | None:
        """What the host is believed to allow, if that is known."""
        return None if self._lessons is None else self._lessons.governor.ceiling

    @property
    def bound_by(self) -> Cause:
        """What sets the time between two requests, apart from silence."""
        gap = max(1 / self._rate, self._spacing)
        if self._least_gap >= gap:
            by_robots = self._robots_delay >= self._floor
            return Cause.ROBOTS if by_robots else Cause.SETTINGS
        own_rate = self._rate >= self._bounds.max_rate or not self._bounds.adaptive
        if own_rate or self._spacing >= gap:
            return Cause.SETTINGS
        if self._lessons is None or self._lessons.governor.phase is Phase.SEARCH:
            return Cause.START
        return Cause.HOST

    def is_idle(self, now: float) -> bool:
        """Tell whether nothing is under way, and the next request could go at once."""
        busy = self.in_flight or self.claims or self.aside
        rested_at = self._pace.rested_at(self._interval, self._least_gap)
        return not busy and max(self.ready_at, rested_at) <= now

    def reconfigure(self, bounds: Bounds, *, spacing: float, floor: float) -> None:
        """Go on with other limits, and forget what was learned under the old ones."""
        self._bounds = bounds
        self._spacing = spacing
        self._floor = floor
        self._lessons = None

    def obey_robots(self, delay: float, now: float) -> bool:
        """Keep ``delay`` seconds between requests, counted from ``now``, when
        robots.txt arrived: asking for it was a request too.

        Return whether that is news.
        """
        delay += _TRAVEL_TIME_DIFFERENCE
        if delay <= self._robots_delay:
            return False
        self._robots_delay = delay
        self._pace.restart(now)
        return True

    @property
    def _interval(self) -> float:
        return max(1 / self._rate, self._spacing)

    @property
    def _rate(self) -> float:
        if self._lessons is None:
            return self._bounds.start_rate
        return self._lessons.governor.rate

    def _learn(self) -> _Lessons:
        if self._lessons is None:
            self._lessons = _Lessons(self._bounds, self._most)
        return self._lessons
