"""What a host says is left of a quota."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Quota:
    """``remaining`` requests until ``reset`` seconds from now; of ``limit`` in every
    ``window`` seconds, where that is stated. Another ``name`` is another quota."""

    remaining: float
    reset: float
    limit: float | None = None
    window: float | None = None
    name: str = field(default="", compare=False)

    @property
    def sustained(self) -> float | None:
        if self.limit is None or self.window is None:
            return None
        return self.limit / self.window

    @property
    def spread(self) -> float:
        """What is left, spread over the time to the reset."""
        return self.remaining / self.reset if self.reset > 0 else math.inf

    @property
    def strictest(self) -> float:
        """How many requests per second it allows, now and for long."""
        return min(self.spread, self.sustained or math.inf)
