"""Pauses that outlive the run: a Retry-After of an hour also binds the next one."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy import Spider

logger = logging.getLogger(__name__)

_SCHEMA = "CREATE TABLE IF NOT EXISTS pauses (slot TEXT PRIMARY KEY, until REAL)"
_DELETE_DAMAGED = """
DELETE FROM pauses
WHERE typeof(slot) != 'text' OR typeof(until) != 'real' OR until > 1e300
"""

# SQLite quotes what it cannot read, and Python may fail to decode that.
_DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)


class Pauses:
    """A small database in the job directory, written the moment a pause begins.

    Times are wall-clock seconds: the monotonic clock starts anew with the machine.
    A database that is damaged is dropped.
    """

    def __init__(self, folder: str, spider: Spider | None = None) -> None:
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        path = Path(folder, "politeness.sqlite")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = self._open(path)
        except sqlite3.OperationalError as error:  # locked, no rights, disk full
            raise ValueError(f"{path} cannot be opened: {error}") from error

    def save(self, slot: str, until: float) -> None:
        self._db.execute("REPLACE INTO pauses VALUES (?, ?)", (slot, until))

    def load(self, wall_now: float) -> dict[str, float]:
        """Return the seconds left of each pause; forget those that are over."""
        damaged = self._db.execute(_DELETE_DAMAGED).rowcount
        if damaged:
            self._log.warning(
                "Pauses of an earlier run that cannot be read are dropped: %(number)d",
                {"number": damaged},
            )
        self._db.execute("DELETE FROM pauses WHERE until <= ?", (wall_now,))
        rows = self._db.execute("SELECT slot, until FROM pauses").fetchall()
        return {slot: until - wall_now for slot, until in rows}

    def close(self) -> None:
        self._db.close()

    def _open(self, path: Path) -> sqlite3.Connection:
        try:
            return _connect(path)
        except sqlite3.OperationalError:
            raise
        except _DAMAGE as error:
            self._log.warning(
                "%(path)s is damaged; the pauses of earlier runs are forgotten: "
                "%(error)s",
                {"path": path, "error": error},
            )
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.text_factory = _text
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(_SCHEMA)
        [(verdict,)] = db.execute("PRAGMA integrity_check(1)")
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
    except _DAMAGE:
        db.close()
        raise
    return db


def _text(stored: bytes) -> str:
    return stored.decode(errors="replace")
