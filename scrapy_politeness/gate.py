"""The gate: where a request waits for its permit, whatever way it came."""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import CancelledError, Deferred

from scrapy_politeness.observe.names import printable, public_request
from scrapy_politeness.observe.tally import NO_WAIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request, Spider
    from scrapy.utils.asyncio import CallLaterResult

    from scrapy_politeness.core.route import Flight, Route
    from scrapy_politeness.core.scope import Scope
    from scrapy_politeness.journeys import Journeys

logger = logging.getLogger(__name__)

# Nobody is sent away for a wait of up to this many seconds while the crawl goes on.
SHORT_WAIT = 1.0


class _Place(NamedTuple):
    """In line: the highest priority first, then the oldest."""

    rank: int
    order: int
    request: Request
    turn: Deferred[Flight | None]
    patience: Callable[[], float]


class _Lines:
    """The requests that wait for one slot, in one line for each route."""

    __slots__ = ("places", "timer")

    def __init__(self) -> None:
        self.timer: CallLaterResult | None = None
        self.places: dict[Route, list[_Place]] = {}

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
        self._replace(route, line)
        return True

    def send_away(self, route: Route, wait: float) -> list[_Place]:
        """Remove and return those whose patience is shorter than the wait."""
        stay: list[_Place] = []
        away: list[_Place] = []
        for place in self.places[route]:
            (away if wait > place.patience() else stay).append(place)
        self._replace(route, stay)
        return away

    def _replace(self, route: Route, line: list[_Place]) -> None:
        heapq.heapify(line)
        if line:
            self.places[route] = line
        else:
            del self.places[route]


class Gate:
    """Lets requests through one by one, as all that is on their route allows.

    Each brings its ``patience``: for how many seconds from now it may be kept
    waiting. ``watch`` is called when there is somebody whose patience may change,
    ``want_permits`` where budgets that other processes share have to be asked.
    """

    def __init__(
        self,
        journeys: Journeys,
        watch: Callable[[], None],
        want_permits: Callable[[Route], None],
        spider: Spider | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._journeys = journeys
        self._watch = watch
        self._want_permits = want_permits
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        self._clock = clock
        self._slots: dict[Scope, _Lines] = {}
        self._order = count()

    @property
    def is_busy(self) -> bool:
        return bool(self._slots)

    def has_line(self, slot: Scope) -> bool:
        return slot in self._slots

    def waiting(self, slot: Scope) -> int:
        """Return how many are in line for a slot."""
        lines = self._slots.get(slot)
        return 0 if lines is None else sum(map(len, lines.places.values()))

    async def enter(
        self, route: Route, request: Request, patience: Callable[[], float]
    ) -> Flight | None:
        """Return the permits as soon as they are to be had; None if that takes too
        long."""
        now = self._clock()
        if route.slot not in self._slots and route.may_go(now):
            return self._journeys.depart(request, route, now)
        if _wait(route, now) > patience():
            return None
        # Who waits here goes before those still in the queue.
        self._journeys.claim(request, route, now)
        if route.waits_unseen(now):
            self._journeys.step_aside(request)
        lines = self._slots.setdefault(route.slot, _Lines())
        turn: Deferred[Flight | None] = Deferred()
        place = _Place(-request.priority, next(self._order), request, turn, patience)
        self._log_wait(route, request, now, lines.add(route, place))
        self._watch()
        route.join_line()
        self.advance(route.slot)
        try:
            return await maybe_deferred_to_future(turn)
        except (CancelledError, asyncio.CancelledError):
            self._withdraw(route, place)
            raise
        finally:
            route.join_line(-1)

    def advance(self, slot: Scope) -> None:
        """Let through all who may go now; plan for the next.

        To be called whenever the slot may be ready earlier or later than before.
        """
        lines = self._slots.get(slot)
        if lines is None:
            return
        lines.cancel_timer()
        now = self._clock()
        while (route := lines.next_to_go(now)) is not None:
            place = lines.pop(route)
            place.turn.callback(self._journeys.depart(place.request, route, now))
        self._send_away(lines, now, SHORT_WAIT)
        self._plan(slot, lines, now)

    def look_again(self) -> None:
        """Somebody may have waited for an answer that never came."""
        for slot in list(self._slots):
            self.advance(slot)

    def reconsider(self) -> None:
        """Send away all whose patience has come to an end."""
        now = self._clock()
        for slot, lines in list(self._slots.items()):
            self._send_away(lines, now, 0.0)
            self._plan(slot, lines, now)

    def _plan(self, slot: Scope, lines: _Lines, now: float) -> None:
        # Whoever was just answered may have come back here already, and changed all.
        if self._slots.get(slot) is not lines:
            return
        lines.cancel_timer()
        if not lines.places:
            del self._slots[slot]
        elif slot.has_room:
            waits = [_wait(route, now) for route in self._due_by_time(lines, now)]
            if waits:
                lines.timer = call_later(min(waits), self.advance, slot)

    def _due_by_time(self, lines: _Lines, now: float) -> list[Route]:
        """Return the routes that only have to wait; for the others, permits are asked
        for, and the answer will be the time to go on."""
        by_time = []
        for route in lines.places:
            if route.ready_at <= now and route.lacks_permit(now):
                self._want_permits(route)
            else:
                by_time.append(route)
        return by_time

    def _send_away(self, lines: _Lines, now: float, at_least: float) -> None:
        """Of those who would have to wait so long at least."""
        for route in list(lines.places):
            wait = _wait(route, now)
            if wait >= at_least and route in lines.places:
                for place in lines.send_away(route, wait):
                    place.turn.callback(None)

    def _withdraw(self, route: Route, place: _Place) -> None:
        self._journeys.unclaim(place.request)
        lines = self._slots.get(route.slot)
        if lines is not None and lines.remove(route, place):
            self.advance(route.slot)

    def _log_wait(self, route: Route, request: Request, now: float, depth: int) -> None:
        delay = _wait(route, now)
        if delay >= NO_WAIT:
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
