"""Requests that several processes share, as seen from one of them."""

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

    from scrapy_politeness.storage.marks import Placement
    from scrapy_politeness.storage.redis_requests import (
        Fingerprint,
        PopReply,
        SharedQueue,
    )

logger = logging.getLogger(__name__)

# Seconds between looks at what others have pushed while nothing may be sent, and
# between attempts to reach the server.
_LOOK_EVERY = 1.0

# How many new slots are asked for with each pop, unless enough are known, and how many
# when there is nothing else to do.
_NEW_PER_POP = 100
_ENOUGH_SLOTS = 10_000
_NEW_WHEN_IDLE = 1000

# Where another process was faster with one slot, this many more are checked.
_DOUBTFUL = 100

# A server that is full, about to be replaced, or whose queue was overwritten by another
# program is as good as gone. Older ones put the code of such an error somewhere inside
# its message, so that its class says nothing.
AWAY = (
    exceptions.ConnectionError,
    exceptions.RedisClusterException,  # no node answers
    exceptions.ResponseError,
    exceptions.TimeoutError,
)
# Except for a request whose slot was overwritten: that would block all others.
_REFUSED = "WRONGTYPE"


class Serializer(Protocol):
    def loads(self, data: Any, /) -> Any: ...

    def dumps(self, obj: Any, /) -> Any: ...


class _Kept(NamedTuple):
    number: int
    slot: str
    rank: float
    body: bytes
    placement: Placement
    since: float
    fingerprint: Fingerprint | None

    def placement_at(self, now: float) -> Placement:
        left = max(0.0, self.placement.seconds - (now - self.since))
        return self.placement._replace(seconds=left)


