"""The file that outlives the run: pauses, and what was learned about each slot."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.text import counted
from scrapy_politeness.http.names import printable
from scrapy_politeness.storage.sqlite import open_database, write_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scrapy import Spider
    from typing_extensions import Self

logger = logging.getLogger(__name__)

# What every SQLite database begins with.
_SQLITE = b"SQLite format 3\0"

# In the file's header: the application and the version of its tables.
_OURS = int.from_bytes(b"Poli", "big")
_VERSION = 2

_TABLES = {
    "pauses": ("slot", "until"),
    "learned": ("slot", "ceiling", "spread", "concurrency", "learned_at"),
}
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS pauses (slot TEXT PRIMARY KEY, until REAL)",
    # Format 1 did not say how sure a rate is: it is learned again.
    "DROP TABLE IF EXISTS learned",
    """
    CREATE TABLE IF NOT EXISTS learned (
        slot TEXT PRIMARY KEY,
        ceiling REAL, spread REAL, concurrency INTEGER, learned_at REAL
    ) WITHOUT ROWID
    """,
    f"PRAGMA application_id = {_OURS}",
    f"PRAGMA user_version = {_VERSION}",
)
_DELETE_USELESS = """
DELETE FROM pauses WHERE until <= ?
OR typeof(slot) != 'text' OR typeof(until) != 'real' OR until > 1e300
"""
_SLOTS = """
SELECT slot FROM learned WHERE typeof(slot) = 'text' UNION
SELECT slot FROM pauses WHERE typeof(slot) = 'text' ORDER BY slot
"""
_LEARNED = """
SELECT ceiling, spread, concurrency, learned_at FROM learned WHERE slot = ?
"""

# Seconds that the event loop, and the thread that writes, wait for a lock.
_READ_PATIENCE = 0.02
_WRITE_PATIENCE = 1.0

# SQLite quotes what it cannot read, and Python may fail to decode that.
_DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)


class Entry(NamedTuple):
    """What was learned of a slot, and when."""

    learned: Learned
    at: float


def reject_other_files(path: Path) -> None:
    """Raise ValueError for a file that is no database, so that it is not set aside as a
    damaged one."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        head = file.read(len(_SQLITE))
    if head and head != _SQLITE:
        raise ValueError(f"{path} is another kind of file")


