"""What one finished download tells about the host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_politeness.core.quota import Quota


class Verdict(Enum):
    """``BUSY`` is a refusal that has nothing to do with our rate, such as that of a
    wiki whose database lags behind: we wait, and go on at the same rate.
    ``UNREACHABLE`` is a connection that was refused or cut, or a gateway that found
    nobody behind it."""

    SERVED = "served"
    REFUSED = "refused"
    BUSY = "busy"
    TIMED_OUT = "timed out"
    UNREACHABLE = "unreachable"
    FAILED = "failed"
    IGNORED = "not the host's fault"

    @property
    def is_overload(self) -> bool:
        return self in (Verdict.REFUSED, Verdict.TIMED_OUT)

    @property
    def is_refusal(self) -> bool:
        """Tell whether the host has said that it wants to be asked again later."""
        return self in (Verdict.REFUSED, Verdict.BUSY)

    @property
    def may_be_block(self) -> bool:
        """Tell whether several in a row mean that the host is down, or shuts us out."""
        return self in (Verdict.UNREACHABLE, Verdict.TIMED_OUT)

    @property
    def calls_for_silence(self) -> bool:
        return self.is_overload or self.is_refusal


# The reason of a refusal that says what it means. A 503 may mean anything.
TOO_MANY_REQUESTS = "429"


@dataclass(frozen=True, slots=True)
class Outcome:
    """``wait`` is how long the host asked for silence, in seconds from now, ``quota``
    what it said about how much is left. ``is_timely`` says that what it took was the
    host's doing, and not that of a crawler with too much to do. ``is_block`` says that
    it is one of a row of failures that is no accident."""

    verdict: Verdict
    reason: str = ""
    wait: float | None = None
    quota: Quota | None = None
    is_timely: bool = True
    is_block: bool = False


@dataclass(frozen=True, slots=True)
class Permit:
    """One request was let through; ``beside`` so many were then under way with it,
    itself included. ``rate`` is the one it was sent at, where the crawl kept up with
    what its pace or robots.txt allowed.

    It ended a silence if it ``resumed`` a slot that was paused or held.

    ``paced`` says that the pace is what had held it back: only then does a success
    tell that the host would stand a higher rate. ``late`` are the seconds since it
    might have gone, for all that this slot knows. ``cuts`` is how often the rate had
    been cut before it was sent, where several processes share that. It took the last
    place of its slot if that was ``full`` then.
    """

    sent_at: float
    paced: bool
    beside: int = 1
    rate: float | None = None
    resumed: bool = False
    late: float = 0.0
    cuts: int = 0
    full: bool = False
