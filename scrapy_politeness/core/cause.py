"""Why a request was not sent earlier, and why a slot is paused."""

from __future__ import annotations

from enum import Enum


class Cause(Enum):
    """``START`` is the search for a host's limit, which begins at the start rate;
    a full slot waits for ``ANSWERS``; ``CRAWLER`` is the rest: a full downloader, a
    busy process."""

    # By identity, which needs no Python code: they are looked up for each request.
    __hash__ = object.__hash__

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


class Block(Enum):
    """``ROBOTS`` keeps requests in the queue until robots.txt is known; it does not
    stop what is at the gate, which robots.txt itself has to pass."""

    __hash__ = object.__hash__

    PAUSE = "the host asked for a pause"
    HOLD = "the spider holds it"
    HOURS = "outside the Visit-time of its robots.txt"
    ROBOTS = "its robots.txt is not known yet"
    UNWELCOME = "this crawler is not welcome"
    UNREACHABLE = "its robots.txt is unreachable"
