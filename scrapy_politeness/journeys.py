"""Requests that left the queue: on their way to the gate, or sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from scrapy_politeness.core.outcome import Permit
    from scrapy_politeness.core.scope import Scope


class _Claim(NamedTuple):
    scope: Scope
    by_queue: bool


class Flight(NamedTuple):
    scope: Scope
    permit: Permit


class Journeys:
    """A request on its way claims a place in its scope; one that was sent has a permit.

    Both must end, or the scope is blocked for good. Not every end is announced: a
    download may be cancelled, and a middleware may put another request in the place of
    this one. So ``lost`` finds those that the downloader no longer has, for which
    ``is_under_way`` returns False. ``changed`` is called with the scope whenever one
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
        self, request: Request, scope: Scope, now: float, *, by_queue: bool = False
    ) -> None:
        if request not in self._claims:
            self._claims[request] = _Claim(scope, by_queue)
            scope.claim(now)

    def unclaim(self, request: Request) -> None:
        claim = self._claims.pop(request, None)
        if claim is not None:
            claim.scope.unclaim()
            self._changed(claim.scope)

    def came_by_queue(self, request: Request, scope: Scope | None = None) -> bool:
        """Tell whether the queue handed it out, as a request of that scope."""
        claim = self._claims.get(request)
        return claim is not None and claim.by_queue and scope in (None, claim.scope)

    def depart(self, request: Request, scope: Scope, now: float) -> Permit:
        permit = scope.take(now)
        self._flights[request] = Flight(scope, permit)
        self.unclaim(request)
        return permit

    def arrive(self, request: Request) -> Flight | None:
        """Return None for what was never sent."""
        self.unclaim(request)
        return self._flights.pop(request, None)

    def lost(self) -> list[Request]:
        under_way = (*self._claims, *self._flights)
        return [r for r in under_way if not self._is_under_way(r)]
