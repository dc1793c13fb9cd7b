"""Whether the refusals of a host fall on one part of it only.

Theory of operation. If refusals have nothing to do with a part, one falls on it as
often as the part is among the requests sent around that time: that is the null
hypothesis, whatever the limit is, and in whatever order a site is crawled. Against it
stand three others: that the part gets nearly all refusals, most of them, or more than
half. Each refusal multiplies the likelihood ratio of each; their mean is the evidence.

Under the null hypothesis the chance that it ever gets above some bound is less than one
in that bound, however long one looks (Ville's inequality). The bound is ten thousand
for each part that there is to choose from.

Where half of the pages belong to a part, each refusal says little about that. But there
is more to see: whether a limit of the part's own explains which of its pages were
refused, and which were not, better than a limit of the whole host does
(``History.evidence_for``). That is evidence, too.

A page counts once, as does a flight that is refused together. So a broken page is never
taken for a part with a limit of its own, and a host that fails by chance hardly ever.
Where pages of a part mostly follow each other, a refusal after another one of its pages
says hardly anything about it.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_politeness.core.history import History

# How many requests sent last are what a refusal is compared with.
_AROUND = 40

# Pages of one part often follow each other: how often, shows. Until it does, that is
# believed to be so about once in this many times.
_ONCE_IN = 4

# The least that must be known of a part, and of the rest.
_LEAST = 12
_LEAST_REST = 24

# How much more evidence than chance could bring there has to be, for each part.
_BOUND = math.log(1e4)

# What it is worth at most that a limit explains the refusals of a part, and how many
# times as much as that they fall on it: where the whole host is refused when we are too
# fast, so are its parts.
_MOST_EXPLAINED = 6.0
_MOST_TIMES = 2.0

# What share of all refusals a part may get.
_SHARES = (0.97, 0.8, 0.6)

# Bad luck of days ago must not outweigh what happens now.
_LOWEST = -4.0

# Parts that are remembered; where there are more, those not asked for longest are
# forgotten.
_MOST_PARTS = 200


class Part(NamedTuple):
    """Pages whose path begins with that segment, or whose query has that parameter."""

    kind: str
    value: str


SEGMENT = "segment"
PARAMETER = "parameter"


class Found(NamedTuple):
    """``part`` has got ``refused`` of ``all_refused`` refusals, and was ``asked`` for
    so often among ``all_asked`` requests."""

    part: Part
    refused: int
    all_refused: int
    asked: int
    all_asked: int


class PartEvidence:
    """Of one slot. Each page belongs to several parts."""

    __slots__ = (
        "_again",
        "_around",
        "_asked",
        "_evidence",
        "_refused",
        "_times",
        "_total",
    )

    def __init__(self) -> None:
        self._around: deque[tuple[Part, ...]] = deque(maxlen=_AROUND)
        self._asked: dict[Part, int] = {}
        # How many of those followed another one of the same part.
        self._again: Counter[Part] = Counter()
        self._total = 0
        self._refused: Counter[Part] = Counter()
        self._times = 0
        # Of each part that was refused, the logarithms of the likelihood ratios.
        self._evidence: dict[Part, list[float]] = {}

    @property
    def asked(self) -> Mapping[Part, int]:
        """How many requests were for pages of each part."""
        return self._asked

    @property
    def total(self) -> int:
        return self._total

    def kept_once(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Return those of the last request if they are equal: most hosts have few."""
        before = self._around[-1] if self._around else ()
        return before if parts == before else parts

    def served(self, parts: tuple[Part, ...]) -> None:
        self._add(parts)

    def refused(self, parts: tuple[Part, ...], history: History) -> Found | None:
        """Return the part that the refusals fall on, once that is certain."""
        self._add(parts)
        self._times += 1
        for part in parts:
            if part in self._asked:  # not forgotten to make room for another
                self._refused[part] += 1
                self._evidence.setdefault(part, [0.0] * len(_SHARES))
        around = Counter([part for each in self._around for part in each])
        before = self._around[-2] if len(self._around) > 1 else ()
        for part, ratios in self._evidence.items():
            by_chance = around[part] / len(self._around)
            if part in parts and part in before:
                by_chance = max(by_chance, self._often_again(part))
            for nth, share in enumerate(_SHARES):
                if share > by_chance:  # else it would get fewer than by chance
                    ratios[nth] += _log_ratio(part in parts, share, by_chance)
                    ratios[nth] = max(_LOWEST, ratios[nth])
        return self._certain(history)

    def _often_again(self, part: Part) -> float:
        """How often a page of that part follows another one of it."""
        return (1 + self._again[part]) / (_ONCE_IN + self._asked[part])

    def _add(self, parts: tuple[Part, ...]) -> None:
        before = self._around[-1] if self._around else ()
        self._around.append(parts)
        self._total += 1
        for part in parts:
            self._asked[part] = self._asked.pop(part, 0) + 1
            if part in before:
                self._again[part] += 1
        while len(self._asked) > _MOST_PARTS:
            part = next(iter(self._asked))
            del self._asked[part]
            self._evidence.pop(part, None)
            self._refused.pop(part, None)
            self._again.pop(part, None)

    def _certain(self, history: History) -> Found | None:
        most = self._total - _LEAST_REST
        weights = [
            (_log_mean(ratios), part)
            for part, ratios in self._evidence.items()
            if _LEAST <= self._asked[part] <= most
        ]
        if not weights:
            return None
        weight, part = max(weights, key=lambda each: each[0])
        bound = _BOUND + math.log(len(self._asked))
        most_explained = min(_MOST_TIMES * weight, _MOST_EXPLAINED)
        if weight + most_explained < bound:
            return None
        if weight < bound:
            explained = history.evidence_for(part)
            if weight + min(explained, most_explained) < bound:
                return None
        asked, refused = self._asked[part], self._refused[part]
        return Found(part, refused, self._times, asked, self._total)


def _log_ratio(is_in: bool, share: float, by_chance: float) -> float:
    """Return how much more likely that is if the part gets that share of refusals."""
    if is_in:
        return math.log(share / by_chance)
    return math.log((1 - share) / max(1 - by_chance, 1 / _AROUND))


def _log_mean(logarithms: list[float]) -> float:
    most = max(logarithms)
    total = sum(math.exp(each - most) for each in logarithms)
    return most + math.log(total / len(logarithms))
