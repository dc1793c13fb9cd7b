"""What was learned of a host, in a form that can be kept, and how it ages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# After a day, half of it is still believed: limits change with deployments, not with
# the hour.
_HALF_LIFE = 86400.0
_OLDEST = 60 * _HALF_LIFE

# Nothing that a crawler learns is larger; a larger number is damage.
_LARGEST = 1e6


@dataclass(frozen=True, slots=True)
class Learned:
    """``ceiling`` in requests per second, which the limit differs from by a factor of
    e^``spread`` at most; without a spread, no limit was found up to there.
    ``concurrency`` in requests at once; None if no limit was found. ``trust`` is what
    is left of all that after some time, from 0 to 1."""

    ceiling: float | None
    spread: float | None
    concurrency: int | None
    trust: float = 1.0

    def to_dict(self) -> dict[str, float]:
        values = {
            "ceiling": self.ceiling,
            "spread": self.spread,
            "concurrency": self.concurrency,
        }
        return {
            name: min(value, _LARGEST)
            for name, value in values.items()
            if value is not None
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Learned:
        """Raise ValueError for anything that ``to_dict`` cannot have written."""
        ceiling = _optional(values, "ceiling")
        spread = _optional(values, "spread")
        concurrency = _optional(values, "concurrency")
        if ceiling is None and concurrency is None:
            raise ValueError(f"no limit in it: {dict(values)!r:.80}")
        too_low = (
            ceiling is not None and ceiling <= 0,
            concurrency is not None and concurrency < 1,
            spread is not None and spread < 0,
        )
        if any(too_low):
            raise ValueError(f"out of range: {dict(values)!r:.80}")
        return cls(ceiling, spread, None if concurrency is None else int(concurrency))

    def aged(self, seconds: float, start_rate: float) -> Learned:
        """Return what is left of it after so many seconds: a limit is believed in a
        little less each day, and so is a rate that was survived."""
        # A clock that was wrong makes nothing younger than new, or older than old.
        age = max(0.0, min(seconds, _OLDEST))
        trust = 0.5 ** (age / _HALF_LIFE)
        if self.ceiling is None or self.spread is not None:
            return replace(self, trust=trust)
        above = max(0.0, self.ceiling - start_rate)
        return replace(self, ceiling=self.ceiling - above * (1 - trust), trust=trust)


def _optional(values: Mapping[str, object], name: str) -> float | None:
    return None if values.get(name) is None else _number(values, name)


def _number(values: Mapping[str, object], name: str) -> float:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is not a number: {value!r:.80}")
    if not -_LARGEST <= value <= _LARGEST:  # nan is not, either
        raise ValueError(f"{name} is out of range: {value!r:.80}")
    return float(value)
