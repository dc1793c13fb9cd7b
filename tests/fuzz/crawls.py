"""A crawl that waits for answers, which a fuzzer makes up."""

from __future__ import annotations

import atexit
import math
import time
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.http import Response

from scrapy_politeness.http.classify import classify_response
from tests.support.ready import parts_of, ready_crawlers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scrapy_politeness.components.parts import Parts
    from scrapy_politeness.core.slot import Slot

MIN_RATE, MAX_RATE = 0.1, 10.0

# What each host may get at most, by the user's own limit or by its robots.txt.
MOST = {"plain.example": MAX_RATE, "limited.example": 2.5, "robots.example": 0.5}

SETTINGS: dict[str, Any] = {
    "POLITENESS_START_RATE": 1.0,
    "POLITENESS_MIN_RATE": MIN_RATE,
    "POLITENESS_MAX_RATE": MAX_RATE,
    "POLITENESS_LIMITS": {"limited.example": {"limit": "5/2s"}},
}

EXITS = ExitStack()
atexit.register(EXITS.close)


@cache
def parts() -> Parts:
    make = EXITS.enter_context(ready_crawlers())
    return parts_of(make(**SETTINGS))


def scope_of(host: str) -> Slot:
    slot = parts().registry.slot(host)
    assert slot is not None
    if host == "robots.example":
        slot.obey_robots(1 / MOST[host], time.monotonic())
    return slot


def answer(host: str, status: int, headers: Mapping[str, Sequence[bytes]]) -> None:
    """A request to the host was sent, and got this."""
    request = Request(f"http://{host}/page")
    ours = parts()
    route = ours.registry.route_for(request, scope_of(host))
    ticket = ours.tickets.begin(request)
    ticket.send(route, time.monotonic())
    response = Response(request.url, status=status, headers=dict(headers))
    codes = ours.policy.http_codes
    ours.feedback.end(ticket, classify_response(response, codes, time.time()))


def check(host: str) -> None:
    """Nothing that a host says makes the crawl faster than allowed, or silent for
    ever."""
    now = time.monotonic()
    slot, longest = scope_of(host), parts().policy.longest_pause
    status = slot.status(now)
    assert MIN_RATE * (1 - 1e-9) <= status.rate <= MOST[host] * (1 + 1e-9), status
    assert 0 <= status.paused_for <= longest * 1.11, status
    assert status.ceiling is None or 0 < status.ceiling < math.inf, status
    assert 1 <= status.concurrency <= 1000
    assert math.isfinite(slot.ready_at)
