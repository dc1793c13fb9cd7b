"""A crawl of so many pages: each is fetched once, and asked for again if it failed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from scrapy_politeness.core.outcome import Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST_GAP = 5.0
_LONGEST_GAP = 300.0
_MOST_FAILURES = 8
_SHORTEST_TRIAL = 600.0
_MOST_FAILURES_ALONE = 4


@dataclass(slots=True)
class Failing:
    """A page that has failed ``times``, from ``since`` until ``until``."""

    page: int
    since: float
    until: float
    times: int = 0

    @property
    def seconds(self) -> float:
        return self.until - self.since


def next_try(failing: Failing, *, alone: bool) -> float | None:
    """When to ask for a page again, or None if it is given up. It is ``alone`` if no
    page is left that has not failed: then nobody wants to wait long for it."""
    most = _MOST_FAILURES_ALONE if alone else _MOST_FAILURES
    if failing.times >= most and (alone or failing.seconds >= _SHORTEST_TRIAL):
        return None
    gap = _FIRST_GAP * 2.0 ** min(failing.times - 1, 64)
    return failing.until + min(gap, _LONGEST_GAP)


class Crawl:
    """Pages are numbered from 0, and asked for in that order. One that has failed goes
    as soon as it may be tried again.

    ``policy`` is asked when that is, after each failure and as soon as the failing
    pages are alone.
    """

    def __init__(
        self, pages: int, policy: Callable[..., float | None] = next_try
    ) -> None:
        self.pages = pages
        self.served = 0
        self.given_up: list[Failing] = []
        self._policy = policy
        self._next = 0
        # Pages that were not answered yet, for better or worse.
        self._unknown = pages
        self._failing: dict[int, Failing] = {}
        self._waiting: list[tuple[float, int]] = []

    def __repr__(self) -> str:
        return (
            f"<Crawl of {self.pages} pages: {self.served} served, "
            f"{len(self._failing)} failing, {len(self.given_up)} given up>"
        )

    @property
    def is_over(self) -> bool:
        return self.served + len(self.given_up) == self.pages

    @property
    def ready_at(self) -> float:
        """From when on there is a page to ask for; infinite if all are under way."""
        if self._next < self.pages:
            return -math.inf
        return self._waiting[0][0] if self._waiting else math.inf

    def take(self, now: float) -> int:
        if self._waiting and self._waiting[0][0] <= now:
            return heappop(self._waiting)[1]
        self._next += 1
        return self._next - 1

    def settle(self, page: int, outcome: Outcome, now: float) -> None:
        failing = self._failing.get(page)
        first_answer = failing is None
        if outcome.verdict is Verdict.SERVED:
            self.served += 1
            self._failing.pop(page, None)
        else:
            failing = failing or self._failing.setdefault(page, Failing(page, now, now))
            failing.times += 1
            failing.until = now
            self._try_again(failing)
        if first_answer:
            self._unknown -= 1
            if not self._unknown:
                self._give_up_the_hopeless()

    def _try_again(self, failing: Failing) -> None:
        at = self._policy(failing, alone=not self._unknown)
        if at is None:
            self._give_up(failing)
        else:
            heappush(self._waiting, (at, failing.page))

    def _give_up_the_hopeless(self) -> None:
        """They had been waiting beside others, which might have gone on for long."""
        waiting, self._waiting = self._waiting, []
        for at, page in waiting:
            failing = self._failing[page]
            if self._policy(failing, alone=True) is None:
                self._give_up(failing)
            else:
                self._waiting.append((at, page))
        heapify(self._waiting)

    def _give_up(self, failing: Failing) -> None:
        del self._failing[failing.page]
        self.given_up.append(failing)
