"""Where the requests of a priority queue wait, slot by slot: in memory or on disk."""

from __future__ import annotations

import logging
import pickle
import sqlite3
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from queuelib import queue as queuelib_queues
from scrapy.pqueues import ScrapyPriorityQueue
from scrapy.utils.python import global_object_name
from scrapy.utils.request import request_from_dict

from scrapy_politeness.job import DATABASE
from scrapy_politeness.observe.names import printable
from scrapy_politeness.stores.sqlite import open_database, write_ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.pqueues import QueueProtocol

logger = logging.getLogger(__name__)


class Backlog(Protocol):
    """Within a slot the highest priority comes first; among equals, requests from the
    spider's callbacks come before its start requests."""

    def push(self, slot: str, request: Request) -> None: ...

    def pop(self, slot: str) -> Request | None:
        """Return None where the next one was damaged, and has been dropped."""

    def slots(self) -> Collection[str]:
        """Return the slots that have requests."""

    def count(self, slot: str) -> int: ...

    def rest(self) -> None:
        """Nothing may go now: time to tidy up."""

    def __contains__(self, slot: str) -> bool: ...

    def __len__(self) -> int: ...


class OwnBacklog(Backlog, Protocol):
    """Of this process alone."""

    def peek(self, slot: str) -> Request | None: ...

    def close(self) -> None: ...


class MemoryBacklog:
    """One of Scrapy's own priority queues per slot."""

    def __init__(
        self,
        crawler: Crawler,
        queue_cls: type[QueueProtocol],
        start_queue_cls: type[QueueProtocol] | None,
    ) -> None:
        self._crawler = crawler
        self._queue_cls = queue_cls
        self._start_queue_cls = start_queue_cls
        self._queues: dict[str, ScrapyPriorityQueue] = {}
        self._counts: Counter[str] = Counter()
        self._size = 0

    def push(self, slot: str, request: Request) -> None:
        queue = self._queues.get(slot)
        if queue is None:
            queue = self._queues[slot] = ScrapyPriorityQueue(
                self._crawler,
                self._queue_cls,
                "",
                start_queue_cls=self._start_queue_cls,
            )
        queue.push(request)
        self._counts[slot] += 1
        self._size += 1

    def pop(self, slot: str) -> Request | None:
        request = self._queues[slot].pop()
        self._size -= 1
        self._counts[slot] -= 1
        if not self._counts[slot]:
            del self._counts[slot], self._queues[slot]
        return request

    def peek(self, slot: str) -> Request | None:
        return self._queues[slot].peek()

    def slots(self) -> Collection[str]:
        return self._counts.keys()

    def count(self, slot: str) -> int:
        return self._counts.get(slot, 0)

    def rest(self) -> None:
        pass

    def __contains__(self, slot: str) -> bool:
        return slot in self._counts

    def __len__(self) -> int:
        return self._size

    def close(self) -> None:
        for queue in self._queues.values():
            queue.close()


_SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    slot TEXT NOT NULL,
    -- The lowest (rank, place) of a slot is the next to go.
    rank INTEGER NOT NULL,
    place INTEGER NOT NULL,
    taken INTEGER NOT NULL DEFAULT 0,
    body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS waiting ON requests (slot, rank, place) WHERE NOT taken;
