"""What one finished download says about the host."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from scrapy_politeness.core.quota import Quota


class Verdict(Enum):
    """``BUSY`` is a refusal whatever our rate, such as that of a wiki whose database
    lags behind: we wait, and go on at the same rate. After an ``is_refusal``, the host
    wants to be asked again later.

    ``UNREACHABLE`` is a connection that was refused or cut, or a gateway that could
    not reach the server. Several in a row ``may_be_block``: the host is down, or shuts
    us out. After ``UNWELCOME``, the host wants no more requests of ours at all."""

    is_overload: bool
    is_refusal: bool
    may_be_block: bool
    calls_for_pause: bool

    SERVED = "served"
    REFUSED = "refused"
    BUSY = "busy"
    TIMED_OUT = "timed out"
    UNREACHABLE = "unreachable"
    UNWELCOME = "not welcome"
    FAILED = "failed"
    IGNORED = "not the host's fault"

    def __init__(self, text: str) -> None:
        self.is_overload = text in ("refused", "timed out")
        self.is_refusal = text in ("refused", "busy")
        self.may_be_block = text in ("unreachable", "timed out")
        self.calls_for_pause = self.is_overload or self.is_refusal


# The reason of a refusal that says what it means. A 503 may mean anything.
TOO_MANY_REQUESTS = "429"


class Outcome(NamedTuple):
    """``wait`` is the pause that the host asked for, in seconds from now, ``quota``
    what it said about how much is left. ``is_timely`` says that the time it took was
    the host's doing, and not that of a busy crawler. ``is_block`` says that it is one
    of a row of failures that is no accident; ``is_repeated`` that the same page has
    failed before. ``is_page`` is False for redirects and robots.txt, which many a host
    serves to everyone. A refusal that ``names_rate`` says what it means; one that
    ``is_challenge`` may be meant for those who are too fast, or for all crawlers.
    ``may_be_wall`` is a bare 403, which means something only if it is one of many."""

    verdict: Verdict
    reason: str = ""
    wait: float | None = None
    quota: Quota | None = None
    is_timely: bool = True
    is_block: bool = False
    is_repeated: bool = False
    is_page: bool = True
    names_rate: bool = False
    is_challenge: bool = False
    may_be_wall: bool = False

    @property
    def speaks_of_rate(self) -> bool:
        """Tell whether the host says that it refuses because of the rate."""
        is_named = self.names_rate or self.reason.startswith(TOO_MANY_REQUESTS)
        is_spent = self.quota is not None and self.quota.remaining < 1
        return is_named or is_spent or self.wait is not None

    @property
    def is_cut(self) -> bool:
        """Tell whether a connection failed, which is not known to be a block."""
        return self.verdict is Verdict.UNREACHABLE and not self.is_block


class Permit(NamedTuple):
    """One request was let through, the ``beside``-th under way. ``rate`` is the one it
    was sent at, where the crawl kept up with what its pace or robots.txt allowed.

    It ended a pause if it ``resumed`` a slot that was paused or held.

    ``paced`` says that the pace is what had held it back: only then does a success
    mean that the host would stand a higher rate. ``late`` are the seconds since it
    might have been sent, as far as this slot knows. ``cuts`` is how often the rate had
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