class SharedBacklog:
    """A slot that is ready here may have been emptied by others: then ``pop`` returns
    None, and the slot is ready no longer. ``found`` is called with each slot that turns
    out to have requests; ``in_progress`` returns what the engine works on.

    While the server is away, nothing is popped, and what is pushed is kept here.
    """

    # Redis itself releases what is held, whenever it is asked for anything: see
    # ``look_at``. Nothing goes early, since the others may have something else to do.
    early = 0
    next_release = math.inf

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
        # As far as is known; there may be more.
        self.ready: dict[str, int] = {}
        # As of the last pop from the slot.
        self._failing: dict[str, int] = {}
        self._known = 0
        self._size = 0
        self.others_at_work = 0
        self._was_late = False
        self._kept: deque[_Kept] = deque()
        self._kept_fingerprints: set[Fingerprint | None] = set()
        self._filtered: tuple[Request, Fingerprint] | None = None
        self._taken: dict[Request, int] = {}
        # Whether ``done`` is called.
        self.hears_of_ends = False
        self._is_away = False
        self.look_at = time.monotonic()

    @property
    def is_away(self) -> bool:
        """Tell whether it is too early to try the server again."""
        return self._is_away and time.monotonic() < self.look_at

    def push(
        self, slot_key: str, request: Request, placement: Placement, now: float
    ) -> None:
        body = self._serializer.dumps(request.to_dict(spider=self._spider))
        fingerprint = self._take_fingerprint(request)
        self._kept_fingerprints.add(fingerprint)
        number = self._queue.next_number()
        rank = -request.priority
        self._kept.append(
            _Kept(number, slot_key, rank, body, placement, now, fingerprint)
        )
        if not placement.is_held:
            self.ready[slot_key] = self.ready.get(slot_key, 0) + 1
        if self.is_away:
            return
        try:
            self._send_kept()
        except AWAY as error:
            if _REFUSED in str(error):
                raise
            self._part(error)

    def pop(self, slot_key: str) -> Request | None:
        reply = None if self.is_away else self._ask(slot_key, self._new_per_pop)
        if reply is None:
            return None
        if reply.left:
            self.ready[slot_key] = reply.left
        else:
            self.ready.pop(slot_key, None)
        if reply.failing > 0:
            self._failing[slot_key] = reply.failing
        else:
            self._failing.pop(slot_key, None)
        self._was_late = reply.body is None
        if reply.body is None:
            return None
        request = self._request(slot_key, reply.body)
        if request is None:
            self._queue.done(reply.number)
        else:
            self._taken[request] = reply.number
        return request

    def look(self) -> None:
        """Ask what others have done."""
        if not self.is_away:
            self._ask(None, _NEW_WHEN_IDLE)

    def done(self, request: Request) -> None:
        number = self._taken.pop(request, None)
        if number is not None:
            self._queue.done(number)

    def is_kept(self, fingerprint: Fingerprint) -> bool:
        """Tell whether a request waits here for the server to be back."""
        return fingerprint in self._kept_fingerprints

    def filter(self, request: Request, fingerprint: Fingerprint) -> None:
        """Push the request, which comes next, only if it was not seen before."""
        self._filtered = request, fingerprint

    def _take_fingerprint(self, request: Request) -> Fingerprint | None:
        filtered, self._filtered = self._filtered, None
        return filtered[1] if filtered and filtered[0] is request else None

    def tidy(self) -> None:
        if time.monotonic() >= self.look_at:
            self.look()

    def release(self, now: float) -> Collection[str]:
        return ()

    def release_early(self) -> Collection[str]:
        return ()

    def has_other(self, slot_key: str) -> bool:
        return self.ready.get(slot_key, 0) > self._failing.get(slot_key, 0)

    def count(self, slot_key: str) -> int:
        return self.ready.get(slot_key, 0)

    def __len__(self) -> int:
        # While the server is away, something may wait there.
        return len(self._kept) + max(self._size, int(self._is_away))

    def clear(self) -> None:
        self._queue.clear()
        self._kept.clear()
        self._kept_fingerprints.clear()
        self.ready.clear()
        self._failing.clear()
        self._size = 0

    @property
    def _new_per_pop(self) -> int:
        return _NEW_PER_POP if len(self.ready) < _ENOUGH_SLOTS else 0

    def _send_kept(self) -> None:
        while self._kept:
            kept = self._kept.popleft()
            try:
                placement = kept.placement_at(time.monotonic())
                waiting, self._size = self._queue.push(
                    kept.slot,
                    kept.rank,
                    kept.body,
                    placement,
                    number=kept.number,
                    fingerprint=kept.fingerprint,
                )
            except AWAY as error:
                if _REFUSED in str(error):
                    self._kept_fingerprints.discard(kept.fingerprint)
                else:
                    self._kept.appendleft(kept)
                raise
            self._kept_fingerprints.discard(kept.fingerprint)
            if not waiting:  # it is held, as the only one
                continue
            is_new = kept.slot not in self.ready
            self.ready[kept.slot] = waiting
            if is_new:
                self._found(kept.slot)

    def _ask(self, slot_key: str | None, most_new: int) -> PopReply | None:
        doubtful = self._next_doubtful() if self._was_late else []
        in_progress = self._in_progress()
        if not self.hears_of_ends:
            for request in [each for each in self._taken if each not in in_progress]:
                self.done(request)
        try:
            self._send_kept()
            reply = self._queue.pop(
                slot_key, self._known, most_new, doubtful, at_work=bool(in_progress)
            )
        except AWAY as error:
            self._part(error)
            return None
        self._answered(reply.ends_in)
        self._size = reply.size
        self.others_at_work = reply.others
        # Otherwise all was deleted, and places start over.
        self._known = reply.known if reply.place >= self._known else 0
        for other in reply.gone:
            self.ready.pop(other, None)
        for other in reply.new:
            if other not in self.ready and other != slot_key:
                self.ready[other] = 1
                self._found(other)
        return reply

    def _next_doubtful(self) -> list[str]:
        slots = list(islice(self.ready, _DOUBTFUL))
        for slot_key in slots:  # check others next time
            self.ready[slot_key] = self.ready.pop(slot_key)
        return slots

    def _request(self, slot_key: str, body: bytes) -> Request | None:
        try:
            fields = self._serializer.loads(body)
            return request_from_dict(fields, spider=self._spider)
        except DAMAGE as error:
            self._log.warning(
                "%(slot)s: dropped a request from the shared queue that cannot be "
                "restored: %(error)r",
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
                "The shared queue in Redis does not answer (%(error)s): until it does, "
                "no requests are taken from it, and new ones are kept in memory",
                {"error": printable(str(error))},
            )
