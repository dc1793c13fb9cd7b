"""What a slot learns of its host."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor.concurrency import Concurrency
from scrapy_politeness.core.governor.host_model import Change, HostModel
from scrapy_politeness.core.learned import Learned

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_politeness.core.governor.bounds import Bounds
    from scrapy_politeness.core.history import Answered
    from scrapy_politeness.core.outcome import Outcome, Permit
    from scrapy_politeness.core.permits import Permits

# Where there is no need for a random one.
_MEAN_CHANCE = 0.5

# Fewer answers say less than what an earlier run has found out.
_FEW_ANSWERS = 20


@dataclass(eq=False, slots=True)
class Learner:
    """A model of the host, and how many requests it takes at once; both are None until
    there is something to learn from.

    Processes that have joined share one model. While they are parted, each has its own,
    which never gets faster than they were together; what it finds is kept for the
    others in ``found_alone``.
    """

    bounds: Bounds
    _max_concurrency: int
    _permits: Permits
    model: HostModel | None = None
    concurrency: Concurrency | None = None
    found_alone: float | None = None
    rate: float = field(init=False)
    max_in_flight: int = field(init=False)
    # How many more answers it takes to outweigh what was recalled.
    answers_needed: int = field(default=0, init=False)
    # The limit that was recalled, if any.
    _limit: float | None = field(default=None, init=False)
    # While parted: what all had learned together, if anything.
    _joint_model: HostModel | None = field(default=None, init=False)
    # What one process changes for itself is not for all.
    _joint_bounds: Bounds = field(init=False)

    def __post_init__(self) -> None:
        self._joint_bounds = self.bounds
        self._update()

    @property
    def likely_limit(self) -> float | None:
        return None if self.model is None else self.model.governor.likely_limit

    @property
    def ceiling(self) -> float | None:
        return None if self.model is None else self.model.governor.limit

    def observe(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Change:
        model, concurrency = self._begin()
        otherwise = 0.0
        # Of a flight that was refused, one says as much as all; and a block has another
        # reason than that too many were in flight.
        is_news = model.governor.is_current(permit) or not outcome.verdict.is_overload
        if is_news and not outcome.is_block:
            otherwise = _too_many(concurrency, model, permit, outcome)
        change = model.observe(permit, outcome, now, chance, otherwise=otherwise)
        self._update()
        if change.settled_at is not None and self._permits.is_parted:
            # A share is no place where a rate has settled.
            return change._replace(settled_at=None)
        return change

    def learn_from(self, answers: Iterable[Answered]) -> float:
        """Learn from earlier answers, in their order; return until when they call for
        a pause."""
        until = -math.inf
        for permit, outcome, at in answers:
            if outcome.wait is not None:  # as the host has stated it
                wait = min(outcome.wait, self.bounds.longest_pause)
                outcome = outcome._replace(wait=wait)
            change = self.observe(permit, outcome, at, _MEAN_CHANCE)
            until = max(until, at + change.pause)
        return until

    def is_current(self, permit: Permit) -> bool:
        """Tell whether a request was sent since the rate was last cut."""
        return self.model is None or self.model.governor.is_current(permit)

    def observe_concurrency(self, permit: Permit, outcome: Outcome) -> float:
        """Return how likely it was refused because too many were in flight. What else
        it teaches is learned together with others."""
        model, concurrency = self._begin()
        likely = _too_many(concurrency, model, permit, outcome)
        self._update()
        return likely

    def join(self) -> None:
        """Go on with what all have learned together."""
        if self._permits.is_parted:
            self.found_alone = self.ceiling
            self.model, self._joint_model = self._joint_model, None
            self._update()

    def part(self, offset: float) -> None:
        """Go on alone, never faster than all were together; their clock is ahead by
        ``offset``."""
        rate = min(self.rate, self.ceiling or self.rate)
        self._joint_model = self.model
        low = min(self.bounds.min_rate, rate)
        self.model = HostModel(
            replace(self.bounds, start_rate=rate, max_rate=rate, min_rate=low)
        )
        if self._joint_model is not None:
            self.model.outage = self._joint_model.outage.shifted(-offset)
        self._update()

    def new_model(self) -> HostModel:
        """Return one to be filled with what others have learned."""
        return HostModel(self._joint_bounds)

    def adopt(self, model: HostModel) -> None:
        self._begin()
        self.model = model
        self._update()

    @property
    def learned(self) -> Learned | None:
        """What is worth keeping for another run. A fixed rate looks for no limit."""
        model = self._joint_model if self._permits.is_parted else self.model
        if model is None or self.concurrency is None or not self.bounds.adaptive:
            return None
        if self.answers_needed:
            return None  # a short visit must not replace what a long crawl has found
        governor = model.governor
        # What the user allows was not learned: another time it may be more.
        found = self.concurrency.likely
        limit = governor.likely_limit
        if limit is not None:
            return Learned(limit, governor.spread, found)
        survived = governor.survived
        if survived is None and found is None:
            return None
        if self._limit is not None and survived is not None and survived <= self._limit:
            return None  # nothing speaks against what was recalled
        return Learned(survived, None, found)

    def recall(self, learned: Learned, now: float) -> None:
        model, concurrency = self._begin()
        self.answers_needed = _FEW_ANSWERS
        self._limit = None if learned.spread is None else learned.ceiling
        if learned.ceiling is not None:
            model.governor.recall(learned.ceiling, learned.spread, learned.trust, now)
        if learned.concurrency is not None:
            concurrency.recall(learned.concurrency)
        self._update()

    def reconfigure(self, bounds: Bounds) -> None:
        """Forget what was learned within other bounds, unless it is shared."""
        self.bounds = bounds
        if not self._permits.is_joined:
            self.model = self.concurrency = None
            self.answers_needed, self._limit = 0, None
        self._update()

    def forget(self) -> None:
        self.model = self.concurrency = self._joint_model = self.found_alone = None
        self.answers_needed, self._limit = 0, None
        self._update()

    def _update(self) -> None:
        wanted = self.bounds.start_rate if self.model is None else self.model.rate
        self.rate = min(wanted, self.bounds.max_rate)
        self.max_in_flight = self._max_concurrency
        if self.concurrency is not None:
            self.max_in_flight = self.concurrency.limit

    def _begin(self) -> tuple[HostModel, Concurrency]:
        if self.model is None:
            joined = self._permits.is_joined
            self.model = HostModel(self._joint_bounds if joined else self.bounds)
        if self.concurrency is None:
            self.concurrency = Concurrency(self._max_concurrency)
        return self.model, self.concurrency


def _too_many(
    concurrency: Concurrency, model: HostModel, permit: Permit, outcome: Outcome
) -> float:
    """How likely a request was refused because too many were in flight."""
    if outcome.verdict.is_overload and model.governor.is_recovering:
        # A host that is silent refuses however few are in flight.
        return 0.0
    return concurrency.observe(permit, outcome, model.governor.chance_of_refusal)
