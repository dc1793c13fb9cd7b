"""Which rate to aim at, by what is believed of a host.

As a rule that is the rate that is worth its risk. But below a limit, nothing tells
whether it is one. So a belief in one is put to the test: the sooner, the less sure it
is, and soonest where the limit seems to be no higher than the rate that the crawl began
with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_politeness.core.governor.belief import Belief
    from scrapy_politeness.core.governor.bounds import Bounds

# Where nothing stands against it, the rate doubles, as in slow start.
DOUBLE = 2.0

# Once a host has refused, the rate rises by no more than this at a time; unless there
# is likely no limit after all, and it was just once: then it goes on as in the search.
_RISE = 1.25
_ONCE = 1.0

# Just under the limit, since no two requests travel equally fast.
UNDER = 0.995

# Where the limit may well be this many times as high, that is found out, unless one has
# shown itself this many times: a refusal costs a moment, a rate that is too low costs
# for as long as it lasts.
_MUCH = 2.0
_BOLD = 0.25
_SHOWN = 2.0

# Somebody has chosen the start rate with hosts like this one in mind. Where the limit
# seems to be no higher than about that, it may have been bad luck at the start: a rate
# that is likely safe is doubled, and a higher one is tried after all. The likelier that
# is served, the sooner, and the more often a limit has shown itself, the later: within
# seconds after the first time, within a dozen requests after the second.
_LOW = 1.5
_SAFE = 0.75
_TRY_AFTER = 0.01
_LATEST = 1.5

# Above that, a try at this many times the rate promises the logarithm of that, times
# the likelihood that so much is served. What promises most is tried, but only after so
# many requests since the limit last showed itself, divided by the square of the
# promise: a host with a limit hardly sees any. Where bad luck is known, the rate rises
# to that at once: the fewer requests a try takes, the fewer fail by bad luck meanwhile.
_FACTORS = (1.25, 1.5, DOUBLE)
_TRY_LATER = 3.4

# Three refusals may fit some limit perfectly by accident. So while it has shown itself
# that rarely, a little more is thought possible than what the evidence says. What has
# shown itself this many times more often than bad luck has is a limit.
_DOUBT = 0.05
_OFTEN = 3.0

# A pace that is this many times the real rate is not kept up with.
_LAGS = 1.5

# A host that is more likely than this to have no limit is treated as if it had none.
_LIKELY = 0.5


@dataclass
class Aim:
    """``goal`` is the rate that was aimed at so far, and then the new one."""

    belief: Belief
    bounds: Bounds
    goal: float

    def best(self, *, may_try: bool, has_bad_luck: bool) -> float:
        """The rate to aim at now. ``may_try`` says that a rate may be tried that is not
        believed in, ``has_bad_luck`` that the host is known to fail now and then."""
        belief = self.belief
        best = belief.best_rate * UNDER
        higher = belief.is_above(_MUCH * self.goal)
        is_bold = not has_bad_luck and belief.shown < _SHOWN and higher > _BOLD
        is_tried = may_try and (is_bold or self._is_worth_a_try(self.goal))
        if is_tried:
            best = math.inf
        elif may_try and self._is_worth_a_try(self.goal / DOUBLE):
            # A try goes on for as long as it would be begun again, or until a refusal.
            best = max(best, self.goal)
        seems_free = self._likely == math.inf and self._times < _ONCE
        is_safe = self._is_low(self.goal) and (is_tried or higher > _SAFE)
        rise = DOUBLE if seems_free or is_safe else _RISE
        if is_tried and has_bad_luck:
            rise = max(rise, self._promise(self.goal)[1])
        best = min(best, self.goal * rise)
        # What is not in use is not known to be any good.
        return self.goal if best > self.goal > self._in_use else best

    def focus(self) -> None:
        """Have the belief look closely at where the limit matters."""
        # A crawl that does not keep up with its pace may meet a limit far below that.
        lags = self.goal > _LAGS * self.belief.recent_rate
        likely = self._likely if lags else math.inf
        self.belief.focus(min(self.goal, self._in_use, likely))

    @property
    def limit(self) -> float | None:
        """The host's limit, if that may be said."""
        limit = self.belief.limit
        if limit is None or self.belief.is_certain:
            return limit
        return None if self._is_in_doubt else limit

    def _is_worth_a_try(self, rate: float) -> bool:
        """Tell whether to find out if the limit is much higher than that rate, although
        the belief says that it is not."""
        belief = self.belief
        if not self._is_in_doubt:
            return False
        if not self._is_low(rate):
            return self._promise(rate)[0] ** 2 * belief.untested > _TRY_LATER
        higher = belief.is_above(_MUCH * rate)
        if belief.shown < _OFTEN:
            higher += _DOUBT
        needed = _TRY_AFTER * min(belief.shown, _LATEST) ** 3
        return higher**2 * belief.unseen > needed

    def _promise(self, rate: float) -> tuple[float, float]:
        """What a try at a higher rate promises at most, and by which factor."""
        return max(
            (self.belief.is_above(factor * rate) * math.log(factor), factor)
            for factor in _FACTORS
        )

    @property
    def _is_in_doubt(self) -> bool:
        """Tell whether what looks like a limit may still have been bad luck."""
        return self.belief.shown <= _OFTEN + self._times

    def _is_low(self, rate: float) -> bool:
        return rate <= _LOW * self.bounds.start_rate

    @property
    def _in_use(self) -> float:
        return max(_MUCH * self.belief.goodput, self.bounds.min_rate)

    @cached_property
    def _times(self) -> float:
        return self.belief.times

    @cached_property
    def _likely(self) -> float:
        [likely] = self.belief.quantiles(_LIKELY)
        return likely