"""

_NEXT = """
SELECT id, body FROM requests WHERE slot = ? AND NOT taken
ORDER BY rank, place LIMIT 1
"""

# What nobody can have stored here.
_DELETE_DAMAGED = """
DELETE FROM requests WHERE typeof(slot) != 'text' OR typeof(rank) != 'integer'
OR typeof(place) != 'integer' OR place NOT BETWEEN -1e15 AND 1e15
OR typeof(body) != 'blob'
"""

# The write-ahead log is copied into the database, and synced to disk, when it has
# this many pages of 4 KiB; SQLite's own 1,000 would mean every few hundred requests.
_CHECKPOINT_PAGES = 10_000
# What the log is cut back to when it had to grow beyond that.
_MOST_LOG_BYTES = _CHECKPOINT_PAGES * 4096

# What unpickling bytes that were damaged can raise, and making a request of fields
# that do not fit the spider any more.
DAMAGE = (
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    OverflowError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
)

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
        self._db = _open(Path(folder, DATABASE), self._load)
        self._size = self._counts.total()

    def _load(self, db: sqlite3.Connection) -> None:
        self._warn_dropped(db.execute(_DELETE_DAMAGED).rowcount)
        db.execute("UPDATE requests SET taken = 0 WHERE taken")
        [(self._place,)] = db.execute(
            "SELECT COALESCE(MAX(ABS(place)), 0) FROM requests"
        )
        counts = db.execute("SELECT slot, COUNT(*) FROM requests GROUP BY slot")
        self._counts = Counter(dict(counts.fetchall()))

    def push(self, slot: str, request: Request) -> None:
        body = _serialize(request.to_dict(spider=self._spider))
        rank = -2 * request.priority
        direction = self._direction
        if self._start_direction and request.meta.get("is_start_request"):
            rank += 1
            direction = self._start_direction
        self._place += 1
        self._db.execute(
            "INSERT INTO requests (slot, rank, place, body) VALUES (?, ?, ?, ?)",
            (slot, rank, direction * self._place, body),
        )
        self._counts[slot] += 1
        self._size += 1

    def pop(self, slot: str) -> Request | None:
        with self._transaction():
            self._strike_off_done()
            found = self._next(slot)
            if found is None:
                return None
            key, body = found
            self._db.execute("UPDATE requests SET taken = 1 WHERE id = ?", (key,))
        self._size -= 1
        self._counts[slot] -= 1
        if not self._counts[slot]:
            del self._counts[slot]
        try:
            request = self._request(body)
        except DAMAGE as error:
            self._db.execute("DELETE FROM requests WHERE id = ?", (key,))
            self._log.warning(
                "%(slot)s: a request left by an earlier run cannot be restored, and is "
                "dropped: %(error)r",
                {"slot": printable(slot), "error": error},
            )
            return None
        self._taken[request] = key
        return request

    def peek(self, slot: str) -> Request | None:
        found = self._next(slot)
        if found is None:
            return None
        _, body = found
        try:
            return self._request(body)
        except DAMAGE:
            return self.pop(slot)  # which drops it, and says so

    def _next(self, slot: str) -> tuple[int, bytes] | None:
        found: tuple[int, bytes] | None = self._db.execute(_NEXT, (slot,)).fetchone()
        if found is None:  # the file is damaged: what was counted is not there
            number = self._counts.pop(slot)
            self._size -= number
            self._warn_dropped(number)
        return found

    def _warn_dropped(self, number: int) -> None:
        if number:
            self._log.warning(
                "Requests left by an earlier run are damaged, and are dropped: "
                "%(number)d",
                {"number": number},
            )

    def rest(self) -> None:
        with self._transaction():
            self._strike_off_done()

    def _strike_off_done(self) -> None:
        busy = self._in_progress()
        done = [request for request in self._taken if request not in busy]
        for request in done:
            key = self._taken.pop(request)
            self._db.execute("DELETE FROM requests WHERE id = ?", (key,))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN")
        with self._db:  # commits, or takes all back
            yield

    def slots(self) -> Collection[str]:
        return self._counts.keys()

    def count(self, slot: str) -> int:
        return self._counts.get(slot, 0)

    def __contains__(self, slot: str) -> bool:
        return slot in self._counts

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


def _open(path: Path, load: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    try:
        return open_database(path, write_ahead, _prepare, load)
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path} is not a queue of requests: {error}") from error


def _prepare(db: sqlite3.Connection) -> None:
    db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    db.execute(f"PRAGMA journal_size_limit = {_MOST_LOG_BYTES}")
    db.executescript(_SCHEMA)


def _serialize(fields: dict[str, object]) -> bytes:
    """As Scrapy does it: what cannot be pickled is for the memory queue."""
    try:
        return pickle.dumps(fields, protocol=4)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(str(error)) from error
