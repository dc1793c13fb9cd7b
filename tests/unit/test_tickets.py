"""One ticket carries a request from the queue to its end."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from scrapy import Request
from scrapy.http.request import NO_CALLBACK

from scrapy_politeness.core.budget import Budget
from scrapy_politeness.core.cause import Block
from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.pace import Limit
from scrapy_politeness.core.route import Route
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.scheduling.tickets import State, Ticket, Tickets

if TYPE_CHECKING:
    from collections.abc import Callable

SERVED = Outcome(Verdict.SERVED)


class Downloader:
    """Has all requests, until they are ``lost``."""

    def __init__(self) -> None:
        self.room = 0
        self.lost: set[Request] = set()

    def make_room(self, places: int) -> None:
        self.room += places

    def has_all(self, requests: object) -> bool:
        return not self.lost

    def is_under_way(self, request: Request) -> bool:
        return request not in self.lost


def slot(name: str = "host", rate: float = 1.0, concurrency: int = 8) -> Slot:
    bounds = Bounds(start_rate=rate, max_rate=rate, adaptive=False)
    return Slot(name, bounds, spacing=0.0, concurrency=concurrency)


@pytest.fixture
def downloader() -> Downloader:
    return Downloader()


@pytest.fixture
def tickets(downloader: Downloader) -> Tickets:
    tickets = Tickets(downloader)  # type: ignore[arg-type]
    tickets.has_own_queue = True
    return tickets


def request() -> Request:
    return Request("http://host/page")


STEPS: dict[str, Callable[[Ticket, Route], object]] = {
    "claim": lambda ticket, route: ticket.claim(route, 0.0),
    "wait": lambda ticket, route: ticket.wait_at_gate(route, 0.0),
    "send": lambda ticket, route: ticket.send(route, 0.0),
    "hand back": lambda ticket, route: ticket.hand_back(request()),
}

WAYS = {
    State.QUEUED: [],
    State.CLAIMED: ["claim"],
    State.WAITING: ["claim", "wait"],
    State.SENT: ["claim", "send"],
}

ALLOWED = {
    (State.QUEUED, "claim"),
    (State.QUEUED, "wait"),
    (State.QUEUED, "send"),
    (State.QUEUED, "hand back"),
    (State.CLAIMED, "wait"),
    (State.CLAIMED, "send"),
    (State.CLAIMED, "hand back"),
    (State.WAITING, "send"),
    (State.WAITING, "hand back"),
}


@pytest.mark.parametrize(
    ("state", "step"),
    # One that waits goes on by itself.
    [pair for pair in product(WAYS, STEPS) if pair != (State.WAITING, "claim")],
)
def test_what_may_follow_what(tickets: Tickets, state: State, step: str) -> None:
    route = Route(slot())
    ticket = tickets.begin(request())
    for earlier in WAYS[state]:
        STEPS[earlier](ticket, route)
    assert ticket.state is state
    if (state, step) in ALLOWED:
        STEPS[step](ticket, route)
    else:
        with pytest.raises(RuntimeError, match=state.value):
            STEPS[step](ticket, route)


@pytest.mark.parametrize("state", WAYS)
def test_every_end_gives_back_what_it_had(
    tickets: Tickets, downloader: Downloader, state: State
) -> None:
    host = slot()
    ticket = tickets.begin(request())
    for step in WAYS[state]:
        STEPS[step](ticket, Route(host))
    flight = ticket.end(SERVED)
    assert (flight is not None) == (state is State.SENT)
    assert host.claims == host.aside == downloader.room == tickets.sent == 0
    assert not tickets
    assert ticket.end(SERVED) is None


def test_what_did_not_come_by_the_queue_makes_room_while_it_waits(
    tickets: Tickets, downloader: Downloader
) -> None:
    ticket = tickets.begin(request())
    ticket.wait_at_gate(Route(slot()), 0.0)
    assert downloader.room == 1
    ticket.send(Route(slot()), 1.0)
    assert downloader.room == 0


def test_room_is_made_for_no_other_queue_but_ours(
    tickets: Tickets, downloader: Downloader
) -> None:
    """It would be filled until nothing is left in that queue."""
    tickets.has_own_queue = False
    tickets.begin(request()).wait_at_gate(Route(slot()), 0.0)
    assert downloader.room == 0
    media = Request("http://host/file", callback=NO_CALLBACK)
    tickets.begin(media).wait_at_gate(Route(slot()), 0.0)
    assert downloader.room == 1


def test_what_the_queue_hands_out_in_time_keeps_its_place(
    tickets: Tickets, downloader: Downloader
) -> None:
    host = slot()
    ticket = tickets.hand_out(request(), Route(host), 0.0)
    ticket.wait_at_gate(Route(host), 0.0)
    assert (host.claims, host.aside, downloader.room) == (1, 0, 0)


def test_a_slot_that_is_chosen_late_takes_the_claim_along(
    tickets: Tickets, downloader: Downloader
) -> None:
    known, chosen = slot("known"), slot("chosen")
    ticket = tickets.hand_out(request(), Route(known), 0.0)
    assert known.claimable_at == math.inf
    ticket.wait_at_gate(Route(chosen), 0.0)
    assert known.claimable_at < math.inf
    assert (known.claims, known.aside, chosen.claims) == (0, 1, 1)
    assert downloader.room == 1
    ticket.send(Route(chosen), 1.0)
    assert (known.aside, chosen.claims, chosen.in_flight) == (0, 0, 1)


def test_no_more_than_a_slot_has_places_wait_elsewhere(tickets: Tickets) -> None:
    known, chosen = slot("known", concurrency=2), slot("chosen")
    for _ in range(2):
        assert known.claimable_at <= 0.0
        ticket = tickets.hand_out(request(), Route(known), 0.0)
        ticket.wait_at_gate(Route(chosen), 0.0)
    assert known.claimable_at == math.inf


def test_who_waits_for_a_proxy_holds_up_nobody_in_its_slot(tickets: Tickets) -> None:
    host, proxy = slot(), Budget("proxy", Limit(1, 60.0))
    proxy.take(0.0)
    ticket = tickets.hand_out(request(), Route(host), 0.0)
    ticket.wait_at_gate(Route(host, (), (proxy,)), 0.0)
    assert (host.claims, host.aside) == (0, 1)


def test_robots_txt_is_no_part_of_the_way(tickets: Tickets) -> None:
    host = slot()
    ticket = tickets.hand_out(request(), Route(host), 0.0)
    ticket.wait()
    ticket.arrive(10.0)
    assert ticket.state is State.CLAIMED
    assert host.way == 0.0


def test_what_comes_straight_back_is_known(tickets: Tickets) -> None:
    ticket = tickets.begin(request())
    copy = request()
    ticket.hand_back(copy)
    assert tickets.begin(copy) is ticket
    assert ticket.is_handed_back
    tickets.queued(copy)
    assert not tickets.begin(copy).is_handed_back


def test_what_the_downloader_has_lost_is_found(
    tickets: Tickets, downloader: Downloader
) -> None:
    host = slot()
    kept, lost = request(), request()
    for one in (kept, lost):
        tickets.hand_out(one, Route(host), 0.0)
    assert tickets.lost() == []
    downloader.lost.add(lost)
    assert [ticket.request for ticket in tickets.lost()] == [lost]


def test_a_slot_announces_when_it_may_be_ready_at_another_time() -> None:
    told = Mock()
    bounds = Bounds(start_rate=1.0)
    host = Slot("host", bounds, spacing=0.0, concurrency=8, listeners=[told])
    assert host.block(Block.PAUSE, 10.0)
    assert not host.block(Block.PAUSE, 5.0)
    assert told.call_count == 1
    assert host.block(Block.HOLD, 5.0)
    assert host.status(0.0).paused_because == "the host asked for a pause"
    assert host.unblock(Block.PAUSE)
    assert host.status(0.0).paused_because == "the spider holds it"
    assert not host.unblock(Block.PAUSE)
    assert told.call_count == 3
    assert host.ready_at == 5.0


def test_robots_txt_blocks_the_queue_and_not_the_gate() -> None:
    """It has to pass the gate itself."""
    host = slot()
    host.block(Block.ROBOTS)
    assert host.claimable_at == math.inf
    assert host.ready_at <= 0.0
    host.take(0.0)
    assert host.claimable_at == math.inf
    host.unblock(Block.ROBOTS)
    assert host.claimable_at == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("seconds", "most"), [(0.003, 1), (0.5, 7), (2.0, 25)])
def test_as_many_are_on_their_way_as_that_takes(seconds: float, most: int) -> None:
    """At ten a second."""
    host = slot(rate=10.0)
    for _ in range(20):
        host.arrived(seconds)
    for number in range(100):
        if host.claimable_at > 100.0:
            break
        host.claim(number / 10)
    assert number == most


def test_who_waits_in_line_is_known_to(tickets: Tickets) -> None:
    ticket, route = tickets.begin(request()), Route(slot())
    assert not ticket.is_in_line
    ticket.wait_at_gate(route, 0.0)
    assert ticket.is_in_line
    ticket.send(route, 0.0)
    assert not ticket.is_in_line


def test_one_that_was_taken_for_lost_goes_on_with_a_new_ticket(
    tickets: Tickets,
) -> None:
    page, route = request(), Route(slot())
    ticket = tickets.begin(page)
    ticket.wait_at_gate(route, 0.0)
    assert ticket.renewed() is ticket
    ticket.end(Outcome(Verdict.IGNORED, "lost"))
    renewed = ticket.renewed()
    assert tickets[page] is renewed
    renewed.send(route, 0.0)
    assert tickets.sent == 1
