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

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request, Spider
    from scrapy.utils.asyncio import CallLaterResult

    from scrapy_politeness.core.outcome import Permit
    from scrapy_politeness.core.scope import Scope
    from scrapy_politeness.journeys import Journeys

logger = logging.getLogger(__name__)

# Nobody is sent away for a wait of up to this many seconds while the crawl goes on.
SHORT_WAIT = 1.0

# A request that is handed out a little early waits a few milliseconds: no news.
NO_WAIT = 0.05


class _Place(NamedTuple):
    """In line: the highest priority first, then the oldest."""

    rank: int
    order: int
    request: Request
    turn: Deferred[Permit | None]
    patience: Callable[[], float]


class _Line:
    """The requests that wait for one scope."""

    __slots__ = ("places", "timer")

    def __init__(self) -> None:
        self.timer: CallLaterResult | None = None
        self.places: list[_Place] = []

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Gate:
    """Lets requests through one by one, as their scope allows.

    Each brings its ``patience``: for how many seconds from now it may be kept
    waiting. ``watch`` is called when there is somebody whose patience may change.
    """

    def __init__(
        self,
        journeys: Journeys,
        watch: Callable[[], None],
        spider: Spider | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._journeys = journeys
        self._watch = watch
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        self._clock = clock
        self._lines: dict[Scope, _Line] = {}
        self._order = count()

    @property
    def is_busy(self) -> bool:
        return bool(self._lines)

    async def enter(
        self, scope: Scope, request: Request, patience: Callable[[], float]
    ) -> Permit | None:
        """Return the permit as soon as there is one; None if that takes too long."""
        now = self._clock()
        if scope not in self._lines and scope.has_room and scope.ready_at <= now:
            return self._journeys.depart(request, scope, now)
        if _wait(scope, now) > patience():
            return None
        # Who waits here goes before those still in the queue.
        self._journeys.claim(request, scope, now)
        line = self._lines.setdefault(scope, _Line())
        turn: Deferred[Permit | None] = Deferred()
        place = _Place(-request.priority, next(self._order), request, turn, patience)
        heapq.heappush(line.places, place)
        self._log_wait(scope, request, now, len(line.places))
        self._watch()
        self.advance(scope)
        try:
            return await maybe_deferred_to_future(turn)
        except (CancelledError, asyncio.CancelledError):
            self._withdraw(scope, place)
            raise

    def advance(self, scope: Scope) -> None:
        """Let through all who may go now; plan for the next.

        To be called whenever the scope may be ready earlier or later than before.
        """
        line = self._lines.get(scope)
        if line is None:
            return
        line.cancel_timer()
        now = self._clock()
        while line.places and scope.has_room and scope.ready_at <= now:
            place = heapq.heappop(line.places)
            place.turn.callback(self._journeys.depart(place.request, scope, now))
        if _wait(scope, now) > SHORT_WAIT:
            self._send_away(line, _wait(scope, now))
        self._plan(scope, line, now)

    def reconsider(self) -> None:
        """Send away all whose patience has come to an end."""
        now = self._clock()
        for scope, line in list(self._lines.items()):
            self._send_away(line, _wait(scope, now))
            self._plan(scope, line, now)

    def _plan(self, scope: Scope, line: _Line, now: float) -> None:
        # Whoever was just answered may have come back here already, and changed all.
        if self._lines.get(scope) is not line:
            return
        line.cancel_timer()
        if not line.places:
            del self._lines[scope]
        elif scope.has_room:
            line.timer = call_later(_wait(scope, now), self.advance, scope)

    def _send_away(self, line: _Line, wait: float) -> None:
        stay: list[_Place] = []
        away: list[_Place] = []
        for place in line.places:
            (away if wait > place.patience() else stay).append(place)
        heapq.heapify(stay)
        line.places = stay
        for place in away:
            place.turn.callback(None)

    def _withdraw(self, scope: Scope, place: _Place) -> None:
        self._journeys.unclaim(place.request)
        line = self._lines.get(scope)
        if line is not None and place in line.places:
            line.places.remove(place)
            heapq.heapify(line.places)
            self.advance(scope)

    def _log_wait(self, scope: Scope, request: Request, now: float, depth: int) -> None:
        delay = _wait(scope, now)
        if delay >= NO_WAIT:
            self._log.debug(
                "%(slot)s: %(request)s waits %(delay).2f s, %(depth)d in line",
                {
                    "slot": scope.key,
                    "request": request,
                    "delay": delay,
                    "depth": depth,
                },
            )


def _wait(scope: Scope, now: float) -> float:
    return max(0.0, scope.ready_at - now)
