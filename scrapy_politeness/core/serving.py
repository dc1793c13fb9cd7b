"""Whether a host still serves us: what was served, and what failed in a row since."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_politeness.core.forbidden import FEWEST_PAGES, ForbiddenRow
from scrapy_politeness.core.outcome import Verdict
from scrapy_politeness.core.streak import Streak

if TYPE_CHECKING:
    from scrapy_politeness.core.outcome import Outcome, Permit

# How often a page is rescheduled because its connection was cut, at most; on a host
# that cuts many, twelve times in a row are an accident up to 30 %.
_CUTS = 6
_NOISY_CUTS = 12


@dataclass(slots=True, eq=False, repr=False)
class Serving:
    """What fails in a row is counted from the first failure on. ``sent_at`` is when the
    last request was sent that this process saw served. ``is_shut`` says that the host
    shuts us out; ``noise`` is the share of all connections that fail, 0 where it is
    nothing unusual."""

    sent_at: float = -math.inf
    pages: int = 0
    is_shut: bool = False
    noise: float = 0.0
    _before: float = -math.inf
    _streak: Streak | None = None
    _forbidden: ForbiddenRow | None = None

    def __repr__(self) -> str:
        return f"<Serving {self.pages} pages, {self._streak!r}>"

    @property
    def most_cuts(self) -> int:
        """How often a page is rescheduled because its connection was cut. That is 0 as
        long as RETRY_TIMES is enough: unless many of all connections are cut, those
        right before were, or there was a block."""
        streak = self._streak
        if streak is None:
            return 0
        if streak.is_noisy:
            return _NOISY_CUTS
        return _CUTS if streak.in_a_row > 0 or streak.was_block else 0

    @property
    def doubts_forbidden(self) -> bool:
        """Tell whether a 403 that was judged last may still turn out to be a block."""
        return self._forbidden is not None and not self._forbidden.is_final

    def judged(self, permit: Permit, outcome: Outcome) -> Outcome:
        """Return what an outcome means, for all that came before it: a failure that is
        one of a row which is no accident means that the host shuts us out."""
        if not outcome.verdict.may_be_block or not self._is_in_a_row(permit):
            return outcome
        if self._streak is None:
            self._streak = Streak()
        # A page that has failed before makes no row longer, but may not end it either.
        if not self._streak.is_block_with(not outcome.is_repeated):
            return outcome
        return outcome._replace(verdict=Verdict.REFUSED, is_block=True)

    def judged_forbidden(
        self, permit: Permit, outcome: Outcome, *, is_repeated: bool
    ) -> Outcome:
        """Return what a bare 403 means, for all that came before it."""
        if self.pages < FEWEST_PAGES or not self._is_in_a_row(permit):
            return outcome
        if self._forbidden is None:
            self._forbidden = ForbiddenRow(self.pages)
        is_block = self._forbidden.forbidden(
            permit.sent_at, is_repeated=is_repeated, is_probe=permit.resumed
        )
        self._update()
        if not is_block:
            return outcome
        reason = f"{outcome.reason} for every page"
        return outcome._replace(verdict=Verdict.REFUSED, reason=reason, is_block=True)

    def landed(self, permit: Permit, outcome: Outcome) -> Permit:
        """Count an outcome that was judged. Return which request is to blame: once a
        row is found to be a block, the one that it began with."""
        if outcome.verdict is Verdict.SERVED:
            self._served(permit.sent_at, is_page=outcome.is_page)
            return permit
        streak = self._streak
        if streak is None or not self._is_in_a_row(permit):
            return permit
        is_new = outcome.verdict.may_be_block and not outcome.is_repeated
        if not outcome.is_block and not is_new:
            return permit
        was_block = streak.is_block
        streak.failed(permit.sent_at)
        self._update()
        begins = streak.is_block and not was_block
        return permit._replace(sent_at=streak.began_at) if begins else permit

    def _served(self, sent_at: float, *, is_page: bool) -> None:
        if sent_at > self.sent_at:
            self._before, self.sent_at = self.sent_at, sent_at
        if is_page:
            self.pages += 1
            if self._forbidden is not None:
                self._forbidden.served(sent_at)
        if self._streak is not None:
            self._streak.served(sent_at)
        if self._streak is not None or self._forbidden is not None:
            self._update()

    def unserve(self) -> None:
        """The last answer that seemed to be a page was none."""
        self.sent_at = self._before

    def forget(self) -> None:
        self._streak = self._forbidden = None
        self._update()

    def _update(self) -> None:
        streak, forbidden = self._streak, self._forbidden
        self.is_shut = streak is not None and streak.is_block
        if forbidden is not None and forbidden.is_block:
            self.is_shut = True
        self.noise = 0.0
        if streak is not None and streak.is_noisy:
            self.noise = streak.share

    def _is_in_a_row(self, permit: Permit) -> bool:
        """Tell whether nothing was served that was sent later. A host that has never
        served anything is a dead link rather than one that shuts us out."""
        return permit.sent_at >= self.sent_at > -math.inf
