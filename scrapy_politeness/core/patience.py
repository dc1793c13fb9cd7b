"""How long the governor stays at a rate, and how far it goes with the next step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scrapy_politeness.core.ceiling import Gap
from scrapy_politeness.core.snapshot import flag, number, positive

if TYPE_CHECKING:
    from scrapy_politeness.core.ceiling import Ceiling

# Search stays a second at each level: a host that counts by the second needs that long
# to refuse.
SEARCH_SECONDS = 1.0

# The first step of a probe: above a ceiling that is only guessed, and above one that
# was measured. Below the smallest, chance decides which request is refused.
_BOLD_STEP = 0.15
_CAREFUL_STEP = 0.05
_SMALLEST_STEP = 0.015
_LARGEST_STEP = 0.25

# How long a level must be survived, whatever the burst is believed to be: so long that
# a queue which grows slowly shows in the latency.
_LEVEL_SECONDS = 10.0
_LEVEL_SUCCESSES = 20
_MOST_LEVEL_SUCCESSES = 200
_MOST_LEVEL_SECONDS = 60.0

# Who stays below a limit that may be anywhere in the gap loses half of the gap, who
# tries and fails loses the silence: it is time to try when the first has cost as much
# as the second would. That is after 2 silences / gap.
_PATIENCE = 2.0

# The first hold, where a failure costs no silence or an unknown one, and the shortest.
# The longest is so many times the silence: that makes failed probes cost about one
# per cent of the time. But a limit that has risen must be found within minutes.
_HOLD = 30.0
_SHORTEST_HOLD = 5.0
_HOLD_PER_SILENCE = 80.0
_LONGEST_HOLDS = (200.0, 600.0)
# A hold counted in successes: no slow host is probed with more than one request in 60.
_FEWEST_HOLD_SUCCESSES = 60
_MOST_HOLD_SUCCESSES = 240


class Patience:
    """``silence`` is what the last refusal cost in seconds, 0 where overload was
    noticed before it. While ``climbing``, the limit is believed to be far away."""

    __slots__ = ("_hold", "_step", "climbing", "silence")

    def __init__(self, silence: float) -> None:
        self.silence = silence
        self.climbing = False
        # Seconds, 0 before the first one.
        self._hold = 0.0
        self._step = _BOLD_STEP

    def shape(self) -> dict[str, object]:
        return {
            "silence": number,
            "climbing": flag,
            "_hold": number,
            "_step": positive,
        }

    def be_careful(self) -> None:
        """The ceiling is measured, or known from elsewhere."""
        self._hold, self._step = _HOLD, _CAREFUL_STEP

    def start_anew(self) -> None:
        self.climbing = False
        self._hold, self._step = 0.0, _BOLD_STEP

    def hold_is_over(self, seconds: float, successes: int) -> bool:
        least, enough = SEARCH_SECONDS, float(_LEVEL_SUCCESSES)
        if self._hold:
            least = 0.0 if self.climbing else self._hold
            most = min(2 * self._hold, _MOST_HOLD_SUCCESSES)
            enough = max(_FEWEST_HOLD_SUCCESSES, most)
        if seconds < least or successes < enough:
            return False
        self._hold = self._hold or _HOLD
        return True

    def has_survived(
        self, ceiling: Ceiling, rate: float, seconds: float, successes: int
    ) -> bool:
        """Tell whether a level was stood for so long that no burst can have hidden the
        refusal."""
        above = max(rate / ceiling.value - 1, _SMALLEST_STEP)
        most = max(_MOST_LEVEL_SUCCESSES, _MOST_LEVEL_SECONDS * rate)
        enough = max(_LEVEL_SUCCESSES, min(ceiling.burst / above, most))
        least = _LEVEL_SECONDS
        if self.climbing:
            least = max(SEARCH_SECONDS, self._before_next_level(ceiling))
        return seconds >= least and successes >= enough

    def survived(self, ceiling: Ceiling, *, passed_roof: bool) -> bool:
        """A level was survived; return whether that was the last one for now."""
        if passed_roof and self.silence:
            self.climbing = True
        self._hold = max(self._hold, _HOLD)
        self._step = min(2 * self._step, _LARGEST_STEP)
        if not self.climbing or ceiling.gap is not Gap.CLOSE:
            return False
        self.climbing = False
        self._hold = max(_HOLD, self._before_next_level(ceiling))
        self._step = _CAREFUL_STEP
        return True

    def next_step(self, ceiling: Ceiling, level: float) -> float:
        """Return by which share to go above that level."""
        gap = ceiling.roof / level - 1
        # After two careful steps that were survived in a row, the roof is in doubt.
        doubt = self._step >= 4 * _CAREFUL_STEP and not self.climbing
        halfway = gap if doubt and gap < _CAREFUL_STEP else math.sqrt(1 + gap) - 1
        return max(_SMALLEST_STEP, min(halfway, self._step))

    def probe_failed(self, ceiling: Ceiling) -> None:
        self._step = _CAREFUL_STEP
        self.climbing = False
        if ceiling.gap is Gap.CLOSE:
            least, most = _LONGEST_HOLDS
            longest = max(least, min(_HOLD_PER_SILENCE * self.silence, most))
            self._hold = min(2 * self._hold, longest)
        else:
            hold = min(self._before_next_level(ceiling), _HOLD)
            self._hold = max(_SHORTEST_HOLD, hold)

    def timed_out(self) -> None:
        self._hold = _HOLD

    def refused_below(self, ceiling: Ceiling, *, measured: bool) -> None:
        """Refused although the ceiling was not exceeded; the new one is ``measured``
        or guessed."""
        if ceiling.gap is Gap.CLOSE:
            self._hold = max(self._hold, _HOLD)
        else:
            self._hold = _HOLD if measured or ceiling.gap is Gap.SOME else 0.0
        self._step = _CAREFUL_STEP if self._hold else _BOLD_STEP

    def _before_next_level(self, ceiling: Ceiling) -> float:
        gap = max(ceiling.roof / ceiling.value - 1, _SMALLEST_STEP)
        return _PATIENCE * self.silence / gap if self.silence else _HOLD
