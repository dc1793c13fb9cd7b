"""Runs clients, with an endless backlog or a number of pages, against one server on
virtual time.

A heap holds the next events: a request arriving at the server, a response arriving at
its client. The client's law says when it may send next, so time jumps from one event to
the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heappop, heappush
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from scrapy_politeness.core.failing_page import Persistence
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.simulator.crawl import Crawl
from scrapy_politeness.simulator.results import Log, Results, results_of
from scrapy_politeness.simulator.servers import OF_LIMITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_politeness.core.governor.host_model import Change
    from scrapy_politeness.simulator.servers import Reply, Server

_PERSISTENCE = Persistence(5.0, 300.0)

_SERVED = Outcome(Verdict.SERVED)
_TIMED_OUT = Outcome(Verdict.TIMED_OUT, "timeout")


class Law(Protocol):
    """What decides when a client sends, such as a ``Slot``."""

    @property
    def ready_at(self) -> float: ...

    @property
    def has_room(self) -> bool: ...

    def take(self, now: float) -> Permit: ...

    def settle(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Change: ...


@dataclass(frozen=True, slots=True)
class Network:
    """``latency`` is for both ways; each may take longer, by the share ``jitter`` on
    average, so that requests overtake each other now and then."""

    latency: float = 0.05
    jitter: float = 0.1

    @property
    def round_trip(self) -> float:
        return self.latency * (1 + self.jitter)


def simulate(
    laws: Sequence[Law],
    server: Server,
    *,
    seconds: float = 3600.0,
    seed: int = 0,
    network: Network = Network(),
    timeout: float = 30.0,
    pages: int | None = None,
    persistence: Persistence = _PERSISTENCE,
) -> Results:
    """Run one client per law for ``seconds``; with ``pages``, until each has fetched or
    given up that many, if that is earlier. ``persistence`` is for pages that fail.

    A client gives up on a request after ``timeout`` seconds; the server does not. Laws
    and server have a state: make new ones for each run.
    """
    clients = [
        _Client(law, None if pages is None else Crawl(pages, persistence))
        for law in laws
    ]
    ended_at = _Run(clients, server, Random(seed), network, timeout).until(seconds)
    logs = [client.log for client in clients]
    return results_of(logs, server, ended_at, network.round_trip)


class _Client:
    """Without a ``crawl``, its backlog is endless."""

    __slots__ = ("crawl", "due", "law", "log", "sent")

    def __init__(self, law: Law, crawl: Crawl | None) -> None:
        self.law = law
        self.crawl = crawl
        self.log = Log(crawl)
        self.sent = 0
        self.plan()

    def plan(self) -> None:
        self.due = self.law.ready_at if self.law.has_room else math.inf
        if self.crawl is not None:
            self.due = max(self.due, self.crawl.ready_at)

    def next_page(self, now: float) -> int:
        if self.crawl is not None:
            return self.crawl.take(now)
        self.sent += 1
        return self.sent - 1

    def judged(self, permit: Permit, outcome: Outcome) -> Outcome:
        """Only our own law tells a row of failures from accidents."""
        serving = getattr(self.law, "serving", None)
        return outcome if serving is None else serving.judged(permit, outcome)

    @property
    def most_cuts(self) -> tuple[int, bool]:
        """Return also whether the host is noisy."""
        serving = getattr(self.law, "serving", None)
        if serving is None:
            return 0, False
        return serving.most_cuts, serving.noise > 0

    @property
    def is_done(self) -> bool:
        return self.crawl is not None and self.crawl.is_over


class _Flight(NamedTuple):
    client: _Client
    permit: Permit
    sent_at: float
    page: int


class _Run:
    def __init__(
        self,
        clients: Sequence[_Client],
        server: Server,
        random: Random,
        network: Network,
        timeout: float,
    ) -> None:
        self._clients = clients
        self._server = server
        self._random = random
        self._one_way = network.latency / 2
        self._delay_rate = math.inf
        if network.latency * network.jitter:
            self._delay_rate = 1 / (self._one_way * network.jitter)
        self._timeout = timeout
        # Without an outcome, a request is on its way to the server. The number keeps
        # the order of events at the same time.
        self._events: list[tuple[float, int, _Flight, Outcome | None]] = []
        self._number = 0
        self._now = 0.0

    def until(self, end: float) -> float:
        """Return when it ended: at ``end``, or earlier with nothing left to do."""
        events = self._events
        sender = self._next_sender()
        while True:
            if events and events[0][0] <= sender.due:
                self._now, _, flight, outcome = heappop(events)
                if self._now > end:
                    return end
                if outcome is None:
                    self._arrive(flight)
                    continue
                self._settle(flight, outcome)
                if flight.client.is_done and all(c.is_done for c in self._clients):
                    return self._now
            else:
                self._now = max(self._now, sender.due)
                if self._now > end:
                    return end
                self._send(sender)
            sender = self._next_sender()

    def _next_sender(self) -> _Client:
        if len(self._clients) == 1:
            return self._clients[0]
        return min(self._clients, key=attrgetter("due"))

    def _send(self, client: _Client) -> None:
        now = self._now
        flight = _Flight(client, client.law.take(now), now, client.next_page(now))
        client.plan()
        self._plan(now + self._travel(), flight, None)

    def _arrive(self, flight: _Flight) -> None:
        reply = self._server.arrive(self._now, flight.page)
        back_at = reply.at + self._travel()
        given_up_at = flight.sent_at + self._timeout
        if back_at > given_up_at:
            self._plan(max(self._now, given_up_at), flight, _TIMED_OUT)
        else:
            self._plan(back_at, flight, _outcome(reply))

    def _settle(self, flight: _Flight, outcome: Outcome) -> None:
        now = self._now
        client, permit, sent_at, page = flight
        verdict, reason = outcome.verdict, outcome.reason
        crawl, law = client.crawl, client.law
        if crawl is not None:
            outcome = client.judged(permit, crawl.known(page, outcome))
            outcome = crawl.settle(page, outcome, sent_at, now)
        most_cuts, is_noisy = client.most_cuts
        change = law.settle(permit, outcome, now, self._random.random())
        if crawl is not None and verdict is not Verdict.SERVED:
            pause = max(0.0, law.ready_at - now)
            crawl.put_back(
                page,
                now,
                pause,
                most_cuts=most_cuts,
                is_noisy=is_noisy,
                noise=getattr(law, "noise", 0.0),
            )
        client.plan()
        log = client.log
        log.trace.note(now, change.new_rate)
        if verdict is Verdict.SERVED:
            log.served_at.append(now)
            log.latencies.append(now - sent_at)
        elif verdict is Verdict.REFUSED:
            log.refused_at.append(now)
            log.unlucky += reason not in OF_LIMITS
        elif verdict is Verdict.TIMED_OUT:
            log.timed_out += 1
        else:
            log.failed += 1

    def _plan(self, at: float, flight: _Flight, outcome: Outcome | None) -> None:
        self._number += 1
        heappush(self._events, (at, self._number, flight, outcome))

    def _travel(self) -> float:
        # An exponential delay, at half the cost of expovariate.
        return self._one_way - math.log(1 - self._random.random()) / self._delay_rate


def _outcome(reply: Reply) -> Outcome:
    if not reply.served:
        verdict = Verdict.UNREACHABLE if reply.broken else Verdict.REFUSED
        return Outcome(verdict, reply.reason, reply.retry_after, reply.quota)
    if reply.quota is None:
        return _SERVED
    return Outcome(Verdict.SERVED, quota=reply.quota)
