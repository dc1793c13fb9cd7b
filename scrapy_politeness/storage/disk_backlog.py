"""Requests that wait on disk, slot by slot, where a later run finds them."""

from __future__ import annotations

import logging
import math
import pickle
import time
from pathlib import Path
from typing import TYPE_CHECKING

from queuelib import queue as queuelib_queues
from scrapy.utils.python import global_object_name
from scrapy.utils.request import request_from_dict

from scrapy_politeness.core.text import counted
from scrapy_politeness.http.names import printable
from scrapy_politeness.storage import requests_table as sql
from scrapy_politeness.storage.backlog import DAMAGE, Counted
from scrapy_politeness.storage.job import DATABASE
from scrapy_politeness.storage.marks import Where
from scrapy_politeness.storage.seen import SeenRequests

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection
    from contextlib import AbstractContextManager

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.pqueues import QueueProtocol

    from scrapy_politeness.storage.marks import Placement

logger = logging.getLogger(__name__)

# Among what is known of the job: how many requests the last run left, while it runs
# this.
_LEFT = "left"
_RUNNING = -1

# How many go to the front before the event loop gets a chance to run.
_MOST_RELEASED = 1000

# Bands among requests of one rank.
_IN_FRONT, _AS_USUAL, _BEHIND = range(3)

# The sign of a place.
_FIFO, _LIFO = 1, -1
_DIRECTIONS: dict[type, int] = {
    queuelib_queues.FifoDiskQueue: _FIFO,
    queuelib_queues.LifoDiskQueue: _LIFO,
    queuelib_queues.LifoSQLiteQueue: _LIFO,  # a subclass of the next one
    queuelib_queues.FifoSQLiteQueue: _FIFO,
}


