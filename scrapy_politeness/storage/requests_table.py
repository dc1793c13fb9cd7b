"""The table of requests that wait on disk, and its queries."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scrapy_politeness.storage.sqlite import open_database, write_ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    slot TEXT NOT NULL,
    rank INTEGER NOT NULL,
    place INTEGER NOT NULL,
    taken INTEGER NOT NULL DEFAULT 0,
    body BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS seen (fingerprint BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS job (name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;
"""

# Missing in the database of an earlier version.
_LATER_COLUMNS = {
    # The lowest (last, rank, band, place) of a slot is the next to go.
    "last": "INTEGER NOT NULL DEFAULT 0",
    "band": "INTEGER NOT NULL DEFAULT 1",
    "held": "INTEGER NOT NULL DEFAULT 0",
    "early": "INTEGER NOT NULL DEFAULT 0",
    "failing": "INTEGER NOT NULL DEFAULT 0",
    # When it goes to the front, by the wall clock, and how long that was away.
    "ends": "REAL",
    "delay": "REAL",
}

_INDEXES = """
DROP INDEX IF EXISTS waiting;
CREATE INDEX IF NOT EXISTS ready ON requests (slot, last, rank, band, place)
WHERE NOT taken AND NOT held;
CREATE INDEX IF NOT EXISTS ending ON requests (ends)
WHERE NOT taken AND ends IS NOT NULL;
"""

INSERT = """
INSERT INTO requests
(slot, rank, place, body, last, band, held, early, failing, ends, delay)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

NEXT = """
SELECT id, body FROM requests WHERE slot = ? AND NOT taken AND NOT held
ORDER BY last, rank, band, place LIMIT 1
"""

OTHER = """
SELECT 1 FROM requests WHERE slot = ? AND NOT taken AND NOT held AND NOT failing LIMIT 1
"""

ENDED = """
SELECT id, slot, rank, held, early FROM requests WHERE NOT taken AND ends <= ?
ORDER BY ends LIMIT ?
"""

HELD_EARLY = """
SELECT id, slot, rank, held, early FROM requests WHERE NOT taken AND ends IS NOT NULL
AND held AND early ORDER BY ends
"""

TO_FRONT = """
UPDATE requests SET last = 0, rank = ?, band = ?, place = ?, held = 0, ends = NULL
WHERE id = ?
"""

NEXT_END = "SELECT MIN(ends) FROM requests WHERE NOT taken AND ends IS NOT NULL"

IS_SEEN = "SELECT 1 FROM seen WHERE fingerprint = ?"
SEE = "INSERT OR IGNORE INTO seen VALUES (?)"

# Rows that no version can have stored.
DELETE_DAMAGED = """
DELETE FROM requests WHERE typeof(slot) != 'text' OR typeof(rank) != 'integer'
OR typeof(place) != 'integer' OR place NOT BETWEEN -1e15 AND 1e15
OR typeof(body) != 'blob'
"""

# A request is worth more than its place.
HEAL = """
UPDATE requests SET last = 0, band = 1, held = 0, early = 0, ends = NULL, delay = NULL
WHERE typeof(last) != 'integer' OR typeof(band) != 'integer'
OR typeof(held) != 'integer' OR typeof(early) != 'integer' OR (held AND ends IS NULL)
OR (ends IS NOT NULL AND (typeof(ends) != 'real' OR typeof(delay) != 'real'
OR delay NOT BETWEEN 0 AND 1e10))
"""

# A clock that was set back must not turn a wait of seconds into one of days.
CAP = "UPDATE requests SET ends = MIN(ends, ? + delay) WHERE ends IS NOT NULL"

# The write-ahead log is copied into the database, and synced to disk, when it has
# this many pages of 4 KiB; SQLite's own 1,000 would mean every few hundred requests.
_CHECKPOINT_PAGES = 10_000
# The log is cut back to this size when it had to grow beyond it.
_MOST_LOG_BYTES = _CHECKPOINT_PAGES * 4096


# Seconds that a run which is about to end may take.
_PATIENCE = 1.0


class InUseError(ValueError):
    """Another crawl has the database open."""


class LostRequestsError(ValueError):
    """A run has left requests, and they are gone."""


def open_requests(
    path: Path, load: Callable[[sqlite3.Connection], None]
) -> sqlite3.Connection:
    steps = (_lock, write_ahead, _prepare, load)
    try:
        return open_database(path, *steps, patience=_PATIENCE)
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            raise InUseError(f"{path} is in use") from error
        raise ValueError(f"{path} is not a queue of requests: {error}") from error


def _lock(db: sqlite3.Connection) -> None:
    """Keep others out from the first access until the database is closed, or until the
    process ends, however it ends."""
    db.execute("PRAGMA locking_mode = EXCLUSIVE")


def _prepare(db: sqlite3.Connection) -> None:
    db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    db.execute(f"PRAGMA journal_size_limit = {_MOST_LOG_BYTES}")
    db.executescript(_SCHEMA)
    known = {name for _, name, *_ in db.execute("PRAGMA table_info(requests)")}
    for name, kind in _LATER_COLUMNS.items():
        if name not in known:
            db.execute(f"ALTER TABLE requests ADD COLUMN {name} {kind}")
    db.executescript(_INDEXES)


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN")
    with db:  # commits, or takes all back
        yield


def read_job(db: sqlite3.Connection, name: str) -> int | None:
    row = db.execute("SELECT value FROM job WHERE name = ?", (name,)).fetchone()
    return row[0] if row and isinstance(row[0], int) else None


def write_job(db: sqlite3.Connection, name: str, value: int) -> None:
    db.execute("INSERT OR REPLACE INTO job VALUES (?, ?)", (name, value))


def shrink(db: sqlite3.Connection) -> None:
    """Give back what the requests took: a file never shrinks by itself. That costs as
    much as there is left, so it is done only where that is the smaller part."""
    [(free,)] = db.execute("PRAGMA freelist_count")
    [(pages,)] = db.execute("PRAGMA page_count")
    if free > pages / 2:
        db.execute("VACUUM")
