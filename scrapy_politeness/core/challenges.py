"""Challenges in a row: are we too fast, or not welcome?

A host may ask those who are too fast whether they are human, or everyone, or everyone
for some of its pages. What it serves meanwhile tells:

    it serves other pages                     the page's own affair
    it has served pages, and stopped doing so we are too fast: to be waited for
    ... and waiting has not helped for long   we are not welcome
    it has never served a page                we are not welcome
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_politeness.core.lru import LRU

if TYPE_CHECKING:
    from collections.abc import Callable

# With a growing pause after each, this takes a minute by default.
_FEWEST = 5


@dataclass(slots=True)
class Row:
    since: float
    until: float
    times: int

    @property
    def seconds(self) -> float:
        return self.until - self.since


class Challenges:
    """A host that has served pages may challenge us for ``patience`` seconds. The
    ``most`` recent rows are remembered, and those for which ``may_forget`` returns
    False."""

    def __init__(
        self, patience: float, most: int, may_forget: Callable[[str], bool]
    ) -> None:
        self._patience = patience
        self._rows = LRU[str, Row](most, lambda key, _: may_forget(key))

    def challenged(self, key: str, now: float, *, has_served: bool) -> Row | None:
        """Return the row, if it means that we are not welcome. What was challenged
        together counts once."""
        if key not in self._rows:
            self._rows[key] = Row(now, now, 0)
        row = self._rows[key]
        row.until = now
        row.times += 1
        is_enough = row.times >= _FEWEST
        if has_served:
            is_enough = is_enough and row.seconds >= self._patience
        return row if is_enough else None

    def end(self, key: str) -> None:
        """A page was served, or there is no telling any more."""
        if key in self._rows:
            del self._rows[key]
