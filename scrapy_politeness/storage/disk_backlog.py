"""Requests that wait on disk, slot by slot, where a later run finds them."""

from __future__ import annotations

import logging
import math
import pickle
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from queuelib import queue as queuelib_queues
from scrapy.utils.python import global_object_name
from scrapy.utils.request import request_from_dict

from scrapy_politeness.http.names import printable
from scrapy_politeness.storage import requests_table as sql
from scrapy_politeness.storage.backlog import DAMAGE
from scrapy_politeness.storage.job import DATABASE
from scrapy_politeness.storage.placement import Where

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterator

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.pqueues import QueueProtocol

    from scrapy_politeness.storage.placement import Placement

logger = logging.getLogger(__name__)

# So many go to the front at once, before the event loop gets a chance.
_MOST_RELEASED = 1000

# Among requests of one rank.
_IN_FRONT, _AS_USUAL, _BEHIND = range(3)

# The sign of a place.
_FIFO, _LIFO = 1, -1
_DIRECTIONS: dict[type, int] = {
    queuelib_queues.FifoDiskQueue: _FIFO,
    queuelib_queues.LifoDiskQueue: _LIFO,
    queuelib_queues.LifoSQLiteQueue: _LIFO,  # a subclass of the next one
    queuelib_queues.FifoSQLiteQueue: _FIFO,
}


