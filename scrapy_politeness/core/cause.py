"""Why a request did not go earlier."""

from __future__ import annotations

from enum import Enum


class Cause(Enum):
    """``START`` is the search for a host's limit, which begins at the start rate;
    ``ANSWERS`` are those that a full slot waited for; ``CRAWLER`` is the rest: a full
    downloader, a busy process."""

    HOST = "the host"
    ROBOTS = "robots.txt"
    SETTINGS = "your settings"
    START = "the careful start"
    SPIDER = "the spider"
    ANSWERS = "slow responses"
    CRAWLER = "a busy crawler"

    @property
    def is_politeness(self) -> bool:
        """Tell whether we held the request back, and not something else."""
        return self not in (Cause.ANSWERS, Cause.CRAWLER)
