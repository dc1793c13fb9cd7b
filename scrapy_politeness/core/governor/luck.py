"""Bad luck: refusals unrelated to the rate, as the cells of a belief count them.

Each cell counts the refusals that its limiter does not explain. Their share of all
requests is how likely the cell finds the next one: the cell without a limit explains a
host that fails one request in a hundred as well as it can be explained.

Refusals that speak of the rate (a 429, or one that says how long to wait) are counted
apart from the others. A limiter answers in one way, failures in another; so where a
host has both, a 503 says little about its limit, and a 429 says all the more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_politeness.core.snapshot import (
    amount,
    listing,
    positive,
    row,
    row_of,
    whole,
)

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence

    Rows = list[array[float]]
    Chances = list[list[tuple[float, float]]]

# Before anything is known, bad luck refuses the first number of requests out of the
# second. Evidence of it fades when it covers more requests than the third.
_REFUSED = 0.5
_REQUESTS = 50.0
_MOST_REQUESTS = 1500.0

# No host is believed to refuse more than this share of the requests for no reason: one
# that does so has a limit.
_MOST = 0.3

# Luck changes, too: from one refusal to the next, however many are served, the evidence
# against a cell's bad luck is at most this.
_MOST_PAID = 5.0

# Before anything is known, this share of the refusals by bad luck speaks of the rate.
# And a host that does so is taken at its word: what was often bad luck is believed to
# be so again only by the second factor.
_SAID = 0.3
_MEANT = 0.4

# How many refusals by a limit have spoken of the rate, and how many have not, before
# anything is known: most limiters do so. A limiter answers in one way, so a single
# refusal tells much about the next. The counts fade when there are more than the last
# number.
_LIMIT_SAID = 0.5
_LIMIT_SILENT = 0.25
_MOST_COUNTED = 60.0
# Halved for weeks, a count would become zero.
_LEAST_COUNTED = 1e-6

# A limit that is reached refuses nearly always.
_CERTAIN = 0.95


class Luck:
    """``rows`` times ``cells`` counts, in step with the evidence of a belief."""

    __slots__ = (
        "_counts",
        "_counts_said",
        "_limit_said",
        "_limit_silent",
        "_requests",
        "_since_refusal",
        "_unpaid",
    )

    def __init__(self, rows: int, cells: int) -> None:
        # All refusals by bad luck, and those of them that speak of the rate.
        self._counts = [row([0.0] * cells) for _ in range(rows)]
        self._counts_said = [row([0.0] * cells) for _ in range(rows)]
        self._requests = 0.0
        self._limit_said = 0.0
        self._limit_silent = _LIMIT_SILENT
        # Requests served since the last refusal, and those that are not accounted for.
        self._since_refusal = 0
        self._unpaid = 0

    def shape(self) -> dict[str, object]:
        cells = row_of(len(self._counts[0]), amount)
        rows = listing(*[cells] * len(self._counts))
        return {
            "_counts": rows,
            "_counts_said": rows,
            "_requests": amount,
            "_limit_said": amount,
            "_limit_silent": positive,
            "_since_refusal": whole,
            "_unpaid": whole,
        }

    def served(self, count: int) -> None:
        self._requests += count
        self._unpaid += count

    def pay(self, evidence: Rows) -> Rows:
        """Each success is evidence against bad luck: return what is left of it."""
        unpaid, self._unpaid = self._unpaid, 0
        if not unpaid:
            return evidence
        total = self._requests + _REQUESTS
        before = self._since_refusal / total
        self._since_refusal += unpaid
        after = self._since_refusal / total
        left = [
            row(
                value
                - min(after * (_REFUSED + count), _MOST_PAID)
                + min(before * (_REFUSED + count), _MOST_PAID)
                for value, count in zip(cells, counts, strict=True)
            )
            for cells, counts in zip(evidence, self._counts, strict=True)
        ]
        if self._requests > _MOST_REQUESTS:
            self._requests /= 2
            self._counts, self._counts_said = (
                [row(count / 2 for count in cells) for cells in rows]
                for rows in (self._counts, self._counts_said)
            )
        return left

    def chances(
        self, full: Sequence[Sequence[float]], otherwise: float, said: bool | None
    ) -> Chances:
        """Of each cell, how likely a refusal is that the limit has no part in, and how
        likely any is. ``full`` is how likely the limit is reached, ``otherwise`` how
        likely another known reason is. ``said`` is for one that speaks of the rate or
        does not; None is for both together."""
        total = self._requests + _REQUESTS + 1
        by_limit = _CERTAIN * self._share_of_limit(said)
        chances: Chances = []
        for of_row, counts, counts_said in zip(
            full, self._counts, self._counts_said, strict=True
        ):
            chances.append([])
            unlucky = _unlucky_counts(counts, counts_said, said)
            for share, times in zip(of_row, unlucky, strict=True):
                luck = min(times / total, _MOST)
                luck += (1 - luck) * otherwise
                chances[-1].append((luck, luck + (1 - luck) * by_limit * share))
        return chances

    def refused(self, chances: Chances, said: bool, cause: float) -> None:
        """There was such a refusal, with these chances of it, and ``cause`` is how
        likely it was a limit's."""
        self._requests += 1
        self._since_refusal = 0
        total = self._requests + _REQUESTS
        for counts, counts_said, of_row in zip(
            self._counts, self._counts_said, chances, strict=True
        ):
            unlucky = _unlucky_counts(counts, counts_said, said)
            for cell, (times, (_, chance)) in enumerate(
                zip(unlucky, of_row, strict=True)
            ):
                share = min(times / total, _MOST) / chance
                counts[cell] += share
                if said:
                    counts_said[cell] += share
        if said:
            self._limit_said += cause
        else:
            self._limit_silent += cause
        if self._limit_said + self._limit_silent > _MOST_COUNTED:
            self._limit_said /= 2
            self._limit_silent = max(self._limit_silent / 2, _LEAST_COUNTED)

    @property
    def by_limit(self) -> float:
        """How many refusals lately were a limit's, it seems."""
        return self._limit_said + self._limit_silent - _LIMIT_SILENT

    def times_and_share(
        self, weights: Sequence[Sequence[float]]
    ) -> tuple[float, float]:
        """How many refusals were bad luck, where the cells are worth that much; and of
        all requests, those refused for no reason."""
        found = total = 0.0
        for of_row, counts in zip(weights, self._counts, strict=True):
            for weight, count in zip(of_row, counts, strict=True):
                total += weight
                found += weight * count
        times = found / total
        # What others have written down may be more than there were requests.
        return times, min(1.0, (_REFUSED + times) / (_REQUESTS + self._requests))

    def move(self, moved: Callable[[Rows], Rows]) -> None:
        self._counts = moved(self._counts)
        self._counts_said = moved(self._counts_said)

    def _share_of_limit(self, said: bool | None) -> float:
        """Of the refusals by a limit, those that speak of the rate, or do not."""
        if said is None:
            return 1.0
        counted = self._limit_said if said else self._limit_silent
        prior = _LIMIT_SAID if said else 0.0
        return (counted + prior) / (self._limit_said + self._limit_silent + prior)


def _unlucky_counts(
    counts: Sequence[float], counts_said: Sequence[float], said: bool | None
) -> list[float]:
    """How many refusals of that kind, or of any, each cell finds to be bad luck."""
    if said is None:
        return [_REFUSED + count for count in counts]
    if said:
        return [_SAID * _REFUSED + _MEANT * count for count in counts_said]
    return [
        (1 - _SAID) * _REFUSED + max(0.0, count - count_said)
        for count, count_said in zip(counts, counts_said, strict=True)
    ]
