"""What was learned of a host, in a form that can be kept, and how it ages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# After a day, half of what a rate is above the start rate is still believed: limits
# change with deployments, not with the hour.
_HALF_LIFE = 86400.0
_OLDEST = 60 * _HALF_LIFE

# Nothing that a crawler learns is larger; a larger number is damage.
_LARGEST = 1e6


@dataclass(frozen=True, slots=True)
class Learned:
    """``ceiling`` in requests per second, ``burst`` in requests, ``concurrency`` in
    requests at once. A limit that was not found is None."""

    ceiling: float | None
    burst: float
    concurrency: int | None

    def to_dict(self) -> dict[str, float]:
        values = {
            "ceiling": self.ceiling,
            "burst": self.burst,
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
        burst = _number(values, "burst")
        concurrency = _optional(values, "concurrency")
        if ceiling is None and concurrency is None:
            raise ValueError(f"no limit in it: {dict(values)!r:.80}")
        too_low = (
            ceiling is not None and ceiling <= 0,
            concurrency is not None and concurrency < 1,
            burst < 0,
        )
        if any(too_low):
            raise ValueError(f"out of range: {dict(values)!r:.80}")
        return cls(ceiling, burst, None if concurrency is None else int(concurrency))

    def aged(self, seconds: float, start_rate: float) -> Learned:
        """Return what is left of it after so many seconds: a fast host is believed to
        be fast a little less each day, a slow one to be slow for good."""
        if self.ceiling is None:
            return self
        # A clock that was wrong makes nothing younger than new, or older than old.
        age = max(0.0, min(seconds, _OLDEST))
        trust = 0.5 ** (age / _HALF_LIFE)
        above = max(0.0, self.ceiling - start_rate)
        return replace(self, ceiling=self.ceiling - above * (1 - trust))


def _optional(values: Mapping[str, object], name: str) -> float | None:
    return None if values.get(name) is None else _number(values, name)


def _number(values: Mapping[str, object], name: str) -> float:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is not a number: {value!r:.80}")
    if not -_LARGEST <= value <= _LARGEST:  # nan is not, either
        raise ValueError(f"{name} is out of range: {value!r:.80}")
    return float(value)
