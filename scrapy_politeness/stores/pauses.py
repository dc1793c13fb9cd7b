"""Pauses that outlive the run: a Retry-After of an hour also binds the next one."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

_SCHEMA = "CREATE TABLE IF NOT EXISTS pauses (slot TEXT PRIMARY KEY, until REAL)"


class Pauses:
    """A small database in the job directory, written the moment a pause begins.

    Times are wall-clock seconds: the monotonic clock starts anew with the machine.
    """

    def __init__(self, folder: str) -> None:
        path = Path(folder, "politeness.sqlite")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(_SCHEMA)
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{path} cannot be read: {error}") from error

    def save(self, slot: str, until: float) -> None:
        self._db.execute("REPLACE INTO pauses VALUES (?, ?)", (slot, until))

    def load(self, wall_now: float) -> dict[str, float]:
        """Return the seconds left of each pause; forget those that are over."""
        self._db.execute("DELETE FROM pauses WHERE until <= ?", (wall_now,))
        rows = self._db.execute("SELECT slot, until FROM pauses").fetchall()
        return {
            slot: until - wall_now
            for slot, until in rows
            if isinstance(until, float) and math.isfinite(until)
        }

    def close(self) -> None:
        self._db.close()
