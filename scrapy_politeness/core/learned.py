"""What was learned of a host, in a form that can be kept, and how it ages."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# After a day, half of it is still believed: limits change with deployments, not with
# the hour.
_HALF_LIFE = 86400.0
_OLDEST = 60 * _HALF_LIFE

# With the lowest value of each; a number above the largest is damage, too.
_SAVED = {"ceiling": math.ulp(0.0), "spread": 0.0, "concurrency": 1.0}
_LARGEST = 1e6


@dataclass(frozen=True, slots=True)
class Learned:
    """``ceiling`` in requests per second, within a factor of e^``spread`` of the limit;
    without a spread, no limit was found up to there. ``concurrency`` in requests at
    once; None if no limit was found. ``trust``, from 0 to 1, falls with age."""

    ceiling: float | None
    spread: float | None
    concurrency: int | None
    trust: float = 1.0

    def to_dict(self) -> dict[str, float]:
        values = ((name, getattr(self, name)) for name in _SAVED)
        return {n: min(value, _LARGEST) for n, value in values if value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Learned:
        """Raise ValueError for anything that ``to_dict`` cannot have written."""
        ceiling, spread, concurrency = (_read(values, name) for name in _SAVED)
        if ceiling is None and concurrency is None:
            raise ValueError(f"no limit in it: {dict(values)!r:.80}")
        return cls(ceiling, spread, None if concurrency is None else int(concurrency))

    def aged(self, seconds: float, start_rate: float) -> Learned:
        """Return what is still believed after that time: both a limit and a rate that
        was survived a little less each day."""
        # A wrong clock makes nothing younger than new, or older than old.
        age = max(0.0, min(seconds, _OLDEST))
        trust = 0.5 ** (age / _HALF_LIFE)
        if self.ceiling is None or self.spread is not None:
            return replace(self, trust=trust)
        above = max(0.0, self.ceiling - start_rate)
        return replace(self, ceiling=self.ceiling - above * (1 - trust), trust=trust)


def _read(values: Mapping[str, object], name: str) -> float | None:
    value = values.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is not a number: {value!r:.80}")
    if not _SAVED[name] <= value <= _LARGEST:  # nan is not, either
        raise ValueError(f"{name} is out of range: {value!r:.80}")
    return float(value)
