"""The speed and the hours that the text of a robots.txt asks for."""

from __future__ import annotations

import math
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


class Wishes(NamedTuple):
    """``delay`` is the longer of Crawl-delay and Request-rate, as seconds per
    request, ``hours`` is the Visit-time.

    A Request-rate for some hours only holds all day: that is the polite side.
    """

    delay: float | None
    hours: Hours | None

    @classmethod
    def read(cls, text: str, agent: str) -> Wishes:
        rules = Protego.parse(text)
        return cls(_delay(rules, agent), _hours(rules, agent))


def first_nonsense(text: str) -> str | None:
    """Return the first line about speed or hours that says nothing, whoever it is
    for."""
    for match in islice(_LINE.finditer(text), _MAX_LINES):
        line = match.group().strip()
        if Wishes.read(f"User-agent: *\n{line}", "*") == (None, None):
            return line
    return None


def _delay(rules: Protego, agent: str) -> float | None:
    rate = rules.request_rate(agent)
    delays = [rules.crawl_delay(agent)]
    if rate is not None and rate.requests > 0:
        with suppress(OverflowError):  # a number of hundreds of digits
            delays.append(rate.seconds / rate.requests)
    # Older releases of Protego let nan, inf and negative numbers through.
    return max((d for d in delays if d is not None and 0 <= d < math.inf), default=None)


def _hours(rules: Protego, agent: str) -> Hours | None:
    visit = rules.visit_time(agent)
    if visit is None:
        return None
    return Hours(_seconds(visit.start_time), _seconds(visit.end_time))


def _seconds(of_day: time) -> int:
    return 3600 * of_day.hour + 60 * of_day.minute
