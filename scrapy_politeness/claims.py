"""Requests that left the queue and have not been sent yet."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from scrapy_politeness.core.scope import Scope


class Claims:
    """Each claims a place in its scope until it is released.

    A request that vanishes on the way, since some middleware put another in its place,
    frees its claim by itself: it is held weakly. ``changed`` is called with the scope
    whenever one of its claims is gone.
    """

    def __init__(self, changed: Callable[[Scope], None]) -> None:
        self._changed = changed
        self._scopes: dict[ref[Request], Scope] = {}

    def add(self, request: Request, scope: Scope, now: float) -> None:
        key = ref(request, self._free)
        if key not in self._scopes:
            self._scopes[key] = scope
            scope.claim(now)

    def release(self, request: Request) -> None:
        self._free(ref(request))

    def _free(self, key: ref[Request]) -> None:
        scope = self._scopes.pop(key, None)
        if scope is not None:
            scope.unclaim()
            self._changed(scope)
