"""Where in its slot a request waits, if not where new ones do."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from scrapy import Request

# On its way to the scheduler's queue, which takes it off when the request leaves.
_MARK = "_politeness_placement"


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
        request.meta[_MARK] = [self.where.value, *self[1:]]


USUAL = Placement(Where.USUAL)
FRONT = Placement(Where.FRONT)


def placement_of(request: Request) -> Placement:
    mark = request.meta.get(_MARK)
    if mark is None:
        return USUAL
    where, *rest = mark
    return Placement(Where(where), *rest)


def take_off(request: Request) -> None:
    request.meta.pop(_MARK, None)
