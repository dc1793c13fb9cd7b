"""A crawl of several hosts on virtual time: slots, their agenda, servers and clocks.

What differs from the simulator: many hosts with one agenda, outages, a process that
is suspended, and a wall clock that is set.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from email.utils import formatdate
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any

from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.time_heap import TimeHeap
from scrapy_politeness.http.retry_after import retry_after
from scrapy_politeness.simulator.servers import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.simulator import Server

HOUR = 3600.0
DAY = 24 * HOUR

_LATENCY = 0.05
_TIMEOUT = 30.0


class Outages:
    """A server that is away for some hours of every day: it refuses, or does not even
    answer."""

    def __init__(
        self, server: Server, begin: float, end: float, *, silent: bool
    ) -> None:
        self._server = server
        self._begin = begin
        self._end = end
        self._silent = silent

    def arrive(self, now: float) -> Reply:
        if not self._begin <= now % DAY < self._end:
            return self._server.arrive(now)
        return Reply(math.inf if self._silent else now, served=False)

    def allowed(self, start: float, end: float) -> float:
        """Of whole days."""
        share_away = (self._end - self._begin) / DAY
        return (1 - share_away) * self._server.allowed(start, end)


class Dated:
    """Says by an HTTP date when to come back, also with its Date where ``has_date``;
    the client's wall clock is set to and fro by an hour."""

    def __init__(self, server: Server, *, has_date: bool) -> None:
        self._server = server
        self._has_date = has_date

    def arrive(self, now: float) -> Reply:
        reply = self._server.arrive(now)
        if reply.served:
            return reply
        wall = 1e9 + now
        until = formatdate(wall + math.ceil(self._server.wait(now)), usegmt=True)
        date = formatdate(wall, usegmt=True) if self._has_date else None
        set_by = HOUR * (int(now / (5 * HOUR)) % 3 - 1)
        wait = retry_after([until], date=date, wall_now=wall + set_by)
        return reply._replace(retry_after=wait)

    def allowed(self, start: float, end: float) -> float:
        return self._server.allowed(start, end)


@dataclass
class Host:
    """One slot, its server, and what was seen of it. Times are those of the server:
    seconds since the crawl began."""

    slot: Slot
    server: Any
    sent_at: list[float] = field(default_factory=list)
    served_at: list[float] = field(default_factory=list)
    refused_at: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def count(self, times: list[float], start: float, end: float) -> int:
        return sum(start <= at < end for at in times)

    def share(self, start: float, end: float) -> float:
        """Of what the server would have served in that time."""
        served = self.count(self.served_at, start, end)
        return served / float(self.server.allowed(start, end))


class TwoDays:
    """``clock`` is what the monotonic clock says when the crawl begins. It runs on
    while the process is ``asleep``, from one time to the other."""

    def __init__(
        self,
        hosts: Sequence[Host],
        *,
        clock: float,
        asleep: tuple[float, float] = (math.inf, math.inf),
        longest_wait: float = HOUR,
    ) -> None:
        self._hosts = {host.slot.key: host for host in hosts}
        self._clock = clock
        self._asleep = asleep
        self._longest_wait = longest_wait
        self._random = Random(1)
        self._agenda = TimeHeap()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = 0
        for key in self._hosts:
            self._plan(key)

    def run(self, seconds: float) -> None:
        for hour in range(int(seconds / HOUR)):
            self._at(hour * HOUR, self._measure)
        now = 0.0
        while True:
            event_at = self._events[0][0] if self._events else math.inf
            send_at = self._agenda.next_time - self._clock
            now = self._awake(max(now, min(event_at, send_at)))
            if now > seconds:
                return
            if event_at <= send_at:
                heappop(self._events)[2](now)
            else:
                key = self._agenda.due(now + self._clock)
                # What is left of a sum that was rounded.
                self._send(key or self._first(), now)

    def _first(self) -> str:
        key = self._agenda.due(self._agenda.next_time)
        assert key is not None
        return key

    def _awake(self, now: float) -> float:
        begin, end = self._asleep
        return end if begin <= now < end else now

    def _at(self, at: float, do: Callable[[float], None]) -> None:
        self._number += 1
        heappush(self._events, (at, self._number, do))

    def _plan(self, key: str) -> None:
        slot = self._hosts[key].slot
        self._agenda.put(key, slot.ready_at if slot.has_room else math.inf)

    def _send(self, key: str, now: float) -> None:
        host = self._hosts[key]
        permit = host.slot.take(now + self._clock)
        host.sent_at.append(now)
        self._plan(key)
        reply = host.server.arrive(now)
        back_at = reply.at + _LATENCY * (1 + self._random.random() / 10)
        if back_at > now + _TIMEOUT:
            back_at, outcome = now + _TIMEOUT, Outcome(Verdict.TIMED_OUT)
        elif reply.served:
            outcome = Outcome(Verdict.SERVED, quota=reply.quota)
        else:
            wait = reply.retry_after
            wait = None if wait is None else min(wait, self._longest_wait)
            outcome = Outcome(Verdict.REFUSED, "429", wait, reply.quota)
        self._at(back_at, lambda at: self._settle(key, permit, outcome, at))

    def _settle(self, key: str, permit: Permit, outcome: Outcome, now: float) -> None:
        host = self._hosts[key]
        host.slot.settle(permit, outcome, now + self._clock, self._random.random())
        served = outcome.verdict is Verdict.SERVED
        (host.served_at if served else host.refused_at).append(now)
        self._plan(key)

    def _measure(self, now: float) -> None:
        for host in self._hosts.values():
            host.sizes.append(deep_size(host.slot))


def deep_size(thing: object) -> int:
    """Return the bytes of an object of ours, and of all that it refers to."""
    seen: set[int] = set()
    left = [thing]
    size = 0
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, type) or callable(thing):
            continue
        seen.add(id(thing))
        size += sys.getsizeof(thing)
        if isinstance(thing, dict):
            left += [*thing.keys(), *thing.values()]
        elif hasattr(thing, "__iter__") and not isinstance(thing, str | bytes):
            left += thing
        for kind in type(thing).__mro__:
            names = getattr(kind, "__slots__", ())
            left += [getattr(thing, n) for n in names if hasattr(thing, n)]
    return size
