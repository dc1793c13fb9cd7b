"""Answers with a bare 403: forbidden pages, or a host that shuts us out for a while?

Single ones among pages that are served are forbidden pages. A row of them, with nothing
served in between, may be a whole section that is forbidden, or a limiter that says 403
instead of 429. Waiting tells: a limiter opens again. If it does not, we go on as if
nothing had been, since pages that are forbidden for good are more common.
"""

from __future__ import annotations

from scrapy_politeness.core.streak import Streak

# A host that has served fewer pages has not shown yet that it serves us at all.
FEWEST_PAGES = 10

# Forbidden pages come in sections, so what is next to one is often another.
_FEWEST_IN_A_ROW = 4

# With a pause before each that grows, this takes a minute and a half by default.
_MOST_PROBES = 5


class ForbiddenRow:
    """Times are those at which requests were sent."""

    __slots__ = ("_probes", "_streak", "is_final")

    def __init__(self, pages_served: int) -> None:
        self._streak = Streak(pages_served)
        self._probes = 0
        # Waiting has not helped: they are forbidden pages.
        self.is_final = False

    def __repr__(self) -> str:
        return f"<ForbiddenRow {self._streak!r}, {self._probes} probes>"

    @property
    def is_block(self) -> bool:
        is_long = self._streak.in_a_row >= _FEWEST_IN_A_ROW
        return is_long and not self.is_final and self._streak.is_block

    def forbidden(self, at: float, *, is_repeated: bool, is_probe: bool) -> bool:
        """Another page is forbidden, perhaps one that was before. Return whether we
        are shut out; a probe asks whether that is over."""
        if self.is_block and is_probe:
            self._probes += 1
            self.is_final = self._probes >= _MOST_PROBES
        if not is_repeated:
            self._streak.failed(at)
        return self.is_block

    def served(self, at: float) -> None:
        self._streak.served(at)
        if not self._streak.in_a_row:
            self._probes = 0