class DiskBacklog:
    """All slots in one SQLite database, which survives a kill at any moment.

    A request that was popped stays on record until it is done, so that a run that was
    killed can be resumed with it. Nothing is synced to disk per request: a kill of the
    process loses nothing, a power cut perhaps the last moments.

    ``in_progress`` returns the requests that the engine still works on.
    """

    def __init__(
        self,
        folder: str,
        crawler: Crawler,
        queue_cls: type[QueueProtocol],
        start_queue_cls: type[QueueProtocol] | None,
        in_progress: Callable[[], Collection[Request]],
    ) -> None:
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
        self._db = sql.open_requests(Path(folder, DATABASE), self._load)
        self._size = self._counts.total()

    def _load(self, db: sqlite3.Connection) -> None:
        self._warn_dropped(db.execute(sql.DELETE_DAMAGED).rowcount)
        db.execute(sql.HEAL)
        db.execute("UPDATE requests SET taken = 0 WHERE taken")
        db.execute(sql.CAP, (time.time(),))
        [(self._place,)] = db.execute(
            "SELECT COALESCE(MAX(ABS(place)), 0) FROM requests"
        )
        found = db.execute(
            "SELECT slot, COUNT(*), SUM(held != 0), SUM(held AND early) "
            "FROM requests GROUP BY slot"
        ).fetchall()
        self._counts = Counter({slot_key: number for slot_key, number, _, _ in found})
        self._held = Counter({slot_key: held for slot_key, _, held, _ in found if held})
        self._early = sum(early for *_, early in found)
        self._next_release = self._read_next_release(db)

    def push(
        self, slot_key: str, request: Request, placement: Placement, now: float
    ) -> None:
        body = _serialize(request.to_dict(spider=self._spider))
        where, early = placement.where, placement.is_held and placement.early
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
            self._next_release = min(self._next_release, ends)
            ends += self._offset
        self._place += 1
        place = direction * self._place
        order = (where is Where.LAST, band, placement.is_held, early)
        values = (slot_key, rank, place, body, *order, placement.failing, ends, delay)
        self._db.execute(sql.INSERT, values)
        self._counts[slot_key] += 1
        if placement.is_held:
            self._held[slot_key] += 1
            self._early += early
        self._size += 1

    def pop(self, slot_key: str) -> Request | None:
        with self._transaction():
            self._strike_off_done()
            found = self._next(slot_key)
            if found is None:
                return None
            key, body = found
            self._db.execute("UPDATE requests SET taken = 1 WHERE id = ?", (key,))
        self._size -= 1
        self._counts[slot_key] -= 1
        if not self._counts[slot_key]:
            del self._counts[slot_key], self._held[slot_key]
        try:
            request = self._request(body)
        except DAMAGE as error:
            self._db.execute("DELETE FROM requests WHERE id = ?", (key,))
            self._log.warning(
                "%(slot)s: a request left by an earlier run cannot be restored, and is "
                "dropped: %(error)r",
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
            self._drop(slot_key, self._counts[slot_key] - self._held[slot_key])
        return found

    def _drop(self, slot_key: str, number: int) -> None:
        self._counts[slot_key] -= number
        if not self._counts[slot_key]:
            del self._counts[slot_key]
        self._size -= number
        self._warn_dropped(number)

    def _warn_dropped(self, number: int) -> None:
        if number:
            self._log.warning(
                "Requests left by an earlier run are damaged, and are dropped: "
                "%(number)d",
                {"number": number},
            )

    def release(self, now: float) -> Collection[str]:
        if now < self._next_release:
            return ()
        return self._release(sql.ENDED, now + self._offset, _MOST_RELEASED)

    @property
    def has_early(self) -> bool:
        return bool(self._early)

    def release_early(self, now: float) -> Collection[str]:
        return self._release(sql.HELD_EARLY) if self._early else ()

    def _release(self, query: str, *values: float) -> Collection[str]:
        slots = []
        with self._transaction():
            rows = self._db.execute(query, values).fetchall()
            for key, slot_key, rank, held, early in rows:
                self._place += 1
                # In front of all of its priority.
                front = (rank - rank % 2, _IN_FRONT, self._place)
                self._db.execute(sql.TO_FRONT, (*front, key))
                if held:
                    if not self.has_ready(slot_key):
                        slots.append(slot_key)
                    self._held[slot_key] -= 1
                    self._early -= bool(early)
            self._next_release = self._read_next_release(self._db)
        if self._next_release == math.inf:
            self._drop_lost()
        return slots

    def _drop_lost(self) -> None:
        """Nothing is held any more. Where the file is damaged, more was counted."""
        for slot_key, number in (+self._held).items():
            self._drop(slot_key, number)
        self._held.clear()
        self._early = 0

    def _read_next_release(self, db: sqlite3.Connection) -> float:
        [(ends,)] = db.execute(sql.NEXT_END)
        return math.inf if ends is None else ends - self._offset

    @property
    def next_release(self) -> float:
        return self._next_release

    def rest(self) -> None:
        with self._transaction():
            self._strike_off_done()

    def _strike_off_done(self) -> None:
        busy = self._in_progress()
        done = [request for request in self._taken if request not in busy]
        for request in done:
            key = self._taken.pop(request)
            self._db.execute("DELETE FROM requests WHERE id = ?", (key,))

    def has_other(self, slot_key: str) -> bool:
        if not self.has_ready(slot_key):
            return False
        return self._db.execute(sql.OTHER, (slot_key,)).fetchone() is not None

    @property
    def any_ready(self) -> bool:
        return self._size > self._held.total()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN")
        with self._db:  # commits, or takes all back
            yield

    def slots(self) -> Collection[str]:
        return [slot_key for slot_key in self._counts if self.has_ready(slot_key)]

    def has_ready(self, slot_key: str) -> bool:
        return self._counts.get(slot_key, 0) > self._held.get(slot_key, 0)

    def count(self, slot_key: str) -> int:
        return self._counts.get(slot_key, 0)

    def __contains__(self, slot_key: str) -> bool:
        return slot_key in self._counts

    def __len__(self) -> int:
        return self._size

    def close(self) -> None:
        """Nothing is in progress any more: all that was taken is done."""
        self._db.execute("DELETE FROM requests WHERE taken")
        if not self._size:
            # A file keeps the size that it had when it was fullest. Emptied, it is
            # cut in no time.
            self._db.execute("VACUUM")
        self._db.close()

    def _request(self, body: bytes) -> Request:
        return request_from_dict(pickle.loads(body), spider=self._spider)  # noqa: S301

    def _direction_of(self, queue_cls: type[QueueProtocol]) -> int:
        for known, direction in _DIRECTIONS.items():
            if issubclass(queue_cls, known):
                return direction
        self._log.warning(
            "%(queue)s is not used: PolitePriorityQueue stores requests itself, takes "
            "over only the order of Scrapy's disk queues, and does not know the order "
            "of this class; last in, first out is used",
            {"queue": global_object_name(queue_cls)},
        )
        return _LIFO


def _serialize(fields: dict[str, object]) -> bytes:
    """As Scrapy does it: what cannot be pickled is for the memory queue."""
    try:
        return pickle.dumps(fields, protocol=4)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(str(error)) from error
