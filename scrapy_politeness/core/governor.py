"""The control law: outcomes go in, a rate and a pause come out.

Theory of operation
-------------------
"Halve, then creep up" never settles: it climbs into the limit again and again. This
law learns a *ceiling*, holds just under it, and looks only now and then whether there
is more.

**Search.** Nothing is known: the rate doubles with every few successes until the
first refusal.

**Refusal.** The rate is cut at once, and there is silence: as long as the host says,
else base * 2^n for the n-th refusal in a row. What was under way at the time of a cut
was sent at the old rate: it does not cut again, and its success does not end the
backoff. What a refusal tells about the limit rests on two facts:

- In any time t a host serves at most ``limit * t + burst``, where the burst is what
  it lets an idle client save up. So whatever it has served proves a lower bound.
- From one refusal to the next, the silence between included, it serves its limit
  exactly, as long as the silence is too short to forfeit anything. That is so for
  fixed windows, too.

``ceiling.py`` draws the conclusions.

**Recovery.** With the first success after the silence the rate returns to just under
the ceiling, and **holds** there.

**Probe.** After a hold the rate rises above the ceiling, halfway to the lowest rate
that is known to be refused, or in ever larger steps where none is known. A level that
was survived for long enough, so that no burst can have hidden the refusal, becomes
the ceiling. The refusal that ends a probe leads back to the ceiling. The less there
is to find out, and the more silence it costs to fail, the longer is the next hold;
where nothing is left to find out, each is twice as long as the one before. Holds are
counted in successes as well as in seconds, so that a slow host is not probed with a
large share of its requests.

**Climb.** Where the ceiling is a guess, or the rate that was refused is survived now,
the limit may be far away: levels follow each other quickly until the next refusal.

**Told.** A host that sends RateLimit headers says what its limit is: the rate follows
that at once, and there is nothing to search or probe. If it refuses all the same, it
is believed a little less.

Successes count only where the pace had held the request back: a crawl that waits for
its spider learns nothing about the limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from scrapy_politeness.core.backoff import Backoff
from scrapy_politeness.core.ceiling import Ceiling, Gap
from scrapy_politeness.core.goodput import Goodput
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.patience import SEARCH_SECONDS, Patience
from scrapy_politeness.core.snapshot import (
    number,
    one_of,
    optional,
    part,
    positive,
    whole,
)
from scrapy_politeness.core.told import Told

if TYPE_CHECKING:
    from scrapy_politeness.core.quota import Quota

# Search doubles, as TCP's slow start does. A level that was stood for nearly long
# enough is not far above the limit.
_SEARCH = 2.0
_NEARLY = 0.8

# Just under the ceiling, since no two requests travel equally fast.
_UNDER = 0.995

# A host that is silent for longer, or refuses twice in a row, counts by windows.
_LONG_SILENCE = 15.0

# An overloaded host has to make up for what it is behind with.
_RELIEF = 0.95


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the user allows the governor to do. Rates are requests per second."""

    start_rate: float = 1.0
    min_rate: float = 0.1
    max_rate: float = 10.0
    decrease_factor: float = 0.5
    raise_after: int = 10
    backoff_base: float = 5.0
    backoff_max: float = 300.0
    longest_pause: float = 3600.0
    adaptive: bool = True


@dataclass(frozen=True, slots=True)
class Advice:
    """Be silent for ``pause`` seconds; ``cut`` says that the rate was cut for it."""

    pause: float
    cut: bool = False


class Phase(Enum):
    SEARCH = "search"
    RECOVERY = "recovery"
    HOLD = "hold"
    PROBE = "probe"
    TOLD = "told"


