"""The rate that keeps to a quota that the host states."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from scrapy_politeness.core.snapshot import State, kept, positive, whole

if TYPE_CHECKING:
    from scrapy_politeness.core.quota import Quota

# Kept to a little more strictly than stated, since the host's clock and ours count from
# different moments; and more so each time that it refuses all the same.
_UNDER = 0.985
_DOUBT = 0.995

# A reset in whole seconds says nothing about shorter times than these, and only a
# clear shortage is no matter of rounding.
_COARSE = 3.0
_LONG = 10.0
_SHORT = 0.8

# What one answer says is out of date with the first that says nothing: it may be the
# quota of one path. What many have said holds for up to this many answers
# that say nothing.
_MOST_SILENT = 5


@dataclass(eq=False, slots=True)
class StatedQuota(State):
    _share: float = kept(partial(positive, high=1.0), _UNDER)
    # Answers that have said something, less those since that have not.
    _said: int = kept(whole, 0)

    def doubt(self) -> None:
        self._share *= _DOUBT

    def is_out_of_date(self, quota: Quota | None, rate: float) -> bool:
        """Tell whether one answer too many has said nothing that would keep to the
        present rate: no quota, or one that leaves plenty."""
        if quota is not None:
            is_enough = quota.sustained is None and quota.reset < _LONG
            if not is_enough or _SHORT * quota.spread < rate:
                return False
        self._said = max(0, self._said - 1)
        return not self._said

    def rate(self, quota: Quota, rate: float, *, was_stated: bool) -> float | None:
        """Return the rate to go on with, or None where the quota does not say.

        ``rate`` is the present one, ``was_stated`` whether it comes from a quota.
        """
        limit = quota.sustained
        if limit is None:
            # Without its window a reset may mean many things: it may slow us down,
            # and then up to the quota again, but not more.
            slower = was_stated or quota.spread < _SHORT * rate
            if quota.reset < _LONG or not slower:
                return None
            limit = quota.spread
        elif quota.reset >= _COARSE and (
            quota.remaining < _SHORT * limit * (quota.reset - 1)
        ):
            limit = quota.spread
        self._said = min(self._said + 1, _MOST_SILENT)
        return limit * self._share or None

    def wait(self, quota: Quota) -> float:
        """Return how long to pause, where nothing is left. Of a short window, that may
        be a matter of rounding."""
        is_long = quota.reset >= _COARSE or (quota.window or 0.0) >= _LONG
        return quota.reset if quota.remaining < 1 and is_long else 0.0
