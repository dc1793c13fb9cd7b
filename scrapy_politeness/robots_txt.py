"""The speed that the text of a robots.txt asks for."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from itertools import islice

from protego import Protego

_SPEED_LINE = re.compile(
    r"^[ \t]*(?:crawl-delay|request-rate)[ \t]*:[^#\n]*", re.I | re.M
)
# Each is parsed on its own, in search of nonsense.
_MAX_SPEED_LINES = 100


def asked_delay(text: str, agent: str) -> float | None:
    """Return the longer of Crawl-delay and Request-rate, as seconds per request."""
    rules = Protego.parse(text)
    rate = rules.request_rate(agent)
    delays = [rules.crawl_delay(agent)]
    if rate is not None and rate.requests > 0:
        with suppress(OverflowError):  # a number of hundreds of digits
            delays.append(rate.seconds / rate.requests)
    # Older releases of Protego let nan, inf and negative numbers through.
    return max((d for d in delays if d is not None and 0 <= d < math.inf), default=None)


def first_nonsense(text: str) -> str | None:
    """Return the first line about speed that says nothing, whoever it is for."""
    for match in islice(_SPEED_LINE.finditer(text), _MAX_SPEED_LINES):
        line = match.group().strip()
        if asked_delay(f"User-agent: *\n{line}", "*") is None:
            return line
    return None