class StateFile:
    """An SQLite database that several processes may use at once.

    Times are wall-clock seconds: the monotonic clock starts over with the machine.
    ``write`` and ``close`` may be called in another thread than the rest.

    A damaged file is set aside. ValueError says why one cannot be used.
    """

    def __init__(self, path: Path, spider: Spider | None = None) -> None:
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._reader = self._open(path)
            self._writer = open_database(
                path, write_ahead, patience=_WRITE_PATIENCE, any_thread=True
            )
        except (OSError, sqlite3.OperationalError) as error:
            raise ValueError(f"{path} cannot be opened: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_reader()
        self.close()

    def slots(self) -> list[str]:
        """Return all slots that have an entry, even a damaged one."""
        return [slot for (slot,) in self._reader.execute(_SLOTS)]

    def pauses(self, wall_now: float) -> dict[str, float]:
        """Return the seconds left of each pause."""
        rows = self._reader.execute("SELECT slot, until FROM pauses").fetchall()
        sound = [row for row in rows if _is_pause(*row)]
        if len(sound) < len(rows):
            self._log.warning(
                "Dropped %(pauses)s of an earlier run that cannot be read",
                {"pauses": counted(len(rows) - len(sound), "pause")},
            )
        return {slot: until - wall_now for slot, until in sound if until > wall_now}

    def learned(self, slot_key: str) -> Entry | None:
        """Raise ValueError where the entry is damaged."""
        rows = self._reader.execute(_LEARNED, (_name(slot_key),)).fetchall()
        if not rows:
            return None
        [(ceiling, spread, concurrency, at)] = rows
        values = {"ceiling": ceiling, "spread": spread, "concurrency": concurrency}
        if not isinstance(at, float) or not math.isfinite(at):
            raise ValueError(f"learned_at is not a time: {at!r:.80}")
        return Entry(Learned.from_dict(values), at)

    def write(
        self, pauses: Mapping[str, float], learned: Mapping[str, Entry | None]
    ) -> None:
        """Save the ends of pauses, and entries; None deletes one."""
        gone = [(_name(slot),) for slot, entry in learned.items() if entry is None]
        rows = [_row(slot, entry) for slot, entry in learned.items() if entry]
        ends = [(_name(slot), until) for slot, until in pauses.items()]
        self._writer.execute("BEGIN IMMEDIATE")
        with self._writer:  # commits, or takes all back
            self._writer.executemany("DELETE FROM learned WHERE slot = ?", gone)
            self._writer.executemany("REPLACE INTO learned VALUES (?,?,?,?,?)", rows)
            self._writer.executemany("REPLACE INTO pauses VALUES (?, ?)", ends)

    def forget_all(self) -> None:
        for table in _TABLES:
            self._writer.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names

    def tidy(self, wall_now: float) -> None:
        """Delete the pauses that are over, and those that are damaged."""
        self._writer.execute(_DELETE_USELESS, (wall_now,))

    def close_reader(self) -> None:
        """To be called before ``close``: the last to close has to sync to disk."""
        self._reader.close()

    def close(self) -> None:
        self._writer.close()

    def _open(self, path: Path) -> sqlite3.Connection:
        if path.exists() and path.stat().st_size:
            with suppress(*_DAMAGE):
                return _connect(path)
        with _alone(path):
            try:
                return _connect(path)
            except sqlite3.OperationalError:  # locked, no rights, disk full
                raise
            except _DAMAGE as error:
                self._log.warning(
                    "%(path)s is damaged (%(error)s). Moving it to %(path)s.damaged "
                    "and starting without what earlier runs learned",
                    {"path": path, "error": printable(str(error))},
                )
            # The file itself last: until then no other process can begin a new one.
            for suffix in ("-wal", "-shm", ""):
                with suppress(FileNotFoundError):
                    os.replace(f"{path}{suffix}", f"{path}.damaged{suffix}")
            return _connect(path)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Of several processes, one begins the file or sets it aside, while the others
    wait. SQLite's locks end with their process, on every system; the locked file has to
    stay."""
    with closing(open_database(Path(f"{path}.lock"))) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        yield


def _connect(path: Path) -> sqlite3.Connection:
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError("it is read-only")
    db = open_database(path, _inspect, write_ahead, _create)
    db.execute(f"PRAGMA busy_timeout = {int(1000 * _READ_PATIENCE)}")
    return db


def _inspect(db: sqlite3.Connection) -> None:
    """Check the file before anything is written."""
    db.text_factory = _text
    db.execute("BEGIN")  # another process may just be creating it
    with db:
        [(owner,)] = db.execute("PRAGMA application_id")
        version = _version(db)
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        active = db.execute("SELECT name FROM sqlite_master WHERE rootpage = 0")
        strange = active.fetchone()
    if owner != _OURS and (owner or version or names):
        raise ValueError("it is a database of another program")
    if version > _VERSION:
        raise ValueError(
            f"its format {version} is that of a newer scrapy-politeness; this one "
            f"reads formats up to {_VERSION}"
        )
    if strange is not None:
        # A view or a trigger could run forever.
        raise sqlite3.DatabaseError(f"{strange[0]!r:.80} is no table")
    [(verdict,)] = db.execute("PRAGMA quick_check(1)")
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)


def _version(db: sqlite3.Connection) -> int:
    [(version,)] = db.execute("PRAGMA user_version")
    return int(version)


def _create(db: sqlite3.Connection) -> None:
    if _version(db) < _VERSION:  # otherwise, do not wait for a writer
        db.execute("BEGIN IMMEDIATE")
        with db:
            # Another process may have been faster.
            if _version(db) < _VERSION:
                for statement in _SCHEMA:
                    db.execute(statement)
    for table, columns in _TABLES.items():
        found = tuple(row[1] for row in db.execute(f"PRAGMA table_info({table})"))
        if found != columns:
            raise sqlite3.DatabaseError(f"the columns of {table} are {found}")


def _row(slot_key: str, entry: Entry) -> tuple[object, ...]:
    values = entry.learned.to_dict()
    names = _TABLES["learned"][1:-1]
    return (_name(slot_key), *(values.get(name) for name in names), entry.at)


def _is_pause(slot: object, until: object) -> bool:
    return isinstance(slot, str) and isinstance(until, float) and until < math.inf


def _name(slot_key: str) -> str:
    """A slot may be named by what UTF-8 cannot encode."""
    return slot_key.encode(errors="backslashreplace").decode()


def _text(stored: bytes) -> str:
    return stored.decode(errors="replace")
