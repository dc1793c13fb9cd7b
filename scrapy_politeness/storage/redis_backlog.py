"""Where the requests wait that several processes share, as seen from one of them."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from redis import exceptions
from scrapy.utils.request import request_from_dict

from scrapy_politeness.http.names import printable
from scrapy_politeness.storage.backlog import DAMAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from scrapy import Request, Spider

    from scrapy_politeness.storage.placement import Placement
    from scrapy_politeness.storage.redis_requests import SharedQueue, Tidings

logger = logging.getLogger(__name__)

# Seconds. So often is looked for what others have pushed while nothing may go; and for
# the server while it is away.
_LOOK_EVERY = 1.0

# So many new slots are taken note of with each pop, as long as not more than enough
# are known, and so many when there is nothing else to do.
_NEW_PER_POP = 100
_ENOUGH_SLOTS = 10_000
_NEW_AT_REST = 1000

# Where others were faster with one slot, they may have been with so many.
_DOUBTFUL = 100

# Full, or about to be replaced, is as good as gone.
_AWAY = (
    exceptions.ConnectionError,
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.TimeoutError,
)
# So is, for whoever asks, a server where somebody has put something else in the
# queue's place.
_NO_ANSWER = (*_AWAY, exceptions.ResponseError)


class Serializer(Protocol):
    def loads(self, data: Any, /) -> Any: ...

    def dumps(self, obj: Any, /) -> Any: ...


class _Kept(NamedTuple):
    slot: str
    rank: float
    body: bytes
    placement: Placement
    since: float

    def placement_at(self, now: float) -> Placement:
        left = max(0.0, self.placement.seconds - (now - self.since))
        return self.placement._replace(seconds=left)


class SharedBacklog:
    """A slot that is known here may have been emptied by others: then ``pop`` returns
    None, and it is not known any more. ``found`` is called with a slot of which is
    known that it has requests; ``in_progress`` returns what the engine works on.

    While the server is away, nothing is popped, and what is pushed is kept here.
    """

    def __init__(
        self,
        queue: SharedQueue,
        spider: Spider,
        serializer: Serializer,
        in_progress: Callable[[], Collection[Request]],
        found: Callable[[str], None],
    ) -> None:
        self._queue = queue
        self._spider = spider
        self._serializer = serializer
        self._in_progress = in_progress
        self._found = found
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        # As far as is known: at least so many.
        self._counts: dict[str, int] = {}
        # When one of the slot was last popped: exactly.
        self._failing: dict[str, int] = {}
        self._known = 0
        self._size = 0
        self.others_at_work = 0
        self._was_late = False
        self._kept: deque[_Kept] = deque()
        self._is_away = False
        self.look_at = time.monotonic()

    @property
    def is_away(self) -> bool:
        """Tell whether the server has to be left alone for now."""
        return self._is_away and time.monotonic() < self.look_at

    def push(
        self, slot_key: str, request: Request, placement: Placement, now: float
    ) -> None:
        body = self._serializer.dumps(request.to_dict(spider=self._spider))
        self._kept.append(_Kept(slot_key, -request.priority, body, placement, now))
        if not placement.is_held:
            self._counts[slot_key] = self._counts.get(slot_key, 0) + 1
        if self.is_away:
            return
        try:
            self._send_kept()
        except _AWAY as error:
            self._part(error)

    def pop(self, slot_key: str) -> Request | None:
        told = None if self.is_away else self._ask(slot_key, self._new_per_pop)
        if told is None:
            return None
        if told.left:
            self._counts[slot_key] = told.left
        else:
            self._counts.pop(slot_key, None)
        if told.failing > 0:
            self._failing[slot_key] = told.failing
        else:
            self._failing.pop(slot_key, None)
        self._was_late = told.body is None
        return None if told.body is None else self._request(slot_key, told.body)

    def look(self) -> None:
        """Ask what others have done."""
        if not self.is_away:
            self._ask(None, _NEW_AT_REST)

    def rest(self) -> None:
        if time.monotonic() >= self.look_at:
            self.look()

    def release(self, now: float) -> Collection[str]:
        """The server does that, whenever it is asked for anything: see ``look_at``."""
        return ()

    @property
    def has_early(self) -> bool:
        return False

    def release_early(self, now: float) -> Collection[str]:
        """Nobody knows whether the others have nothing else to do."""
        return ()

    @property
    def next_release(self) -> float:
        return math.inf

    def slots(self) -> Collection[str]:
        return self._counts.keys()

    def has_ready(self, slot_key: str) -> bool:
        return slot_key in self._counts

    def has_other(self, slot_key: str) -> bool:
        return self._counts.get(slot_key, 0) > self._failing.get(slot_key, 0)

    @property
    def any_ready(self) -> bool:
        return bool(self._counts)

    def count(self, slot_key: str) -> int:
        return self._counts.get(slot_key, 0)

    def __contains__(self, slot_key: str) -> bool:
        return slot_key in self._counts

    def __len__(self) -> int:
        """In all slots, when that was last told."""
        # Nobody knows what waits there: something may.
        return len(self._kept) + max(self._size, int(self._is_away))

    def clear(self) -> None:
        self._queue.clear()
        self._kept.clear()
        self._counts.clear()
        self._failing.clear()
        self._size = 0

    @property
    def _new_per_pop(self) -> int:
        return _NEW_PER_POP if len(self._counts) < _ENOUGH_SLOTS else 0

    def _send_kept(self) -> None:
        while self._kept:
            kept = self._kept.popleft()
            try:
                placement = kept.placement_at(time.monotonic())
                waiting, self._size = self._queue.push(
                    kept.slot, kept.rank, kept.body, placement
                )
            except _AWAY:
                self._kept.appendleft(kept)
                raise
            if not waiting:  # it is held, as the only one
                continue
            is_new = kept.slot not in self._counts
            self._counts[kept.slot] = waiting
            if is_new:
                self._found(kept.slot)

    def _ask(self, slot_key: str | None, most_new: int) -> Tidings | None:
        doubtful = self._next_doubtful() if self._was_late else []
        at_work = bool(self._in_progress())
        try:
            self._send_kept()
        except _AWAY as error:
            self._part(error)
            return None
        try:
            told = self._queue.pop(
                slot_key, self._known, most_new, doubtful, at_work=at_work
            )
        except _NO_ANSWER as error:
            self._part(error)
            return None
        self._answered(told.ends_in)
        self._size = told.size
        self.others_at_work = told.others
        # All was deleted, and places begin anew.
        self._known = told.known if told.place >= self._known else 0
        for other in told.gone:
            self._counts.pop(other, None)
        for other in told.new:
            if other not in self._counts and other != slot_key:
                self._counts[other] = 1
                self._found(other)
        return told

    def _next_doubtful(self) -> list[str]:
        slots = list(islice(self._counts, _DOUBTFUL))
        for slot_key in slots:  # to the end of the line
            self._counts[slot_key] = self._counts.pop(slot_key)
        return slots

    def _request(self, slot_key: str, body: bytes) -> Request | None:
        try:
            fields = self._serializer.loads(body)
            return request_from_dict(fields, spider=self._spider)
        except DAMAGE as error:
            self._log.warning(
                "%(slot)s: a request in the shared queue cannot be restored, and is "
                "dropped: %(error)r",
                {"slot": printable(slot_key), "error": error},
            )
            return None

    def _answered(self, ends_in: float) -> None:
        self.look_at = time.monotonic() + min(ends_in, _LOOK_EVERY)
        if self._is_away:
            self._is_away = False
            self._log.info("The shared queue in Redis is back")

    def _part(self, error: Exception) -> None:
        self.look_at = time.monotonic() + _LOOK_EVERY
        if not self._is_away:
            self._is_away = True
            self._log.warning(
                "The shared queue in Redis does not answer (%(error)s): nothing is "
                "taken from it until it does, and what is put there is kept here",
                {"error": printable(str(error))},
            )
