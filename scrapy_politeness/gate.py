"""The gate: where a request waits for its permit, whatever way it came."""

from __future__ import annotations

import heapq
import logging
import time
from itertools import count
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request, Spider
    from scrapy.utils.asyncio import CallLaterResult

    from scrapy_politeness.claims import Claims
    from scrapy_politeness.core.outcome import Permit
    from scrapy_politeness.core.scope import Scope

logger = logging.getLogger(__name__)

# Scrapy sends no signal when it begins to close a spider, and then waits for all
# requests in progress, those held here included. So while any are held, the gate
# looks now and then.
_CLOSING_CHECK = 0.5


class _Line:
    """The requests that wait for one scope: highest priority first, then oldest."""

    __slots__ = ("timer", "waiting")

    def __init__(self) -> None:
        self.timer: CallLaterResult | None = None
        self.waiting: list[tuple[int, int, Request, Deferred[Permit | None]]] = []

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Gate:
    """Lets requests through one by one, as their scope allows.

    ``is_closing`` tells whether the spider is being closed: whoever waits is then
    sent away without a permit.
    """

    def __init__(
        self,
        is_closing: Callable[[], bool],
        claims: Claims,
        spider: Spider | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_closing = is_closing
        self._claims = claims
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        self._clock = clock
        self._lines: dict[Scope, _Line] = {}
        self._order = count()
        self._watch: CallLaterResult | None = None

    async def enter(self, scope: Scope, request: Request) -> Permit | None:
        """Return the permit as soon as there is one; None when the spider closes."""
        if self._is_closing():
            return None
        now = self._clock()
        if scope not in self._lines and scope.has_room and scope.ready_at <= now:
            return self._let_through(scope, request, now)
        # Who waits here goes before those still in the queue.
        self._claims.add(request, scope, now)
        line = self._lines.setdefault(scope, _Line())
        turn: Deferred[Permit | None] = Deferred()
        place = (-request.priority, next(self._order), request, turn)
        heapq.heappush(line.waiting, place)
        self._log.debug(
            "%(slot)s: %(request)s waits %(delay).2f s, %(depth)d in line",
            {
                "slot": scope.key,
                "request": request,
                "delay": max(0.0, scope.ready_at - now),
                "depth": len(line.waiting),
            },
        )
        self._watch_for_closing()
        self.advance(scope)
        return await maybe_deferred_to_future(turn)

    def advance(self, scope: Scope) -> None:
        """Let through all who may go now; plan for the next.

        To be called whenever the scope may be ready earlier or later than before.
        """
        line = self._lines.get(scope)
        if line is None:
            return
        line.cancel_timer()
        now = self._clock()
        while line.waiting and scope.has_room and scope.ready_at <= now:
            _, _, request, turn = heapq.heappop(line.waiting)
            turn.callback(self._let_through(scope, request, now))
        if not line.waiting:
            del self._lines[scope]
        elif scope.has_room:
            line.timer = call_later(scope.ready_at - now, self.advance, scope)

    def send_away(self) -> None:
        """Release everybody without a permit."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            line.cancel_timer()
            for _, _, _, turn in line.waiting:
                turn.callback(None)

    def _let_through(self, scope: Scope, request: Request, now: float) -> Permit:
        permit = scope.take(now)
        self._claims.release(request)
        return permit

    def _watch_for_closing(self) -> None:
        if self._watch is None:
            self._watch = call_later(_CLOSING_CHECK, self._check_closing)

    def _check_closing(self) -> None:
        self._watch = None
        if self._is_closing():
            self.send_away()
        elif self._lines:
            self._watch_for_closing()
