"""One ticket carries a request from the queue to its end.

    state      the request is                                 it has
    QUEUED     with the scheduler, or comes another way       nothing
    CLAIMED    on its way through the middlewares             a claim on its slot
    WAITING    held up by robots.txt, or at the gate          what it had, and a claim
                                                              on its slot at the gate
    SENT       with the host                                  permits
    DONE       over                                           an outcome, if it was sent

Media files, robots.txt and inline requests do not come from the queue: they begin at
the gate.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from scrapy.http.request import NO_CALLBACK

from scrapy_politeness.http.scrapy_internals import chosen_slot
from scrapy_politeness.scheduling.slot_names import SLOT

if TYPE_CHECKING:
    from scrapy import Request
    from twisted.internet.defer import Deferred

    from scrapy_politeness.core.outcome import Outcome
    from scrapy_politeness.core.route import Flight, Route
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.http.scrapy_internals import Engine
    from scrapy_politeness.scheduling.failing_pages import Refusal


class State(Enum):
    next: tuple[State, ...]

    QUEUED = "queued"
    CLAIMED = "claimed"
    WAITING = "waiting"
    SENT = "sent"
    DONE = "done"


# From QUEUED to QUEUED is what is handed back at once.
State.QUEUED.next = tuple(State)
State.CLAIMED.next = (State.WAITING, State.SENT, State.QUEUED, State.DONE)
State.WAITING.next = (State.CLAIMED, State.SENT, State.QUEUED, State.DONE)
State.SENT.next = (State.DONE,)
State.DONE.next = ()


@dataclass(slots=True, eq=False, repr=False)
class Ticket:
    """``by_queue`` says that our queue has handed the request out, ``is_handed_back``
    that the gate has returned it to the scheduler, ``is_refused`` that the host wants
    to be asked again later. ``route`` is what it has a claim on.

    ``refusal`` is what a refused answer says about the page. Where that is in
    ``doubt``, it waits until it is known whether it was refused.
    """

    _all: Tickets
    request: Request
    state: State = State.QUEUED
    by_queue: bool = False
    is_handed_back: bool = False
    is_in_line: bool = False
    is_refused: bool = False
    route: Route | None = None
    flight: Flight | None = None
    outcome: Outcome | None = None
    refusal: Refusal | None = None
    doubt: Deferred[bool] | None = None
    _chosen: tuple[object, object] = (None, None)
    _aside: tuple[Slot, ...] = ()
    _makes_room: bool = False
    _claimed_at: float = 0.0

    def __repr__(self) -> str:
        return f"<Ticket {self.state.value} {self.request}>"

    def came_as(self, slot: Slot) -> bool:
        """Tell whether the queue handed the request out as one of that slot."""
        return self.by_queue and self.route is not None and self.route.slot is slot

    @property
    def claimed_slot(self) -> Slot | None:
        """The slot that it has a claim on, unless a middleware has chosen another."""
        if self.route is None or self._chosen != _chosen(self.request):
            return None
        return self.route.slot

    def claim(self, route: Route, now: float) -> None:
        """The queue hands the request out."""
        self._become(State.CLAIMED)
        self.by_queue = True
        self._chosen = _chosen(self.request)
        self._claimed_at = now
        self.route = route
        route.claim(self, now)

    def wait(self) -> None:
        """Something holds the request up before it gets to the gate."""
        if self.state in (State.QUEUED, State.CLAIMED):
            self._become(State.WAITING)
            self._make_room()

    def arrive(self, now: float) -> None:
        """The request has come to the gate."""
        if self.state is State.CLAIMED:
            assert self.route is not None
            self.route.slot.arrived(now - self._claimed_at)
        self.go_on()

    def go_on(self) -> None:
        """Nothing holds it up any more."""
        if self.state is State.WAITING:
            self._become(State.QUEUED if self.route is None else State.CLAIMED)

    def wait_at_gate(self, route: Route, now: float) -> None:
        """There it goes before those still in the queue."""
        self._become(State.WAITING)
        self.is_in_line = True
        if self.route is not None and self.route.slot is not route.slot:
            # A middleware has chosen another slot, where the request counts now. The
            # one that the queue knew may hand out others meanwhile.
            self._step_aside()
        if self.route is None:
            self.route = route
            route.claim(self, now)
        if route.waits_unseen(now):
            # The queue does not know what it waits for.
            self._step_aside()
        # What the queue has handed out in time waits for a moment only.
        if self._aside or not self.by_queue:
            self._make_room()

    def renewed(self) -> Ticket:
        """Return a new ticket where this one was taken for lost."""
        return self._all.begin(self.request) if self.state is State.DONE else self

    def send(self, route: Route, now: float) -> Flight:
        self._become(State.SENT)
        self.flight = route.take(now, lambda: _kind(self.request))
        self._all.sent += 1
        self._unclaim()
        return self.flight

    def hand_back(self, copy: Request) -> None:
        """The scheduler gets a copy of the request."""
        self._become(State.QUEUED)
        self._unclaim()
        self.by_queue = False
        self.is_handed_back = True
        self._all.change_request(self, copy)

    def end(self, outcome: Outcome) -> Flight | None:
        """Return the permits, if it was sent."""
        if self.state is State.DONE:
            return None
        was_sent = self.state is State.SENT
        self._become(State.DONE)
        self.outcome = outcome
        self._all.sent -= was_sent
        if self.route is not None or self._aside:
            self._unclaim()
        # What was refused is asked for again, and needs its ticket for that.
        if not self.is_refused:
            self._all.drop(self)
        return self.flight

    def _become(self, state: State) -> None:
        if state not in self.state.next:
            raise RuntimeError(f"{self!r} cannot become {state.value}")
        self.state = state
        self.is_in_line = False
        if self._makes_room:
            self._makes_room = False
            self._all.engine.make_room(-1)

    def _make_room(self) -> None:
        """While it waits, it takes no place from other hosts."""
        if not self._makes_room and self._all.may_make_room(self):
            self._makes_room = True
            self._all.engine.make_room(1)

    def _step_aside(self) -> None:
        """It still takes a place of its slot: what the queue keeps is not in memory."""
        assert self.route is not None
        route, self.route = self.route, None
        self._aside += (route.slot,)
        route.step_aside(self)

    def _unclaim(self) -> None:
        route, self.route = self.route, None
        if self._aside:
            aside, self._aside = self._aside, ()
            for slot in aside:
                slot.step_back()
        if route is not None:
            route.unclaim(self)


def _kind(request: Request) -> str:
    """Media are larger than pages, and PDFs larger than pictures."""
    name = request.url.partition("?")[0].rpartition("/")[2]
    extension = name.rpartition(".")[2].lower() if "." in name else ""
    return extension or str(request.callback is NO_CALLBACK)


def _chosen(request: Request) -> tuple[object, object]:
    meta = request.meta
    return chosen_slot(meta), meta.get(SLOT)


class Tickets(dict["Request", Ticket]):
    """All that are under way, by their requests.

    1. The queue claims a place for each request that it hands out.
    2. The gate lets it wait, and sends it or hands it back.
    3. The middlewares end it.

    Not every end is announced: a download may be cancelled, and a middleware may
    replace the request by another. ``lost`` finds those that the downloader no longer
    has.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        self.sent = 0
        self.has_own_queue = False

    def hand_out(self, request: Request, route: Route, now: float) -> Ticket:
        """The queue gives the request to the engine."""
        ticket = self[request] = Ticket(self, request)
        ticket.claim(route, now)
        return ticket

    def begin(self, request: Request) -> Ticket:
        """Return the ticket of a request that is met on its way."""
        ticket = self.get(request)
        if ticket is None or ticket.state is State.DONE:  # sent once more
            ticket = self[request] = Ticket(self, request)
        return ticket

    def change_request(self, ticket: Ticket, request: Request) -> None:
        self.drop(ticket)
        ticket.request = request
        self[request] = ticket

    def drop(self, ticket: Ticket) -> None:
        if self.get(ticket.request) is ticket:
            del self[ticket.request]

    def queued(self, request: Request) -> None:
        """The queue has taken a request back."""
        self.pop(request, None)

    def lost(self) -> list[Ticket]:
        if self.engine.has_all(self.keys()):
            return []
        lost = []
        for request, ticket in list(self.items()):
            if self.engine.is_under_way(request):
                continue
            if ticket.state in (State.QUEUED, State.DONE):
                self.drop(ticket)
            else:
                lost.append(ticket)
        return lost

    def may_make_room(self, ticket: Ticket) -> bool:
        """A queue of others would fill all the room that is made for its requests,
        until it is empty."""
        return self.has_own_queue or ticket.request.callback is NO_CALLBACK
