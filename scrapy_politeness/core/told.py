"""What to make of a quota that the host tells: the rate that keeps to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_politeness.core.snapshot import positive, whole

if TYPE_CHECKING:
    from scrapy_politeness.core.quota import Quota

# Kept to a little more strictly than told, since the host's clock and ours count from
# different moments; and more so each time that it refuses all the same.
_UNDER = 0.985
_DOUBT = 0.995

# A reset in whole seconds tells nothing about shorter times than these, and only a
# clear shortage is no matter of rounding.
_COARSE = 3.0
_LONG = 10.0
_SHORT = 0.8

# After so many answers without a word, what was said before is out of date.
_SILENT_ANSWERS = 20


class Told:
    __slots__ = ("_share", "_silent_answers")

    def __init__(self) -> None:
        self._share = _UNDER
        self._silent_answers = 0

    def shape(self) -> dict[str, object]:
        return {"_share": positive, "_silent_answers": whole}

    def doubt(self) -> None:
        self._share *= _DOUBT

    def is_out_of_date(self) -> bool:
        """Count one more answer, and tell whether too many of them said nothing."""
        self._silent_answers += 1
        return self._silent_answers > _SILENT_ANSWERS

    def rate(self, quota: Quota, rate: float, *, was_told: bool) -> float | None:
        """Return the rate to go on with, or None where the quota does not say.

        ``rate`` is the present one, ``was_told`` whether it comes from a quota.
        """
        self._silent_answers = 0
        limit = quota.sustained
        if limit is None:
            # Without its window a reset may mean many things: it may slow us down,
            # and then up to the quota again, but not more.
            slower = was_told or quota.spread < _SHORT * rate
            if quota.reset < _LONG or not slower:
                return None
            limit = quota.spread
        elif quota.reset >= _COARSE and (
            quota.remaining < _SHORT * limit * (quota.reset - 1)
        ):
            limit = quota.spread
        return limit * self._share or None

    def wait(self, quota: Quota) -> float:
        """Return how long to be silent, where nothing is left."""
        spent = quota.remaining < 1 and quota.reset >= _COARSE
        return quota.reset if spent else 0.0
