"""The gate: where a request waits for its permits, whichever way it came."""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import CancelledError, Deferred

from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.pace import NO_WAIT
from scrapy_politeness.http.names import printable, public_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request, Spider
    from scrapy.utils.asyncio import CallLaterResult

    from scrapy_politeness.core.route import Flight, Route
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.scheduling.tickets import Ticket
    from scrapy_politeness.sharing.port import Sharing

    Leaves = Callable[[float, float], bool]

logger = logging.getLogger(__name__)

# Seconds. For a shorter wait, no request is sent away while the crawl goes on.
SHORT_WAIT = 1.0

# Seconds after which permits are asked for again, in case an answer was lost.
_RESERVE_AGAIN = 1.0


# Seconds after which to look again: that another slot of the host has got an answer, or
# has received less than was expected, is not announced.
_LOOK_AGAIN = 0.1


class _Place(NamedTuple):
    """In line: the highest priority first, then the oldest."""

    rank: int
    order: int
    ticket: Ticket
    turn: Deferred[Flight | None]
    leaves: Leaves


@dataclass(slots=True, eq=False)
class _Lines:
    """The requests that wait for one slot, in one line for each route."""

    is_advancing: bool = False
    timer: CallLaterResult | None = None
    places: dict[Route, list[_Place]] = field(default_factory=dict)

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def add(self, route: Route, place: _Place) -> int:
        """Return how many are in line."""
        line = self.places.setdefault(route, [])
        heapq.heappush(line, place)
        return len(line)

    def next_to_go(self, now: float) -> Route | None:
        """Return the route of the first of those that may go."""
        routes = [route for route in self.places if route.may_go(now)]
        return min(routes, key=lambda route: self.places[route][0], default=None)

    def pop(self, route: Route) -> _Place:
        line = self.places[route]
        place = heapq.heappop(line)
        if not line:
            del self.places[route]
        return place

    def remove(self, route: Route, place: _Place) -> bool:
        line = self.places.get(route, [])
        if place not in line:
            return False
        line.remove(place)
        heapq.heapify(line)
        if not line:
            del self.places[route]
        return True

    def send_away(self, now: float, *, in_line: bool) -> list[_Place]:
        """Remove and return those that leave rather than wait; ``in_line`` also counts
        the time that those before them take."""
        places = sorted((p, route) for route, line in self.places.items() for p in line)
        self.places = {}
        before = 0
        away: list[_Place] = []
        for place, route in places:
            if place.leaves(*_waits(route, route.ready_at, now, before)):
                away.append(place)
            else:
                before += in_line
                self.places.setdefault(route, []).append(place)  # a heap, since sorted
        return away


