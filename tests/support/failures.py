"""Failures that a site injects, whatever the rate.

``Failures`` is a plan without a state: what happens to a request depends on its path,
on how often that was requested, and on the time. So two crawls of the same pages meet
the same failures, however fast they are and in whatever order they go.
"""

from __future__ import annotations

import math
import select
import socket
import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from tests.support.site import DROPPED, HUNG, Answer

# A GET that a client does not give up for longer than this is a test that hangs.
_LONGEST_HANG = 3600.0


def hang(connection: socket.socket) -> None:
    """Say nothing until the client closes the connection, or the site is closed."""
    select.select([connection], [], [], _LONGEST_HANG)


def reset(connection: socket.socket) -> None:
    linger_for_nothing = struct.pack("ii", 1, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_for_nothing)
    connection.close()


UNAVAILABLE = Answer(503, body=b"Service Unavailable")
HANGING = Answer(HUNG, raw=hang)
RESET = Answer(DROPPED, raw=reset)

Latency = Callable[[str, float], float]
"""How long the page with this path takes, so many seconds after the first request."""


def constant(seconds: float) -> Latency:
    return lambda path, at: seconds


def runs(fast: float, slow: float, length: int) -> Latency:
    """So many pages in a row that are fast, then as many slow ones, and so on."""
    return lambda path, at: slow if _number(path) // length % 2 else fast


def mixed(fast: float, slow: float, *, slow_share: float = 0.5) -> Latency:
    return lambda path, at: slow if Random(path).random() < slow_share else fast


def lognormal(median: float, sigma: float, *, most: float = math.inf) -> Latency:
    mu = math.log(median)
    return lambda path, at: min(Random(path).lognormvariate(mu, sigma), most)


def from_time(changes: Mapping[float, float]) -> Latency:
    """``{0: 0.05, 30: 0.3}``: 0.05 s, and 0.3 s from the thirtieth second on."""

    def latency(path: str, at: float) -> float:
        return next(s for start, s in sorted(changes.items())[::-1] if at >= start)

    return latency


def _number(path: str) -> int:
    digits = path.partition("?")[0].rpartition("/")[2]
    return int(digits) if digits.isdigit() else 0


@dataclass(frozen=True)
class Failures:
    """``errors``, ``hangs`` and ``resets`` are shares of the requests: a 503, no answer
    for as long as the client waits, a connection that is reset. ``broken`` are paths
    that always get a 503, or only the first ``broken_times``. ``events`` are answers to
    the first, second, … page that is asked for. An outage lasts from one time to
    another, in seconds after the first request.

    All but outages spares robots.txt, a file that any server has at hand.
    """

    errors: float = 0.0
    hangs: float = 0.0
    resets: float = 0.0
    broken: Collection[str] = ()
    broken_times: float = math.inf
    events: Mapping[int, Answer] = field(default_factory=dict)
    outages: Collection[tuple[float, float]] = ()
    outage: Answer = UNAVAILABLE
    error: Answer = UNAVAILABLE
    latency: Latency | None = None
    seed: int = 0

    @property
    def share(self) -> float:
        """Of the requests that fail at random."""
        return self.errors + self.hangs + self.resets

    def is_down(self, at: float) -> bool:
        return any(begin <= at < end for begin, end in self.outages)

    def answer(self, path: str, nth: int, count: int) -> Answer | None:
        """Return what a request gets instead of its page, if anything: the ``nth`` one
        for this path, and the ``count``-th for any page."""
        if count in self.events:
            return self.events[count]
        if path in self.broken and nth <= self.broken_times:
            return self.error
        luck = Random(f"{self.seed} {path} {nth}").random()
        for share, answer in (
            (self.errors, self.error),
            (self.hangs, HANGING),
            (self.resets, RESET),
        ):
            if luck < share:
                return answer
            luck -= share
        return None

    def delayed(self, answer: Answer, path: str, at: float) -> Answer:
        if self.latency is None:
            return answer
        return replace(answer, delay=answer.delay + self.latency(path, at))
