"""When a robots.txt is requested again."""

from __future__ import annotations

from dataclasses import dataclass

# RFC 9309, 2.4: a copy should not be used for longer.
USE_FOR = 86400.0

# Times the base of the gaps: ten minutes by default. A deployment or a restart is over
# by then.
_PATIENCE = 120

# Each of a few attempts may take an hour where the host asks for that.
_FEWEST = 3

# Where the crawl may go on without it, a single failure may still be an accident.
_FEWEST_OPTIONAL = 2

# Seconds between two attempts while the crawl goes on, or has no hope.
_LONGEST_GAP = 3600.0

# 2.0**1024 would overflow.
_MOST_DOUBLINGS = 64


@dataclass(frozen=True, slots=True)
class Schedule:
    """Gaps are ``base`` * 2^k seconds, each at most ``longest`` while requests wait."""

    base: float
    longest: float

    @property
    def patience(self) -> float:
        """For how long requests wait for an unreachable robots.txt."""
        return _PATIENCE * self.base

    def gap(self, failures: int) -> float:
        return min(self._doubled(failures), self.longest)

    def background_gap(self, failures: int) -> float:
        """The same where nothing waits."""
        return min(self._doubled(failures), _LONGEST_GAP)

    def is_hopeless(
        self, failures: int, seconds: float, *, was_sent: bool, is_required: bool
    ) -> bool:
        """Tell whether requests have waited long enough. A host that has no address,
        or whose proxy is down, is there soon or never."""
        if not is_required:
            return failures >= _FEWEST_OPTIONAL or not was_sent
        return failures >= _FEWEST and (seconds >= self.patience or not was_sent)

    def _doubled(self, failures: int) -> float:
        return self.base * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)
