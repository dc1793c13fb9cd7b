"""The one timer that wakes the engine when a request may go."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.utils.asyncio import CallLaterResult


class Alarm:
    """Rings once, at the earliest time that it was set to since it last rang."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._at = math.inf
        self._timer: CallLaterResult | None = None

    def set(self, at: float) -> None:
        if at >= self._at:
            return
        self.cancel()
        self._at = at
        self._timer = call_later(max(0.0, at - time.monotonic()), self._due)

    def cancel(self) -> None:
        self._at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        self._at = math.inf
        self._ring()
