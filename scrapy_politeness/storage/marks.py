"""What goes with a request that returns to the scheduler: its place there, and what is
known of its page.

It is plain data under one key of the request's meta, so that any queue keeps it. Meta
is copied, by redirects and by spiders that pass ``response.meta`` on: what is known of
a page is true only of that page, so its fingerprint goes with it.

``request.replace`` copies meta, but not what is in it: nothing here is ever changed,
only replaced.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Request
    from scrapy.crawler import Crawler

MARK = "_politeness"

# Removed by the scheduler's queue when the request leaves.
_PLACE = "place"
# A request that returns to the scheduler has to pass the duplicates filter; what
# follows from it, such as a redirect, must still be filtered.
_FILTERED = "filtered"
_PAGE = "page"
_NOTHING: Mapping[str, Any] = {}


class Where(Enum):
    USUAL = "usual"
    FRONT = "front"
    BEHIND = "behind"
    LAST = "last"
    HELD = "held"


class Placement(NamedTuple):
    """FRONT is before all others of its priority, BEHIND after them, LAST after all
    others of its slot, whatever their priority. HELD requests cannot be popped.

    After this many ``seconds``, what is BEHIND, LAST or HELD goes to the front. What is
    HELD and may go ``early`` does so when the crawl has nothing else to do. No other
    page waits for one that is ``failing``.
    """

    where: Where
    seconds: float = 0.0
    early: bool = False
    failing: bool = False

    @property
    def ends(self) -> bool:
        return self.where not in (Where.USUAL, Where.FRONT)

    @property
    def is_held(self) -> bool:
        return self.where is Where.HELD

    def put_on(self, request: Request) -> None:
        _mark(request, **{_PLACE: [self.where.value, *self[1:]]})


USUAL = Placement(Where.USUAL)
FRONT = Placement(Where.FRONT)


def placement_of(request: Request) -> Placement:
    if MARK not in request.meta or _PLACE not in request.meta[MARK]:
        return USUAL
    where, *rest = request.meta[MARK][_PLACE]
    return Placement(Where(where), *rest)


def take_off(request: Request) -> None:
    _unmark(request, _PLACE)


def for_the_scheduler(request: Request) -> Request:
    """Return a copy of the request, to be scheduled in its place."""
    copy = request.replace(dont_filter=True)
    if not request.dont_filter:
        _mark(copy, **{_FILTERED: True})
    return copy


def leave_the_scheduler(request: Request) -> None:
    """Undo what was done to such a copy."""
    if request.meta[MARK].get(_FILTERED):
        request.dont_filter = False
    _unmark(request, _PLACE, _FILTERED)  # a queue of others leaves the place there


def mark_page(crawler: Crawler, request: Request, facts: Mapping[str, Any]) -> None:
    _mark(request, **{_PAGE: [_fingerprint(crawler, request), facts]})


def page_marks_of(crawler: Crawler, request: Request) -> Mapping[str, Any]:
    page = request.meta.get(MARK, _NOTHING).get(_PAGE)
    if page is None or page[0] != _fingerprint(crawler, request):
        return _NOTHING
    facts: Mapping[str, Any] = page[1]
    return facts


def unmark_page(request: Request) -> None:
    _unmark(request, _PAGE)


def _mark(request: Request, **marks: Any) -> None:
    request.meta[MARK] = {**request.meta.get(MARK, _NOTHING), **marks}


def _unmark(request: Request, *names: str) -> None:
    marks = request.meta.pop(MARK)
    if left := {name: mark for name, mark in marks.items() if name not in names}:
        request.meta[MARK] = left


def _fingerprint(crawler: Crawler, request: Request) -> str:
    assert crawler.request_fingerprinter is not None
    return crawler.request_fingerprinter.fingerprint(request).hex()
