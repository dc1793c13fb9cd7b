"""What the last requests of a slot came to, to be learned from once more."""

from __future__ import annotations

import math
from array import array
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.core.outcome import Outcome, Permit, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy_politeness.core.parts import Part

    Answered = tuple[Permit, Outcome, float]

# Requests; up to twice as many are remembered. At ten requests per second, that is
# about a minute.
_MOST = 500

# Of the limits that explain as much, one with the first of these periods, in seconds,
# is the most likely.
_PERIODS = (1.0, 60.0, 10.0, 5.0, 2.0)

# The largest limit that is looked for: it takes as many answers to see it.
_MOST_COUNTED = 20

# With at least this many of both, that all gaps before refusals are shorter than all
# others is no accident.
_FEWEST = 4

_SERVED = Outcome(Verdict.SERVED)


class FoundLimit(NamedTuple):
    """In requests per second, and by what factor it may differ. ``evidence`` is how
    much less likely than with a limit it all is by chance. Both are logarithms."""

    rate: float
    spread: float
    evidence: float


class History:
    """Many slots have one, so a page that was served without a quota takes some 30
    bytes, apart from the name of its part. One with a quota takes ten times as much."""

    __slots__ = ("_answered_at", "_known", "_outcomes", "_parts", "_sent_at")

    def __init__(self) -> None:
        self._sent_at = array("d")
        self._answered_at = array("d")
        self._outcomes: list[Outcome] = []
        self._parts: list[tuple[Part, ...]] = []
        # Equal parts are kept once.
        self._known: dict[tuple[Part, ...], tuple[Part, ...]] = {}

    def add(
        self, parts: tuple[Part, ...], sent_at: float, outcome: Outcome, now: float
    ) -> None:
        if len(self._outcomes) == 2 * _MOST:
            for column in (self._sent_at, self._answered_at):
                del column[:_MOST]
            del self._outcomes[:_MOST], self._parts[:_MOST]
            self._known = {parts: parts for parts in self._parts}
        self._sent_at.append(sent_at)
        self._answered_at.append(now)
        is_served = outcome.verdict is Verdict.SERVED
        is_plain = is_served and outcome.quota is None and outcome.wait is None
        self._outcomes.append(_SERVED if is_plain else outcome)
        self._parts.append(self._known.setdefault(parts, parts))

    def of(self, part: Part, *, without: bool = False) -> list[Answered]:
        """The answers to requests for that part, or ``without`` them. None of them was
        paced as if it were the only one."""
        return [
            (Permit(sent_at, paced=False), outcome, now)
            for parts, sent_at, outcome, now in self._rows()
            if (part in parts) is not without
        ]

    def limit_of(self, part: Part) -> FoundLimit | None:
        """Return the limit that explains which requests for that part were refused;
        None where there is none.

        A limiter serves a request unless it has served ``count`` in the ``period``
        before. These were sent at irregular times, so that shows.
        """
        own = sorted(
            (sent_at, outcome.verdict is Verdict.SERVED)
            for parts, sent_at, outcome, _ in self._rows()
            if part in parts
        )
        found = (_limit_with(count, own) for count in range(1, _MOST_COUNTED + 1))
        return next((limit for limit in found if limit is not None), None)

    def _rows(self) -> Iterator[tuple[tuple[Part, ...], float, Outcome, float]]:
        return zip(
            self._parts, self._sent_at, self._outcomes, self._answered_at, strict=True
        )


def _limit_with(count: int, answers: Iterable[tuple[float, bool]]) -> FoundLimit | None:
    """``answers`` are times of sending, and whether that request was served."""
    before = deque[float](maxlen=count)
    if_served: list[float] = []
    if_refused: list[float] = []
    for sent_at, is_served in answers:
        if len(before) == count:
            gaps = if_served if is_served else if_refused
            gaps.append(sent_at - before[0])
        if is_served:
            before.append(sent_at)
    if min(len(if_served), len(if_refused)) < _FEWEST:
        return None
    longest, shortest = max(if_refused), min(if_served)
    if not 0 < longest < shortest:
        return None
    usual = (period for period in _PERIODS if longest < period <= shortest)
    rate = count / next(usual, shortest)
    # By chance, the refused ones could be any of them.
    ways = math.comb(len(if_served) + len(if_refused), len(if_refused))
    evidence = math.log(ways / _MOST_COUNTED / len(if_refused))
    return FoundLimit(rate, math.log(shortest / longest) / 2, evidence)