class Governor:
    __slots__ = (
        "_backoff",
        "_blocked",
        "_bounds",
        "_ceiling",
        "_cut_at",
        "_cycle",
        "_goodput",
        "_patience",
        "_refused_at",
        "_silent_since",
        "_silent_until",
        "_since",
        "_stood",
        "_streak",
        "_told",
        "phase",
        "rate",
    )

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._ceiling = Ceiling()
        self.rate = bounds.start_rate
        self.phase = Phase.SEARCH
        # Since when the rate is what it is, and the successes since then.
        self._since = -math.inf
        self._streak = 0
        # The highest rate that the search has passed.
        self._stood = 0.0
        self._patience = Patience(bounds.backoff_base)
        self._cut_at = -math.inf
        self._backoff = Backoff(bounds.backoff_base, bounds.backoff_max)
        # What was served since the last refusal, and what before that one.
        self._goodput: Goodput | None = None
        self._cycle: Goodput | None = None
        # Since when there is silence, until when it is wanted, how often it was refused
        # since, and when last.
        self._silent_since = math.inf
        self._silent_until = -math.inf
        self._blocked = 0
        self._refused_at = -math.inf
        self._told = Told()

    def shape(self) -> dict[str, object]:
        return {
            "rate": lambda value: self._within_bounds(positive(value)),
            "phase": one_of(Phase),
            "_ceiling": part(Ceiling()),
            "_since": number,
            "_streak": whole,
            "_stood": number,
            "_patience": part(self._patience),
            "_cut_at": number,
            "_backoff": part(self._backoff),
            "_goodput": optional(part(Goodput(0.0, 0.0))),
            "_cycle": optional(part(Goodput(0.0, 0.0))),
            "_silent_since": number,
            "_silent_until": number,
            "_blocked": whole,
            "_refused_at": number,
            "_told": part(self._told),
        }

    @property
    def ceiling(self) -> float | None:
        return self._ceiling.value if self._ceiling.is_known else None

    @property
    def survived(self) -> float | None:
        """The highest rate that the host is known to stand: its ceiling or, where it
        has never refused, what the search has come to."""
        if self.phase is not Phase.SEARCH:
            return self.ceiling
        return self._stood if self._stood > self._bounds.start_rate else None

    @property
    def burst(self) -> float:
        return self._ceiling.burst

    @property
    def is_settled(self) -> bool:
        """Tell whether the rate has found its place."""
        if self.phase is Phase.TOLD or self.rate >= self._bounds.max_rate:
            return True
        is_held = self.phase in (Phase.HOLD, Phase.PROBE)
        return is_held and self._ceiling.gap is Gap.CLOSE

    def recall(self, ceiling: float, burst: float, now: float) -> None:
        """Go on from what an earlier run has learned."""
        self._ceiling.value = ceiling
        self._ceiling.burst = burst
        self._patience.be_careful()
        self._go(Phase.HOLD, ceiling * _UNDER, now)

    def observe(
        self,
        permit: Permit,
        outcome: Outcome,
        now: float,
        chance: float,
        *,
        stale: bool = False,
    ) -> Advice:
        """Learn from a finished request.

        ``chance`` is a random number from [0, 1): the caller's, since this file has
        none. ``stale`` says that it was sent before the last cut, where the clock
        cannot tell.
        """
        current = not stale and permit.sent_at >= self._cut_at
        if outcome.verdict.calls_for_silence:
            if not current:
                return Advice(self._keep_silent(outcome.wait or 0.0, now))
            silence = self._backoff.refused(self._asked(outcome), chance)
            if outcome.verdict is Verdict.BUSY:
                # One silence for all that were under way. It is no part of what the
                # host serves in a time, and of its limit it says nothing.
                self._cut_at = now
                self._goodput = None
                return Advice(self._keep_silent(silence, now))
            self._patience.silence = silence
            self._cut(permit, outcome.verdict, now)
            return Advice(self._keep_silent(silence, now), cut=True)
        if outcome.verdict is Verdict.SERVED and current:
            self._served(permit, now)
        elif outcome.verdict is Verdict.FAILED:
            self._streak = 0
        wait = outcome.wait or 0.0
        if outcome.quota is not None and current:
            wait = max(wait, self._heed(outcome.quota, now))
        return Advice(wait)

    def relieve(self, manages: float, now: float) -> None:
        """The host is overloaded, and manages so many requests per second: no more
        than that, without a pause."""
        self._patience.silence = 0.0
        self._patience.climbing = False
        if self.phase is Phase.PROBE:
            self._probe_failed(self.rate)
        else:
            self._ceiling.set(min(self.rate, manages), self.rate)
            self._patience.be_careful()
        self._go(Phase.HOLD, self._ceiling.value * _RELIEF, now)

    def forget(self, now: float) -> None:
        """What was refused had nothing to do with the rate: search anew."""
        self._ceiling = Ceiling()
        self._patience.start_anew()
        self._go(Phase.SEARCH, self.rate, now)

    def _served(self, permit: Permit, now: float) -> None:
        if self._goodput is None or not permit.paced:
            self._goodput = Goodput(permit.sent_at, self._end_silence(permit.sent_at))
        self._goodput.add(permit.sent_at)
        self._ceiling.served(permit.sent_at)
        self._backoff.served()
        if self.phase is Phase.RECOVERY:
            self._go(Phase.HOLD, self._ceiling.value * _UNDER, now)
        elif permit.paced:
            self._streak += 1
            if self.phase is Phase.SEARCH:
                self._search(now)
            elif self.phase is Phase.HOLD:
                self._keep_holding(now)
            elif self.phase is Phase.PROBE:
                self._probe(now)
            elif self._told.is_out_of_date():
                self._patience.be_careful()
                self._go(Phase.HOLD, self.rate, now)

    def _heed(self, quota: Quota, now: float) -> float:
        was_told = self.phase is Phase.TOLD
        rate = self._told.rate(quota, self.rate, was_told=was_told)
        if rate is not None:
            self._ceiling.set(rate, math.inf)
            self._go(Phase.TOLD, rate, now)
        return min(self._told.wait(quota), self._bounds.longest_pause)

    def _keep_silent(self, seconds: float, now: float) -> float:
        self._silent_until = max(self._silent_until, now + seconds)
        return seconds

    def _end_silence(self, now: float) -> float:
        # If the next request did not go when its turn came, that was not for the host's
        # sake: there was nothing to send, or something else held it up.
        now = min(now, self._silent_until + 1 / self.rate)
        silence = max(0.0, now - self._silent_since)
        by_windows = self._blocked > 1 or silence > _LONG_SILENCE
        if by_windows and self._cycle is not None:
            again = self._refused_at if self._blocked > 1 else None
            if self._ceiling.blocked(self._cycle, self._silent_since, again, now):
                self._patience.be_careful()
                self._patience.climbing = False
        self._silent_since = math.inf
        self._blocked = 0
        return silence

    def _search(self, now: float) -> None:
        long_enough = now - self._since >= SEARCH_SECONDS
        if long_enough and self._streak >= self._bounds.raise_after:
            self._stood = self.rate
            self._go(Phase.SEARCH, self.rate * _SEARCH, now)

    def _keep_holding(self, now: float) -> None:
        if not self._patience.hold_is_over(now - self._since, self._streak):
            return
        ceiling = self._ceiling
        ceiling.probe_begins(now)
        memory, ceiling.memory = ceiling.memory, None
        if memory is not None and memory > ceiling.value:
            self._go(Phase.PROBE, memory, now)
        else:
            self._step_up(ceiling.value, now)

    def _probe(self, now: float) -> None:
        seconds = now - self._since
        patience, ceiling = self._patience, self._ceiling
        if not patience.has_survived(ceiling, self.rate, seconds, self._streak):
            return
        passed_roof = ceiling.survived(self.rate)
        if patience.survived(ceiling, passed_roof=passed_roof):
            self._go(Phase.HOLD, self.rate * _UNDER, now)
        else:
            self._step_up(self.rate, now)

    def _step_up(self, level: float, now: float) -> None:
        if level >= self._bounds.max_rate:
            self._go(Phase.HOLD, level, now)
            return
        step = self._patience.next_step(self._ceiling, level)
        self._go(Phase.PROBE, level * (1 + step), now)

    def _cut(self, permit: Permit, verdict: Verdict, now: float) -> None:
        at = permit.sent_at
        refused = self._refused_rate(permit)
        lower = refused * self._bounds.decrease_factor
        self._learn(verdict, refused, lower, at)
        if self._goodput is not None:
            self._cycle = self._goodput
            self._goodput = None
        self._silent_since = min(self._silent_since, at)
        self._refused_at = at
        self._blocked += 1
        self._cut_at = now
        self._go(Phase.RECOVERY, lower, now)

    def _refused_rate(self, permit: Permit) -> float:
        """Where something else than the pace had slowed the crawl down, it is the
        real rate that was too much."""
        real = permit.rate or self._ceiling.lately(permit.sent_at)
        if permit.paced or not real:
            return self.rate
        return min(self.rate, max(real, self._bounds.min_rate))

    def _learn(self, verdict: Verdict, refused: float, lower: float, at: float) -> None:
        ceiling = self._ceiling
        if not ceiling.is_known:
            stood = self._streak >= _NEARLY * self.rate * SEARCH_SECONDS
            most = refused if stood else lower
            ceiling.guess(refused, self._goodput, at, most=most, least=lower / 2)
            self._patience.climbing = True
        elif verdict is Verdict.TIMED_OUT:
            # A host that does not even answer the first request after a silence is
            # away: that says nothing about its limit.
            if self._goodput is not None:
                ceiling.set(lower, refused)
                self._patience.timed_out()
        elif self.phase is Phase.TOLD:
            self._told.doubt()
        elif self.phase is Phase.PROBE:
            self._probe_failed(refused)
        elif self._goodput is not None:
            measured = ceiling.refused_below(refused, self._goodput, at, least=lower)
            measured = measured or ceiling.memory is not None
            self._patience.refused_below(ceiling, measured=measured)

    def _probe_failed(self, rate: float) -> None:
        self._ceiling.refused_above(rate)
        self._patience.probe_failed(self._ceiling)

    def _go(self, phase: Phase, rate: float, now: float) -> None:
        self.phase = phase
        self._streak = 0
        self._since = now
        if self._bounds.adaptive:
            self.rate = self._within_bounds(rate)

    def _within_bounds(self, rate: float) -> float:
        return max(self._bounds.min_rate, min(rate, self._bounds.max_rate))

    def _asked(self, outcome: Outcome) -> float | None:
        quota = outcome.quota
        if outcome.wait is None and quota is not None and quota.remaining < 1:
            return min(quota.reset, self._bounds.longest_pause)
        return outcome.wait
