"""What the user allows a governor to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """Rates are requests per second, times are seconds."""

    start_rate: float = 1.0
    min_rate: float = 0.1
    max_rate: float = 10.0
    decrease_factor: float = 0.5
    raise_after: int = 10
    backoff_base: float = 5.0
    backoff_max: float = 300.0
    longest_pause: float = 3600.0
    adaptive: bool = True

    def within(self, rate: float) -> float:
        return max(self.min_rate, min(rate, self.max_rate))
