"""How long a crawl will take."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.observe.text import duration

if TYPE_CHECKING:
    from scrapy_politeness.core.pace import Limit
    from scrapy_politeness.observe.census import Census

# Seconds. A spider that has not found anything new for so long may be at its end.
_FINDING = 60.0


class Prospect(NamedTuple):
    """So many seconds at least where the spider still ``finds_more``."""

    seconds: float
    finds_more: bool

    def __str__(self) -> str:
        return f"{'at least ' if self.finds_more else ''}{duration(self.seconds)} left"


class Outlook:
    """``overall`` is the limit for all requests together."""

    def __init__(self, overall: Limit | None) -> None:
        self._interval = overall.interval if overall else 0.0
        self._most_known = 0
        self._found_at = -math.inf

    def judge(self, census: Census) -> Prospect | None:
        """Return None where nothing waits."""
        known = census.done + census.pending + census.in_progress
        if known > self._most_known:
            self._most_known = known
            self._found_at = census.at
        if not census.pending:
            return None
        seconds = max(census.seconds_left, census.pending * self._interval)
        return Prospect(seconds, census.at - self._found_at < _FINDING)
