"""The speed and the hours that a robots.txt asks for."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from protego import Protego

from scrapy_politeness.core.hours import Hours

if TYPE_CHECKING:
    from datetime import time

_LINE = re.compile(
    r"^[ \t]*(?:crawl-delay|request-rate|visit-time)[ \t]*:[^#\n]*", re.I | re.M
)
# Each is parsed on its own, in search of nonsense.
_MAX_LINES = 100

# Seconds. Nobody means more than a year.
_LONGEST_DELAY = 366 * 86400.0

# RFC 9309 asks crawlers to read at least 500 KiB, and lets them stop there.
MAX_SIZE = 500 * 1024


def shortened(body: bytes) -> bytes:
    """Return the part that is read: whole lines, since half of one may mean something
    else."""
    if len(body) <= MAX_SIZE:
        return body
    lines, end, _ = body[:MAX_SIZE].rpartition(b"\n")
    return lines + end


def readable(body: bytes) -> str:
    # Some editors begin a file with a byte order mark.
    return shortened(body).decode("utf-8-sig", errors="replace")


class Directives(NamedTuple):
    """Crawl-delay in seconds, Request-rate as seconds per request, Visit-time.

    A Request-rate for some hours only is kept all day, to be on the safe side.
    """

    crawl_delay: float | None
    request_rate: float | None
    hours: Hours | None

    @classmethod
    def read(cls, text: str, agent: str) -> Directives:
        rules = Protego.parse(text)
        return cls(
            _sane(rules.crawl_delay(agent)),
            _sane(_seconds_per_request(rules, agent)),
            _hours(rules, agent),
        )

    @property
    def delay(self) -> float | None:
        """The longer one."""
        delays = (self.crawl_delay, self.request_rate)
        return max((d for d in delays if d is not None), default=None)

    def delay_within(self, longest: float | None) -> float:
        """The same, reduced to the ``longest`` that the user accepts."""
        delay = self.delay or 0.0
        return delay if longest is None else min(delay, longest)


def first_nonsense(text: str) -> str | None:
    """Return the first line about speed or hours that cannot be understood, whichever
    user agent it is for."""
    for match in islice(_LINE.finditer(text), _MAX_LINES):
        line = match.group().strip()
        if Directives.read(f"User-agent: *\n{line}", "*") == (None, None, None):
            return line
    return None


def _sane(delay: float | None) -> float | None:
    # Older releases of Protego let nan, inf and negative numbers through.
    return delay if delay is not None and 0 <= delay <= _LONGEST_DELAY else None


def _seconds_per_request(rules: Protego, agent: str) -> float | None:
    rate = rules.request_rate(agent)
    if rate is not None and rate.requests > 0:
        with suppress(OverflowError):  # a number of hundreds of digits
            return float(rate.seconds / rate.requests)
    return None


def _hours(rules: Protego, agent: str) -> Hours | None:
    visit = rules.visit_time(agent)
    if visit is None:
        return None
    return Hours(_seconds(visit.start_time), _seconds(visit.end_time))


def _seconds(of_day: time) -> int:
    return 3600 * of_day.hour + 60 * of_day.minute