class DiskBacklog(Counted):
    """All slots in one SQLite database, which survives a kill at any moment.

    A request that was popped stays on record until it is done, so that a run that was
    killed resumes with it. Nothing is synced to disk per request: killing the process
    loses nothing, a power cut perhaps the last moments.

    ``in_progress`` returns the requests that the engine still works on. ``is_resumed``
    says that a run before this one has stopped with requests left.
    """

    def __init__(
        self,
        folder: str,
        crawler: Crawler,
        queue_cls: type[QueueProtocol],
        start_queue_cls: type[QueueProtocol] | None,
        in_progress: Callable[[], Collection[Request]],
        *,
        is_resumed: bool = False,
    ) -> None:
        super().__init__()
        self._spider = crawler.spider
        self._log = logging.LoggerAdapter(logger, {"spider": crawler.spider})
        self._in_progress = in_progress
        self._direction = self._direction_of(queue_cls)
        self._start_direction = (
            self._direction_of(start_queue_cls) if start_queue_cls else None
        )
        self._taken: dict[Request, int] = {}
        # From the monotonic clock to the wall clock, as it was set at the start.
        self._offset = time.time() - time.monotonic()
        self._is_resumed = is_resumed
        self._db = sql.open_requests(Path(folder, DATABASE), self._load)
        self.seen = SeenRequests(self._db)

    def _load(self, db: sqlite3.Connection) -> None:
        damaged = db.execute(sql.DELETE_DAMAGED).rowcount
        db.execute(sql.HEAL)
        db.execute("UPDATE requests SET taken = 0 WHERE taken")
        db.execute(sql.CAP, (time.time(),))
        [(self._place,)] = db.execute(
            "SELECT COALESCE(MAX(ABS(place)), 0) FROM requests"
        )
        counts = db.execute(
            "SELECT held != 0, slot, COUNT(*), SUM(held AND early) FROM requests "
            "GROUP BY 1, 2"
        )
        for held, slot_key, number, early in counts:
            (self.held if held else self.ready)[slot_key] = number
            self.early += early
        self._size = sum(self.ready.values()) + sum(self.held.values())
        self.next_release = self._read_next_release(db)
        self._miss(sql.read_job(db, _LEFT), damaged)
        sql.write_job(db, _LEFT, _RUNNING)

    def _miss(self, left: int | None, damaged: int) -> None:
        """Compare what is there with what the last run has left, where it could say."""
        if left is None:
            left = int(self._is_resumed)
        if left > 0 and not self._size:
            raise sql.LostRequestsError
        self._warn_dropped(max(left - self._size, damaged))

    def push(
        self, slot_key: str, request: Request, placement: Placement, now: float
    ) -> None:
        body = _serialize(request.to_dict(spider=self._spider))
        where, is_held = placement.where, placement.is_held
        rank = -2 * request.priority
        band, direction = _AS_USUAL, self._direction
        if where is not Where.USUAL:
            band, direction = _BEHIND, _FIFO
            if where is Where.FRONT:
                band = _IN_FRONT
            else:
                rank += 1
        elif self._start_direction and request.meta.get("is_start_request"):
            rank += 1
            direction = self._start_direction
        ends = delay = None
        if placement.ends:
            ends, delay = now + placement.seconds, placement.seconds
            self.next_release = min(self.next_release, ends)
            ends += self._offset
        self._place += 1
        place = direction * self._place
        order = (where is Where.LAST, band, is_held, is_held and placement.early)
        values = (slot_key, rank, place, body, *order, placement.failing, ends, delay)
        with self._transaction():
            self._db.execute(sql.INSERT, values)
            self.seen.store(request)
        self._count_pushed(slot_key, placement)

    def pop(self, slot_key: str) -> Request | None:
        with self._transaction():
            self._strike_off_done()
            found = self._next(slot_key)
            if found is None:
                return None
            key, body = found
            self._db.execute("UPDATE requests SET taken = 1 WHERE id = ?", (key,))
        self._count_gone(self.ready, slot_key)
        try:
            request = self._request(body)
        except DAMAGE as error:
            self._db.execute("DELETE FROM requests WHERE id = ?", (key,))
            self._log.warning(
                "%(slot)s: dropped a request left by an earlier run that cannot be "
                "restored: %(error)r",
                {"slot": printable(slot_key), "error": error},
            )
            return None
        self._taken[request] = key
        return request

    def peek(self, slot_key: str) -> Request | None:
        found = self._next(slot_key)
        if found is None:
            return None
        _, body = found
        try:
            return self._request(body)
        except DAMAGE:
            return self.pop(slot_key)  # which drops it, and says so

    def _next(self, slot_key: str) -> tuple[int, bytes] | None:
        rows = self._db.execute(sql.NEXT, (slot_key,))
        found: tuple[int, bytes] | None = rows.fetchone()
        if found is None:  # the file is damaged: what was counted is not there
            self._drop(self.ready, slot_key)
        return found

    def _drop(self, counts: dict[str, int], slot_key: str) -> None:
        number = counts[slot_key]
        self._count_gone(counts, slot_key, number)
        self._warn_dropped(number)

    def _warn_dropped(self, number: int) -> None:
        if number:
            self._log.warning(
                "Dropped %(requests)s: damaged on disk",
                {"requests": counted(number, "request")},
            )

    def release(self, now: float) -> Collection[str]:
        if now < self.next_release:
            return ()
        return self._release(sql.ENDED, now + self._offset, _MOST_RELEASED)

    def release_early(self) -> Collection[str]:
        return self._release(sql.HELD_EARLY)

    def _release(self, query: str, *values: float) -> Collection[str]:
        slots = []
        with self._transaction():
            rows = self._db.execute(query, values).fetchall()
            for key, slot_key, rank, held, early in rows:
                self._place += 1
                # In front of all of its priority.
                front = (rank - rank % 2, _IN_FRONT, self._place)
                self._db.execute(sql.TO_FRONT, (*front, key))
                if held and self._count_released(slot_key, early=bool(early)):
                    slots.append(slot_key)
            self.next_release = self._read_next_release(self._db)
        if self.next_release == math.inf:
            self._drop_lost()
        return slots

    def _drop_lost(self) -> None:
        """Nothing is held any more. Where the file is damaged, more was counted."""
        for slot_key in list(self.held):
            self._drop(self.held, slot_key)
        self.early = 0

    def _read_next_release(self, db: sqlite3.Connection) -> float:
        [(ends,)] = db.execute(sql.NEXT_END)
        return math.inf if ends is None else ends - self._offset

    def done(self, request: Request) -> None:
        key = self._taken.pop(request, None)
        if key is not None:
            self._db.execute("DELETE FROM requests WHERE id = ?", (key,))

    def tidy(self) -> None:
        with self._transaction():
            self._strike_off_done()

    def _strike_off_done(self) -> None:
        """Those whose end was not announced."""
        busy = self._in_progress()
        for request in [each for each in self._taken if each not in busy]:
            self.done(request)

    def has_other(self, slot_key: str) -> bool:
        if slot_key not in self.ready:
            return False
        return self._db.execute(sql.OTHER, (slot_key,)).fetchone() is not None

    def _transaction(self) -> AbstractContextManager[None]:
        return sql.transaction(self._db)

    def close(self) -> None:
        """Nothing is in progress any more: all that was taken is done."""
        with self._transaction():
            self._db.execute("DELETE FROM requests WHERE taken")
            self.seen.close()
            sql.write_job(self._db, _LEFT, self._size)
        if not self._size:
            sql.shrink(self._db)
        self._db.close()

    def _request(self, body: bytes) -> Request:
        return request_from_dict(pickle.loads(body), spider=self._spider)  # noqa: S301

    def _direction_of(self, queue_cls: type[QueueProtocol]) -> int:
        for known, direction in _DIRECTIONS.items():
            if issubclass(queue_cls, known):
                return direction
        self._log.warning(
            "%(queue)s is not used: PolitePriorityQueue stores requests itself, and "
            "only adopts the order of Scrapy's own disk queues. Requests will be "
            "crawled last in, first out",
            {"queue": global_object_name(queue_cls)},
        )
        return _LIFO


def _serialize(fields: dict[str, object]) -> bytes:
    """Like Scrapy: what cannot be pickled goes to the memory queue."""
    try:
        return pickle.dumps(fields, protocol=4)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(str(error)) from error
