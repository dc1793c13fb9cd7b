"""Requests that left the queue: on their way to the gate, or sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from scrapy_politeness.core.route import Flight, Route
    from scrapy_politeness.core.scope import Scope


class _Claim(NamedTuple):
    route: Route
    by_queue: bool
    aside: bool = False


class Journeys:
    """A request on its way claims a place in its slot; one that was sent has a permit.

    Both must end, or the slot is blocked for good. Not every end is announced: a
    download may be cancelled, and a middleware may put another request in the place of
    this one. So ``lost`` finds those that the downloader no longer has, for which
    ``is_under_way`` returns False. ``changed`` is called with the slot whenever one
    of its claims is gone.
    """

    def __init__(
        self,
        is_under_way: Callable[[Request], bool],
        changed: Callable[[Scope], None],
    ) -> None:
        self._is_under_way = is_under_way
        self._changed = changed
        self._claims: dict[Request, _Claim] = {}
        self._flights: dict[Request, Flight] = {}

    def claim(
        self, request: Request, route: Route, now: float, *, by_queue: bool = False
    ) -> None:
        if request not in self._claims:
            self._claims[request] = _Claim(route, by_queue)
            route.claim(request, now)

    def unclaim(self, request: Request) -> None:
        claim = self._claims.pop(request, None)
        if claim is not None:
            if claim.aside:
                claim.route.slot.aside -= 1
            else:
                claim.route.unclaim(request)
            self._changed(claim.route.slot)

    def step_aside(self, request: Request) -> None:
        """It waits for something that the queue does not know of: the queue may hand
        out others meanwhile."""
        claim = self._claims[request]
        if not claim.aside:
            self._claims[request] = claim._replace(aside=True)
            claim.route.unclaim(request)
            claim.route.slot.aside += 1
            self._changed(claim.route.slot)

    def came_by_queue(self, request: Request, slot: Scope | None = None) -> bool:
        """Tell whether the queue handed it out, as a request of that slot."""
        claim = self._claims.get(request)
        if claim is None or not claim.by_queue:
            return False
        return slot is None or slot is claim.route.slot

    def depart(self, request: Request, route: Route, now: float) -> Flight:
        flight = self._flights[request] = route.take(now)
        self.unclaim(request)
        return flight

    @property
    def any_sent(self) -> bool:
        return bool(self._flights)

    def arrive(self, request: Request) -> Flight | None:
        """Return None for what was never sent."""
        self.unclaim(request)
        return self._flights.pop(request, None)

    def lost(self) -> list[Request]:
        under_way = (*self._claims, *self._flights)
        return [r for r in under_way if not self._is_under_way(r)]
