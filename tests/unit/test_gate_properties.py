"""The gate on virtual time, with random limits, arrivals, slots and cancellations.

No window ever holds more than its limit, no permit is lost or taken twice, and what
may go does go.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy import Request
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from scrapy_politeness.core.budget import Budget
from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.pace import Limit
from scrapy_politeness.core.route import Flight, Route
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.scheduling.gate import Gate
from scrapy_politeness.scheduling.tickets import State, Ticket, Tickets
from scrapy_politeness.sharing.alone import Alone

SERVED = Outcome(Verdict.SERVED)

# What adding up floating-point numbers may take from a window.
ROUNDING = 1e-6

# Seconds that a timer is late at most.
LATE = 0.004


@dataclass(frozen=True)
class Kind:
    """How a slot is limited."""

    limit: Limit
    burst: int
    concurrency: int
    from_finish: bool


@dataclass(frozen=True)
class Wanted:
    after: float
    slot: int
    server: int
    proxy: int  # 0 for none
    priority: int
    takes: float
    gives_up_after: float | None


limits = st.builds(Limit, st.integers(1, 20), st.floats(0.05, 60.0))
kinds = st.builds(
    Kind, limits, st.integers(1, 4), st.integers(1, 4), st.just(False)
) | st.builds(Kind, limits, st.just(1), st.just(1), st.just(True))
requests = st.builds(
    Wanted,
    after=st.just(0.0) | st.floats(0.0, 3.0),
    slot=st.integers(0, 2),
    server=st.integers(0, 1),
    proxy=st.integers(0, 2),
    priority=st.integers(-1, 1),
    takes=st.floats(0.0, 2.0),
    gives_up_after=st.none() | st.floats(0.0, 2.0),
)
shared_limits = st.none() | limits


class Timer:
    """As Scrapy's: it rings a little late, and cancelling one that has rung does
    nothing."""

    def __init__(self, clock: Clock, delay: float, *call: Any) -> None:
        late = LATE * (clock.seconds() * 1e4 % 1)
        self._call: Any = clock.callLater(delay + late, *call)

    def cancel(self) -> None:
        if self._call.active():
            self._call.cancel()


class World:
    """Three slots, on two servers, through two proxies or none."""

    def __init__(self, slots: list[Kind], shared: list[Limit | None]) -> None:
        self.kinds = slots
        self.slots = [_slot(number, kind) for number, kind in enumerate(slots)]
        overall, server, proxy = shared
        self.overall = Budget("all", overall) if overall else None
        self.servers = [Budget(f"s{n}", server) if server else None for n in range(2)]
        self.proxies = [Budget(f"p{n}", proxy) if proxy else None for n in range(2)]
        self.limits = {
            budget: limit
            for limit, budgets in zip(
                shared, ([self.overall], self.servers, self.proxies), strict=True
            )
            for budget in budgets
            if budget is not None and limit is not None
        }
        self.clock = Clock()
        self.tickets = Tickets(mock.Mock())
        self.gate = Gate(lambda: None, Alone(), None, self.clock.seconds)
        self.sent: list[tuple[float, Route]] = []
        self.waiting: list[Route] = []
        self.gave_up = 0

    def route(self, wanted: Wanted) -> Route:
        server = None if wanted.proxy else self.servers[wanted.server]
        proxy = self.proxies[wanted.proxy - 1] if wanted.proxy else None
        shared = tuple(b for b in (self.overall, server) if b is not None)
        unseen = () if proxy is None else (proxy,)
        return Route(self.slots[wanted.slot], shared, unseen)

    def ask(self, wanted: Wanted) -> None:
        request = Request("http://example.org", priority=wanted.priority)
        ticket = self.tickets.begin(request)
        route = self.route(wanted)
        self.waiting.append(route)
        turn = Deferred.fromCoroutine(
            self.gate.enter(ticket, route, lambda *waits: False)
        )
        turn.addBoth(self._leave, route)
        turn.addCallback(partial(self._go, ticket, wanted.takes))
        turn.addErrback(self._give_up)
        if wanted.gives_up_after is not None:
            self.clock.callLater(wanted.gives_up_after, turn.cancel)

    def _leave(self, result: Any, route: Route) -> Any:
        self.waiting.remove(route)
        return result

    def _go(self, ticket: Ticket, takes: float, flight: Flight | None) -> None:
        assert flight is not None
        self.sent.append((self.clock.seconds(), flight.route))
        self.clock.callLater(takes, self._end, ticket)

    def _end(self, ticket: Ticket) -> None:
        flight = ticket.end(SERVED)
        assert flight is not None
        slot = flight.route.slot
        slot.settle(flight.permit, SERVED, self.clock.seconds(), 0.0)
        self.gate.advance(slot)

    def _give_up(self, failure: Any) -> None:
        failure.trap(CancelledError)
        self.gave_up += 1

    def run(self, wanted: list[Wanted]) -> None:
        at = 0.0
        for one in wanted:
            at += one.after
            self.clock.callLater(at, self.ask, one)
        while self.clock.getDelayedCalls():
            next_call: Any = self.clock.getDelayedCalls()[0]
            at = next_call.getTime()
            for route in self.waiting:
                # Whoever will be able to go has somebody to wake him in time.
                assert not route.slot.has_room or route.ready_at >= at - LATE - ROUNDING
            self.clock.advance(max(0.0, at - self.clock.seconds()))


def _slot(number: int, kind: Kind) -> Slot:
    rate = 1 / kind.limit.interval
    bounds = Bounds(
        start_rate=rate, max_rate=rate, min_rate=min(0.1, rate), adaptive=False
    )
    return Slot(
        str(number),
        bounds,
        spacing=kind.limit.interval,
        floor=0.0 if kind.burst > 1 else kind.limit.floor,
        concurrency=kind.concurrency,
        burst=kind.burst,
        from_finish=kind.from_finish,
    )


def most_in_a_window(times: list[float], length: float) -> int:
    return max(
        (sum(at <= other < at + length for other in times) for at in times), default=0
    )


@settings(max_examples=150, deadline=None)
@given(
    st.lists(kinds, min_size=3, max_size=3),
    st.lists(shared_limits, min_size=3, max_size=3),
    st.lists(requests, min_size=1, max_size=40),
)
def test_all_limits_are_kept_and_nobody_is_forgotten(
    slots: list[Kind], shared: list[Limit | None], wanted: list[Wanted]
) -> None:
    world = World(slots, shared)
    with (
        mock.patch(
            "scrapy_politeness.scheduling.gate.call_later", partial(Timer, world.clock)
        ),
        mock.patch(
            "scrapy_politeness.scheduling.gate.maybe_deferred_to_future", lambda d: d
        ),
    ):
        world.run(wanted)
    assert len(world.sent) + world.gave_up == len(wanted)
    assert not world.gate.is_busy
    assert not world.tickets
    for slot, kind in zip(world.slots, world.kinds, strict=True):
        assert slot.in_flight == slot.claims == slot.aside == 0
        times = [at for at, route in world.sent if route.slot is slot]
        most = kind.limit.count + kind.burst - 1
        assert most_in_a_window(times, kind.limit.period) <= most
    for budget, limit in world.limits.items():
        assert budget.waiting == 0
        times = [at for at, route in world.sent if budget in route.budgets]
        assert most_in_a_window(times, limit.period) <= limit.count


def test_one_that_is_cancelled_when_its_turn_has_come_keeps_its_permits() -> None:
    """They are settled when it is found to be lost."""
    watch = mock.Mock()
    gate = Gate(watch, Alone(), None)
    tickets = Tickets(mock.Mock())
    slot = Slot("a", Bounds(), spacing=0.0, concurrency=1)
    ticket = tickets.begin(Request("http://example.org"))

    async def cancelled_too_late() -> None:
        loop = asyncio.get_running_loop()
        slot.take(0.0)
        with (
            mock.patch("scrapy_politeness.scheduling.gate.call_later", loop.call_later),
            mock.patch(
                "scrapy_politeness.scheduling.gate.maybe_deferred_to_future",
                lambda turn: turn.asFuture(loop),
            ),
        ):
            entering = gate.enter(ticket, Route(slot), lambda *waits: False)
            task = loop.create_task(entering)
            await asyncio.sleep(0)
            assert gate.waiting(slot) == 1
            watch.reset_mock()
            slot.in_flight = 0
            gate.advance(slot)
            task.cancel()
            await asyncio.wait({task})
        assert task.cancelled()

    with ThreadPoolExecutor(1) as pool:  # pytest has a loop of its own
        pool.submit(asyncio.run, cancelled_too_late()).result()
    assert ticket.state is State.SENT
    assert slot.in_flight == 1
    watch.assert_called_once()
