"""What the last requests of a slot came to, to be learned from once more."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.core.outcome import Outcome, Permit, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy_politeness.core.parts import Part

    Answered = tuple[Permit, Outcome, float]
    _Row = tuple[bytes, float, Outcome, float]

# Requests; up to twice as many are remembered. At ten requests per second, that is
# about half a minute. Most hosts never refuse: until then, it is fewer.
_MOST = 250
_BEFORE = 40

# To learn from a refusal takes some twenty times as long as to learn from a page that
# was served: no more are learned from at once.
_MOST_REFUSED = 40

# Of the limits that explain as much, one with the first of these periods, in seconds,
# is the most likely. No two requests travel equally fast: the host may have seen a gap
# that was longer or shorter by this share than between the times of sending.
_PERIODS = (1.0, 60.0, 10.0, 5.0, 2.0)
_BLURRED = 0.03

# The largest limit that is looked for: it takes as many answers to see it.
_MOST_COUNTED = 20

# A limit explains at least this many refusals, and that share of all, and as many pages
# were served.
_FEWEST = 2
_LEAST_SHARE = 0.6

# How often something else refuses a page, or one is served that the limit should have
# refused, since it took longer to get there.
_EXCEPTION = 0.05

_SERVED = Outcome(Verdict.SERVED)


class FoundLimit(NamedTuple):
    """In requests per second, and by what factor it may differ. ``evidence`` is how
    much less likely than with a limit it all is by chance. Both are logarithms."""

    rate: float
    spread: float
    evidence: float


class History:
    """Many slots have one, so a page that was served takes some 30 bytes, and its parts
    some 200 unless others have the same."""

    __slots__ = ("_answered_at", "_before", "_known", "_outcomes", "_parts", "_sent_at")

    def __init__(self) -> None:
        # Until the first refusal, what was served, in the form that costs least.
        self._before: deque[tuple[tuple[Part, ...], float, float]] | None
        self._before = deque(maxlen=_BEFORE)
        self._sent_at = array("d")
        self._answered_at = array("d")
        self._outcomes: list[Outcome] = []
        # Names may be long: their hashes are enough to tell parts apart.
        self._parts: list[bytes] = []
        # What is equal is kept once.
        self._known: dict[bytes, bytes] = {}

    def add(
        self, parts: tuple[Part, ...], sent_at: float, outcome: Outcome, now: float
    ) -> None:
        if self._before is not None:
            if outcome.verdict is Verdict.SERVED and outcome.wait is None:
                self._before.append((parts, sent_at, now))
                return
            before, self._before = self._before, None
            for own, at, answered_at in before:
                self._add(own, at, _SERVED, answered_at)
        self._add(parts, sent_at, outcome, now)

    def _add(
        self, parts: tuple[Part, ...], sent_at: float, outcome: Outcome, now: float
    ) -> None:
        if len(self._outcomes) == 2 * _MOST:
            for column in (self._sent_at, self._answered_at):
                del column[:_MOST]
            del self._outcomes[:_MOST], self._parts[:_MOST]
            self._known = {parts: parts for parts in self._parts}
        self._sent_at.append(sent_at)
        self._answered_at.append(now)
        self._outcomes.append(_SERVED if _is_plain(outcome) else outcome)
        hashes = array("q", map(hash, parts)).tobytes()
        self._parts.append(self._known.setdefault(hashes, hashes))

    def of(self, part: Part, *, without: bool = False) -> list[Answered]:
        """The last answers to requests for that part, or ``without`` them. None of them
        was paced as if it were the only one."""
        answers = [
            (Permit(sent_at, paced=False), outcome, now)
            for parts, sent_at, outcome, now in self._rows()
            if _is_of(part, parts) is not without
        ]
        refused = [
            nth
            for nth, (_, outcome, _) in enumerate(answers)
            if outcome.verdict is not Verdict.SERVED
        ]
        if len(refused) > _MOST_REFUSED:
            del answers[: refused[-_MOST_REFUSED]]
        return answers

    def limit_of(self, part: Part) -> FoundLimit | None:
        """Return the limit that explains which requests for that part were refused;
        None where there is none.

        A limiter serves a request unless it has served ``count`` in the ``period``
        before. These were sent at irregular times, so that shows.
        """
        return _limit_of(row for row in self._rows() if _is_of(part, row[0]))

    def served_rate(self, part: Part) -> float | None:
        """Return how many requests for that part were served per second since its first
        refusal, if any."""
        answers = [
            (sent_at, outcome.verdict is Verdict.SERVED)
            for parts, sent_at, outcome, _ in self._rows()
            if _is_of(part, parts)
        ]
        since = min(
            (at for at, is_served in answers if not is_served), default=math.inf
        )
        served = sum(is_served and at > since for at, is_served in answers)
        return served / (max(answers)[0] - since) if served else None

    def evidence_for(self, part: Part) -> float:
        """Return how much more of that a limit of the part's own explains than one of
        the whole host, as a logarithm."""
        own = self.limit_of(part)
        if own is None:
            return 0.0
        of_host = _limit_of(self._rows())
        return own.evidence - (0.0 if of_host is None else max(0.0, of_host.evidence))

    def _rows(self) -> Iterator[_Row]:
        return zip(
            self._parts, self._sent_at, self._outcomes, self._answered_at, strict=True
        )


def _is_plain(outcome: Outcome) -> bool:
    """Tell whether nothing but that it was served has to be remembered. What is left of
    a quota, the next page says again."""
    if outcome.verdict is not Verdict.SERVED or outcome.wait is not None:
        return False
    return outcome.quota is None or outcome.quota.remaining >= 1


def _is_of(part: Part, hashes: bytes) -> bool:
    return hash(part) in memoryview(hashes).cast("q")


def _limit_of(rows: Iterable[_Row]) -> FoundLimit | None:
    answers = sorted(
        (sent_at, outcome.verdict is Verdict.SERVED) for _, sent_at, outcome, _ in rows
    )
    found = (_limit_with(count, answers) for count in range(1, _MOST_COUNTED + 1))
    limits = [limit for limit in found if limit is not None]
    return max(limits, key=lambda limit: limit.evidence, default=None)


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
    if_served.sort()
    if_refused.sort()
    least = max(_FEWEST, _LEAST_SHARE * len(if_refused))
    if len(if_served) < _FEWEST or len(if_refused) < least:
        return None
    best, shortest, longest = -math.inf, math.inf, 0.0
    for nth, period in enumerate(if_served):
        # Of the refused ones, this many came too early, and of those served, this many.
        early = bisect_left(if_refused, period)
        explained = _log_likelihood(
            early + len(if_served) - nth, len(if_refused) - early + nth
        )
        if early >= least and explained > best:
            best, shortest, longest = explained, period, if_refused[early - 1]
    if longest <= 0:
        return None
    low, high = longest * (1 - _BLURRED), shortest * (1 + _BLURRED)
    usual = (period for period in _PERIODS if low < period < high)
    rate = count / next(usual, shortest)
    # By chance, any of them could be refused. The more are counted, the less likely it
    # is at first that a host does so; and as many as are counted are hardly more than
    # one case.
    by_chance = len(if_refused) / (len(if_refused) + len(if_served))
    best -= len(if_refused) * math.log(by_chance)
    best -= len(if_served) * math.log(1 - by_chance)
    unlikely = math.log(count * (count + 1) * len(if_refused))
    if best < unlikely:
        return None
    evidence = best / count - unlikely
    spread = math.log(max(shortest / longest, 1 + _BLURRED)) / 2
    return FoundLimit(rate, spread, evidence)


def _log_likelihood(expected: int, exceptions: int) -> float:
    return expected * math.log(1 - _EXCEPTION) + exceptions * math.log(_EXCEPTION)
