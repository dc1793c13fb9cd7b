"""What was learned of a host, in a form that can be kept, and how it ages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# After a day, half of what a rate is above the start rate is still believed: limits
# change with deployments, not with the hour.
_HALF_LIFE = 86400.0

# Nothing that a crawler learns is larger; a larger number is damage.
_LARGEST = 1e6


@dataclass(frozen=True, slots=True)
class Learned:
    """``ceiling`` in requests per second, ``burst`` in requests, ``concurrency`` in
    requests at once."""

    ceiling: float
    burst: float
    concurrency: int

    def to_dict(self) -> dict[str, float]:
        return {
            "ceiling": self.ceiling,
            "burst": self.burst,
            "concurrency": self.concurrency,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Learned:
        """Raise ValueError for anything that ``to_dict`` cannot have written."""
        ceiling, burst, concurrency = (
            _number(values, name) for name in ("ceiling", "burst", "concurrency")
        )
        if ceiling <= 0 or burst < 0 or concurrency < 1:
            raise ValueError(f"out of range: {dict(values)!r}")
        return cls(ceiling, burst, int(concurrency))

    def aged(self, seconds: float, start_rate: float) -> Learned:
        """Return what is left of it after so many seconds: a fast host is believed to
        be fast a little less each day, a slow one to be slow for good."""
        trust = 0.5 ** (max(0.0, seconds) / _HALF_LIFE)
        above = max(0.0, self.ceiling - start_rate)
        return replace(self, ceiling=self.ceiling - above * (1 - trust))


def _number(values: Mapping[str, object], name: str) -> float:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is not a number: {value!r}")
    if not -_LARGEST <= value <= _LARGEST:  # nan is not, either
        raise ValueError(f"{name} is out of range: {value!r}")
    return float(value)
