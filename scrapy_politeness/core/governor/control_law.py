"""The control law: outcomes go in, a rate and a pause come out.

Theory of operation
-------------------
A refusal is evidence, not truth. Its manners come first, always: the rate is halved at
once. What is *believed* changes only by as much as the evidence weighs, and that is
the business of ``belief``: is there a limit, and where, or does this host fail now and
then whatever we do?

======  =======================================  =======================================
phase   what happens                             what follows
======  =======================================  =======================================
SEARCH  some successes at one rate               the rate doubles, as in slow start
SEARCH  a refusal that was bad luck, it seems    on with the search
SEARCH  a refusal that was a limit, it seems     STEADY
STEADY  some successes                           the rate that is worth its risk, by
                                                 what is believed now
STEADY  some successes after a single refusal,   the rate doubles
        and there is likely no limit
STEADY  many requests since a limit last         a try: the rate rises, at most to
        showed itself, and what seems to be one  twice, and stays so until the next
        may be bad luck: the surer it seems,     refusal
        the more requests
STEADY  a refusal                                what is worth its risk is lower now
any     the host states its quota                STATED: the rate that keeps to it
STATED  answers say nothing of it, or that       SEARCH or STEADY, as before
        there is plenty left for a few seconds
======  =======================================  =======================================

**Refusal.** The rate is cut, and a pause follows: as long as the host says, else as
long as ``backoff`` finds right for a refusal that is likely to be meant. With the first
success after it the *moment* is over: the refusal is handed to the belief, together
with what was sent around it, in the order of sending, and the rate is what that finds
best. What was under way at the time of a cut was sent at the old rate: it does not cut
again. But where hardly any of that was served, it was hardly bad luck.

**Cycle.** A host that goes on refusing counts by windows, or is down. From the end of
one such silence to the end of the next, a limiter of any kind serves exactly its limit:
that is measured, and the belief gets it as one more piece of evidence.

Successes count only where the pace had held the request back: a crawl that waits for
its spider learns nothing about the limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor.aim import DOUBLE, UNDER, Aim
from scrapy_politeness.core.governor.backoff import Backoff
from scrapy_politeness.core.governor.belief import Belief
from scrapy_politeness.core.governor.cycle import Cycle
from scrapy_politeness.core.governor.moment import Moment
from scrapy_politeness.core.governor.search_history import SearchHistory
from scrapy_politeness.core.governor.stated_quota import StatedQuota
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.snapshot import (
    State,
    flag,
    kept,
    kept_part,
    new_part,
    one_of,
    optional,
    part,
    positive,
    share,
    when_or_never,
    whole,
)

if TYPE_CHECKING:
    from scrapy_politeness.core.governor.bounds import Bounds
    from scrapy_politeness.core.quota import Quota

# Each level of the search lasts at least a second: a host that counts by the second
# needs that long to refuse. And so does each rate after it.
_LEVEL_SECONDS = 1.0

# Once a host has refused, the rate is thought over after this many successes.
_SUCCESSES = 10

# What is known less exactly than by this factor, as a natural logarithm, is not known.
_WIDEST = 3.0

# How likely the rate is to blame for the first refusal of a host.
_FIRST_REFUSAL = 0.05

# A rate that is this many times as high as the limit is tried, not found.
_TRY = 1.5

# A limit is said to be found when it has shown itself some three times. Each refusal
# counts only as far as it was likely a limit's.
_FOUND_AFTER = 2.5

# A refusal that is less likely than this to mean a limit does not end the search. A
# host that is more likely than this to have no limit is treated as if it had none.
_LIKELY = 0.5

# After more accidents than this, their share of the requests says how likely a few in a
# row are.
_ACCIDENTS = 2.0

# A pause costs as much as many requests, so a refusal that may well be an accident
# calls for hardly any: the likelihood that it is none counts to this power.
_DOUBTED = 3

# To look closely at another rate blurs what is known of this one. A measurement that is
# worth less than this is no reason to.
_WORTH_A_LOOK = 0.25

# From this many failures without another reason, and this share of the requests, a
# host is said to have bad luck.
_UNLUCKY_TIMES = 5.0
_UNLUCKY_SHARE = 0.002


@dataclass(frozen=True, slots=True)
class Advice:
    """Pause for ``pause`` seconds; ``cut`` says that the rate was cut for it."""

    pause: float
    cut: bool = False


class Phase(Enum):
    SEARCH = "search"
    STEADY = "steady"
    STATED = "stated"


# The state of one is read into it.
_any_belief = partial(Belief, rate=1.0, start_rate=1.0, now=0.0)


@dataclass(eq=False, repr=False, slots=True)
class Governor(State):
    _bounds: Bounds
    rate: float = field(init=False)
    phase: Phase = kept(one_of(Phase), Phase.SEARCH)
    # The rate to return to after a moment, or when the host states no more quota.
    _goal: float = field(init=False)
    is_recovering: bool = kept(flag, False)
    # Since when the rate is what it is, and the successes since then.
    _since: float = kept(when_or_never, -math.inf)
    _successes: int = kept(whole, 0)
    _history: SearchHistory = kept_part(SearchHistory)
    _cut_at: float = kept(when_or_never, -math.inf)
    _backoff: Backoff = field(init=False)
    # None until the first refusal.
    _belief: Belief | None = kept(optional(new_part(_any_belief)), None)
    _moment: Moment = kept_part(Moment)
    _cycle: Cycle = kept_part(Cycle)
    _stated_quota: StatedQuota = kept_part(StatedQuota)
    # What the host allows, if that is known, and the share of the requests that fail
    # whatever the rate is.
    limit: float | None = kept(optional(positive), None)
    unlucky: float = kept(share, 0.0)

    def __post_init__(self) -> None:
        bounds = self._bounds
        self.rate = self._goal = bounds.start_rate
        self._backoff = Backoff(bounds.backoff_base, bounds.backoff_max)

    def __repr__(self) -> str:
        return f"<Governor {self.phase.value} at {self.rate:.3g}/s, {self._belief!r}>"

    def shape(self) -> dict[str, object]:
        return {
            **State.shape(self),
            "rate": self._read_rate,
            "_goal": self._read_rate,
            "_backoff": part(self._backoff),
        }

    @property
    def has_bad_luck(self) -> bool:
        """Tell whether the host is known to fail now and then, whatever the rate."""
        return self.unlucky > _UNLUCKY_SHARE

    @property
    def likely_limit(self) -> float | None:
        """The best guess at a limit, where there seems to be one, known or not."""
        if self._belief is None or self.phase is Phase.SEARCH:
            return None
        [limit] = self._belief.quantiles(0.5)
        return limit if limit <= self._bounds.max_rate else None

    @property
    def survived(self) -> float | None:
        """The highest rate that the host stands, for all that is known, where there
        seems to be no limit."""
        is_new = self._successes < self._bounds.raise_after and (
            self.phase is Phase.SEARCH
        )
        stood = self._goal / DOUBLE if is_new else self._goal
        is_found = self.likely_limit is None and stood > self._bounds.start_rate
        return stood if is_found else None

    @property
    def spread(self) -> float:
        """By what factor the limit may differ from what is believed, as a natural
        logarithm."""
        if self._belief is None:
            return math.inf
        low, high = self._belief.quantiles(0.1, 0.9)
        return math.log(high / low) / 2

    @property
    def is_settled(self) -> bool:
        """Tell whether the rate has found its place."""
        if self.phase is Phase.STATED or self.rate >= self._bounds.max_rate:
            return True
        if self.phase is Phase.SEARCH or self.is_recovering or self._belief is None:
            return False
        if self.limit is None or not self._belief.is_certain:
            return False
        if self._belief.shown < _FOUND_AFTER:
            return False
        return self._goal < _TRY * self.limit

    def is_current(self, permit: Permit) -> bool:
        """Tell whether a request was sent since the last cut."""
        return permit.sent_at >= self._cut_at

    def chance_of_refusal(self, permit: Permit) -> float:
        """How likely the host was to refuse that request, for its rate or for no
        reason."""
        if self._belief is None:
            return _FIRST_REFUSAL
        return self._belief.chance(permit.sent_at)

    def recall(
        self, limit: float, spread: float | None, trust: float, now: float
    ) -> None:
        """Go on from what an earlier run has learned, as far as it is to be trusted:
        ``trust`` is from 0 to 1, and there is no ``spread`` if no limit was found up
        to that rate."""
        limit = self._bounds.within(limit)
        if spread is not None:
            self._measured(limit, spread, trust, now)
        else:
            self._goal = limit
            self._go(limit, now)

    def hear(self, limit: float, now: float) -> None:
        """Others have found that limit."""
        self._measured(limit, 0.0, 1.0, now)

    def observe(
        self,
        permit: Permit,
        outcome: Outcome,
        now: float,
        chance: float,
        *,
        stale: bool = False,
        otherwise: float = 0.0,
    ) -> Advice:
        """Learn from a finished request.

        ``chance`` is a random number from [0, 1): the caller's, since this file has
        none. ``stale`` says that it was sent before the last cut, where the clock
        cannot tell. ``otherwise`` is how likely a refusal was because of something
        else that is known of.
        """
        is_current = not stale and self.is_current(permit)
        verdict = outcome.verdict
        if verdict.calls_for_pause:
            if not is_current:
                if verdict.is_overload:
                    self._moment.add_refused(permit.sent_at)
                if self._belief is not None and outcome.speaks_of_rate:
                    self._belief.add_refused(permit.sent_at)
                return Advice(outcome.wait or 0.0)
            if verdict is Verdict.BUSY:
                self._cut_at = now  # one pause for all that were under way
                asked = self._asked(outcome)
                waited = now - permit.sent_at
                return Advice(self._backoff.refused(asked, chance, 1.0, waited, now))
            return self._refused(permit, outcome, now, chance, otherwise)
        if verdict is Verdict.SERVED:
            self._count(permit.sent_at)
            if is_current:
                self._served(permit, outcome.quota, now)
        wait = outcome.wait or 0.0
        if outcome.quota is not None and is_current:
            wait = max(wait, self._heed(outcome.quota, now))
        return Advice(wait)

    def _count(self, sent_at: float) -> None:
        self._cycle.served(sent_at)
        if self._belief is None:
            self._history.add(sent_at)
        elif sent_at > self._moment.refused_at:
            self._moment.add_served(sent_at)
        else:
            self._belief.served(sent_at)

    def _served(self, permit: Permit, quota: Quota | None, now: float) -> None:
        self._backoff.served()
        if self.is_recovering:
            self.is_recovering = False
            self._learn(now, idle=permit.late)
            if self.phase is not Phase.STATED:
                self._go(self._goal, now)
            return
        if self.phase is Phase.STATED:
            if self._stated_quota.is_out_of_date(quota, self.rate):
                self.phase = Phase.STEADY if self._belief else Phase.SEARCH
                self._go(self._goal, now)
            return
        if not permit.paced:
            return
        self._successes += 1
        if now - self._since < _LEVEL_SECONDS:
            return
        if self.phase is Phase.STEADY and self._successes >= _SUCCESSES:
            self._successes = 0
            self._steer(now)
            self._go(self._goal, now)
        elif self.phase is Phase.SEARCH and self._successes >= self._bounds.raise_after:
            self._search(now)

    def _search(self, now: float) -> None:
        if self._goal >= self._bounds.max_rate:
            return
        self._successes = 0
        self._goal = self._bounds.within(self._goal * DOUBLE)
        self._go(self._goal, now)

    def _steer(
        self,
        now: float,
        least: float = 0.0,
        most: float = math.inf,
        *,
        may_try: bool = True,
    ) -> None:
        """Aim at the best rate that is believed in now, between these. ``may_try`` says
        that it may also be one that is not believed in."""
        belief = self._belief
        if belief is None:
            # What others have written down has lost it.
            self.phase = Phase.SEARCH
            return
        belief.leak(now)
        aim = Aim(belief, self._bounds, self._goal)
        best = aim.best(may_try=may_try, has_bad_luck=self.unlucky > 0)
        self._goal = aim.goal = self._bounds.within(min(max(best, least), most))
        aim.focus()
        self.limit = aim.limit
        self._count_bad_luck(belief)

    def _count_bad_luck(self, belief: Belief) -> None:
        times, share_of_all = belief.bad_luck
        self.unlucky = share_of_all if times >= _UNLUCKY_TIMES else 0.0

    def _refused(
        self,
        permit: Permit,
        outcome: Outcome,
        now: float,
        chance: float,
        otherwise: float,
    ) -> Advice:
        in_a_row = self._backoff.in_a_row
        rate = self._rate_of(permit)
        asked = self._asked(outcome)
        speaks_of_rate = outcome.speaks_of_rate
        # The first refusal of a host, and each after another one, calls for a pause
        # unless the host is known for its bad luck.
        times, unlucky = (0.0, 0.0) if self._belief is None else self._belief.bad_luck
        meant = self._backoff.weight(unlucky if times > _ACCIDENTS else 0.0)
        if not in_a_row:
            said = speaks_of_rate or outcome.is_block
            self._learn(now)
            if self._belief is None:
                start_rate = self._bounds.start_rate
                self._belief = self._history.end(rate, start_rate, permit.sent_at)
            else:
                cause = self._belief.cause(permit.sent_at, otherwise, said=said)
                meant = max(cause, otherwise) ** _DOUBTED
            self._moment.begin(permit.sent_at, rate, otherwise, now, said=said)
        elif speaks_of_rate and self._belief is not None:
            self._belief.add_refused(permit.sent_at)
        if outcome.is_block:
            meant = 1.0
        if self.phase is Phase.STATED:
            self._stated_quota.doubt()
        waited = now - permit.sent_at
        pause = self._backoff.refused(asked, chance, meant, waited, now)
        if outcome.is_block:
            # However long it took to find out that it goes on.
            pause = max(pause, self._bounds.backoff_base)
        self._cycle.refused(now, asked or 0.0, in_a_row, unlucky)
        self.is_recovering = True
        self._cut_at = now
        if self.phase is Phase.SEARCH:
            self._successes = 0
        self._go(rate * self._bounds.decrease_factor, now)
        return Advice(pause, cut=True)

    def _rate_of(self, permit: Permit) -> float:
        """Where something else than the pace had slowed the crawl down, it is the
        real rate that was too much."""
        if permit.paced:
            return self.rate
        rate = permit.rate or self._real_rate(permit.sent_at)
        return min(self.rate, max(rate, self._bounds.min_rate))

    def _real_rate(self, at: float) -> float:
        """Of a crawl that does not keep up with its pace."""
        if self._belief is not None:
            return self._belief.recent_rate
        return self._history.rate(at)

    def _learn(self, now: float, idle: float = 0.0) -> None:
        """A moment is over: hand the refusal to the belief. The crawl had nothing to
        send for the last ``idle`` seconds, which were no silence of the host's."""
        belief, moment = self._belief, self._moment
        if belief is None or moment.refused_at == math.inf:
            return
        cause = belief.refused(
            moment.refused_at, moment.otherwise, said=moment.said, alone=moment.is_alone
        )
        least = moment.rate * self._bounds.decrease_factor
        measured = self._cycle.end(now, idle)
        if measured is not None:
            if measured.weight > _WORTH_A_LOOK:
                belief.focus(self._bounds.within(measured.least))
            belief.measured(measured.least, measured.most, measured.weight)
            least = 0.0
            if self.phase is Phase.SEARCH:
                # All that is known is that it was too fast by far.
                begin = max(self._bounds.start_rate, DOUBLE * measured.least)
                self._goal = min(self._goal, begin)
        for sent_at in moment.end():
            belief.served(sent_at)
        if self.phase is Phase.SEARCH and cause < _LIKELY and measured is None:
            self._count_bad_luck(belief)
            return
        if self.phase is Phase.SEARCH:
            self.phase = Phase.STEADY
        # One that was bad luck, at a rate that was in use, may be followed by a higher.
        is_luck = cause < _LIKELY and moment.rate >= self._goal
        most = math.inf if is_luck else self._goal
        self._steer(now, least, most, may_try=measured is not None)

    def _measured(self, limit: float, spread: float, trust: float, now: float) -> None:
        """Begin at that limit, as far as it is to be trusted. It may have changed: a
        few successes there are enough to go on, a few refusals to believe in it."""
        limit = self._bounds.within(limit)
        if self._belief is None:
            self._belief = Belief(limit, self._bounds.start_rate, now)
        self._belief.focus(limit)
        factor = math.exp(min(spread, _WIDEST))
        self._belief.measured(limit / factor, limit * factor, trust)
        self.phase = Phase.STEADY
        self._goal = limit * (self._goal / limit) ** (1 - trust)
        self._steer(now, most=self._goal * UNDER)
        self._go(self._goal, now)

    def _heed(self, quota: Quota, now: float) -> float:
        was_stated = self.phase is Phase.STATED
        rate = self._stated_quota.rate(quota, self.rate, was_stated=was_stated)
        if rate is not None:
            self.phase = Phase.STATED
            self._go(rate, now)
        return min(self._stated_quota.wait(quota), self._bounds.longest_pause)

    def _go(self, rate: float, now: float) -> None:
        self._since = now
        if self._bounds.adaptive:
            self.rate = self._bounds.within(rate)

    def _read_rate(self, value: object) -> float:
        return self._bounds.within(positive(value))

    def _asked(self, outcome: Outcome) -> float | None:
        quota = outcome.quota
        if outcome.wait is None and quota is not None and quota.remaining < 1:
            return min(quota.reset, self._bounds.longest_pause)
        return outcome.wait
