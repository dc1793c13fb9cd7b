"""Where in its slot a request waits, if not where new ones do."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.storage.marks import MARK, mark, marks_of, unmark

if TYPE_CHECKING:
    from scrapy import Request

# On its way to the scheduler's queue, which takes it off when the request leaves.
_PLACE = "place"

# A request that was sent back to the scheduler had to pass the duplicates filter. What
# follows from it, such as a redirect, must be filtered as ever.
_FILTERED = "filtered"


class Where(Enum):
    USUAL = "usual"
    FRONT = "front"
    BEHIND = "behind"
    LAST = "last"
    HELD = "held"


class Placement(NamedTuple):
    """FRONT is before all others of its priority, BEHIND after them, LAST after all
    others of its slot, whatever their priority. HELD is out of the way: it does not go
    at all.

    After so many ``seconds``, what is BEHIND, LAST or HELD goes to the front. What is
    HELD and may go ``early`` does so when the crawl has nothing else to do. No other
    page is to wait for one that is ``failing``.
    """

    where: Where
    seconds: float = 0.0
    early: bool = False
    failing: bool = False

    @property
    def ends(self) -> bool:
        return self.where in (Where.BEHIND, Where.LAST, Where.HELD)

    @property
    def is_held(self) -> bool:
        return self.where is Where.HELD

    def put_on(self, request: Request) -> None:
        mark(request, **{_PLACE: [self.where.value, *self[1:]]})


USUAL = Placement(Where.USUAL)
FRONT = Placement(Where.FRONT)


def placement_of(request: Request) -> Placement:
    place = marks_of(request).get(_PLACE) if MARK in request.meta else None
    if place is None:
        return USUAL
    where, *rest = place
    return Placement(Where(where), *rest)


def take_off(request: Request) -> None:
    unmark(request, _PLACE)


def for_the_scheduler(request: Request) -> Request:
    """Return a copy of the request, to be scheduled in its place."""
    copy = request.replace(dont_filter=True)
    if not request.dont_filter:
        mark(copy, **{_FILTERED: True})
    return copy


def leave_the_scheduler(request: Request) -> None:
    """Undo what was done to such a copy."""
    take_off(request)  # another queue than ours leaves it there
    if _FILTERED in marks_of(request):
        unmark(request, _FILTERED)
        request.dont_filter = False
