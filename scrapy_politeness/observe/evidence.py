"""How a host has responded at which rates: why a limit is believed in, or none."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_politeness.core.text import percent, rate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Rates are counted between 1 and 2, 2 and 5, 5 and 10, and so on. Slower and faster
# ones count as the slowest and the fastest.
_BOUNDS = tuple(
    float(f"{step}e{power}") for power in range(-4, 5) for step in (1, 2, 5)
)[:-1]

# Of the rates at which requests were sent, the highest tell the most.
_MOST_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """What became of requests that were sent at ``low`` to ``high`` per second."""

    low: float
    high: float
    served: int
    refused: int

    def __str__(self) -> str:
        count = self.served + self.refused
        return f"{self.refused:,} of {count:,} at {self.low:g} to {rate(self.high)}"


@dataclass(slots=True, eq=False)
class Responses:
    """Counts responses by the rate at which requests were really sent then, whatever
    was allowed."""

    # Served and refused, by the lower and upper bound of the rate.
    _counts: dict[tuple[float, float], list[int]] = field(default_factory=dict)
    _gap: float = 0.0
    # Those of the present rate, and the gaps for which it is that.
    _current: list[int] = field(default_factory=lambda: [0, 0])
    _shortest: float = 0.0
    _longest: float = 0.0

    def sent(self, seconds: float) -> None:
        """A request was sent, this long after the one before."""
        self._gap += (seconds - self._gap) / 4 if self._gap else seconds

    def settled(self, *, refused: bool) -> None:
        gap = self._gap
        if gap > 0:
            if not self._shortest < gap <= self._longest:
                low, high = _bounds(1 / gap)
                self._current = self._counts.setdefault((low, high), [0, 0])
                self._shortest, self._longest = 1 / high, 1 / low
            self._current[refused] += 1

    def add(self, other: Responses) -> None:
        for bounds, (served, refused) in other._counts.items():
            self._add(bounds, served, refused)

    def evidence(self, earlier: Sequence[Evidence] = ()) -> list[Evidence]:
        """Return all that is known, from the lowest rate to the highest."""
        counts = Responses()
        counts.add(self)
        for known in earlier:
            counts._add((known.low, known.high), known.served, known.refused)
        return [Evidence(*b, *c) for b, c in sorted(counts._counts.items())]

    def _add(self, bounds: tuple[float, float], served: int, refused: int) -> None:
        count = self._counts.setdefault(bounds, [0, 0])
        count[0] += served
        count[1] += refused


def _bounds(rate: float) -> tuple[float, float]:
    place = bisect_right(_BOUNDS, rate, 1, len(_BOUNDS) - 1)
    return _BOUNDS[place - 1], _BOUNDS[place]


def explain(figures: Mapping[str, float], evidence: Sequence[Evidence]) -> str:
    """Say what is believed of a host's limit, and why; "" if nothing is known."""
    if not evidence:
        return ""
    limit, luck = figures.get("ceiling"), figures.get("bad_luck")
    refused = sum(known.refused for known in evidence)
    shown = "; ".join(map(str, evidence[-_MOST_SHOWN:]))
    unlucky = f"about {percent(luck)} fail whatever the rate" if luck else ""
    if limit:
        belief = f"allows about {rate(limit)}" + (unlucky and f", and {unlucky}")
    elif unlucky:
        belief = f"{unlucky}; no limit found"
    elif refused:
        belief = "no limit known yet"
    else:
        served = sum(known.served for known in evidence)
        fastest = rate(evidence[-1].high)
        return f"no limit found: all {served:,} served, at up to {fastest}"
    return f"{belief}: refused {shown}"