class Gate:
    """Lets requests through one by one, as all budgets on their route allow.

    Each brings a function, ``leaves``, that tells whether it leaves rather than wait
    that long. ``watch`` is called when a request begins to wait, since the answer may
    change.
    """

    def __init__(
        self,
        watch: Callable[[], None],
        sharing: Sharing,
        spider: Spider | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch = watch
        self._sharing = sharing
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        self._clock = clock
        self._slots: dict[Slot, _Lines] = {}
        self._order = count()

    @property
    def is_busy(self) -> bool:
        return bool(self._slots)

    def has_line(self, slot: Slot) -> bool:
        return slot in self._slots

    def waiting(self, slot: Slot) -> int:
        lines = self._slots.get(slot)
        return 0 if lines is None else sum(map(len, lines.places.values()))

    async def enter(
        self, ticket: Ticket, route: Route, leaves: Leaves
    ) -> Flight | None:
        """Return the permits as soon as they are available; None if that takes too
        long."""
        now = self._clock()
        ready_at = route.ready_at
        has_line = route.slot in self._slots
        if ready_at <= now and not has_line and route.is_open(now):
            return ticket.send(route, now)
        before = self.waiting(route.slot) if has_line else 0
        if leaves(*_waits(route, ready_at, now, before)):
            return None
        # First, since it changes the slot, which would drop an empty line.
        ticket.wait_at_gate(route, now)
        lines = self._slots.setdefault(route.slot, _Lines())
        turn: Deferred[Flight | None] = Deferred()
        place = _Place(
            -ticket.request.priority, next(self._order), ticket, turn, leaves
        )
        self._log_wait(route, ticket.request, ready_at - now, lines.add(route, place))
        self._watch()
        route.join_line()
        if has_line:
            self.advance(route.slot)
        else:
            self._plan(route.slot, lines, now)
        try:
            return await maybe_deferred_to_future(turn)
        except (CancelledError, asyncio.CancelledError):
            self._withdraw(route, place)
            raise
        finally:
            route.leave_line()

    def advance(self, slot: Slot) -> None:
        """Let through all that may go now, and plan for the next. To be called whenever
        the slot may be ready earlier or later than before."""
        lines = self._slots.get(slot)
        # Each request that goes changes the slot, which calls this again.
        if lines is None or lines.is_advancing:
            return
        lines.is_advancing = True
        lines.cancel_timer()
        now = self._clock()
        try:
            while (route := lines.next_to_go(now)) is not None:
                place = lines.pop(route)
                place.turn.callback(place.ticket.renewed().send(route, now))
            if any(_wait(route, now) >= SHORT_WAIT for route in lines.places):
                self._send_away(lines, now)
        finally:
            lines.is_advancing = False
            self._plan(slot, lines, now)

    def reconsider(self) -> None:
        """Send away all that leave rather than wait as long as it will take."""
        now = self._clock()
        for slot, lines in list(self._slots.items()):
            self._send_away(lines, now, in_line=True)
            self._plan(slot, lines, now)

    def _plan(self, slot: Slot, lines: _Lines, now: float) -> None:
        # A request that was just answered may have come back already.
        if self._slots.get(slot) is not lines:
            return
        lines.cancel_timer()
        if not lines.places:
            del self._slots[slot]
        elif slot.has_room:
            wait = min(self._wait_or_reserve(route, now) for route in lines.places)
            lines.timer = call_later(wait, self.advance, slot)

    def _wait_or_reserve(self, route: Route, now: float) -> float:
        """Return when to look again. Where only permits are missing, the slot announces
        that they are there, as a rule earlier."""
        if not route.has_room:
            return _LOOK_AGAIN
        wait = _wait(route, now)
        if not wait and route.lacks_permit(now):
            # A lease or a turn may lapse with that question: the next one comes later.
            wait = _wait(route, now)
            if not wait:
                self._sharing.reserve(route)
                return _RESERVE_AGAIN
        return _LOOK_AGAIN if wait > _LOOK_AGAIN and route.metered else wait

    def _send_away(self, lines: _Lines, now: float, *, in_line: bool = False) -> None:
        for place in lines.send_away(now, in_line=in_line):
            place.turn.callback(None)

    def _withdraw(self, route: Route, place: _Place) -> None:
        lines = self._slots.get(route.slot)
        if lines is not None and lines.remove(route, place):
            place.ticket.end(Outcome(Verdict.IGNORED, "cancelled"))
            self.advance(route.slot)
        else:
            # Its turn has just come: the next sweep settles its permits.
            self._watch()

    def _log_wait(
        self, route: Route, request: Request, delay: float, depth: int
    ) -> None:
        if delay >= NO_WAIT and self._log.isEnabledFor(logging.DEBUG):
            self._log.debug(
                "%(slot)s: %(request)s waits %(delay).2f s, %(depth)d in line",
                {
                    "slot": printable(route.slot.key),
                    "request": public_request(request),
                    "delay": delay,
                    "depth": depth,
                },
            )


def _wait(route: Route, now: float) -> float:
    return max(0.0, route.ready_at - now)


def _waits(
    route: Route, ready_at: float, now: float, before: int
) -> tuple[float, float]:
    """Return how long a request will wait with that many before it: for what the queue
    knows of, and in total."""
    line = before / route.slot.rate if before else 0.0
    wait = max(0.0, ready_at - now)
    seen = max(0.0, route.seen_ready_at - now) if route.unseen else wait
    return seen + line, wait + line
