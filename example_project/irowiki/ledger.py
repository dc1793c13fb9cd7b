"""What is archived and what is missing, on disk, for later runs."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Work(NamedTuple):
    """A piece of work: a kind ("page") and which one ("17")."""

    kind: str
    key: str = ""

    def __str__(self) -> str:
        return _NAMES.get(self.kind, self.kind + " {}").format(self.key)


_NAMES = {
    "site": "the site's information",
    "namespace": "the list of namespace {}",
    "files": "the list of files",
    "file": "{}",
}


class Tally(NamedTuple):
    """Counts for one kind of work: done, still open, failed, and deleted in the
    meantime (``gone``). ``parts`` are, for example, the revisions of pages."""

    done: int = 0
    open: int = 0
    failed: int = 0
    gone: int = 0
    parts: int = 0

    @property
    def known(self) -> int:
        return self.done + self.open + self.failed

    @property
    def listed(self) -> int:
        return self.known + self.gone


_SCHEMA = """
CREATE TABLE IF NOT EXISTS work (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'open',
    tries INTEGER NOT NULL DEFAULT 0,
    parts INTEGER NOT NULL DEFAULT 0,
    reason TEXT,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS unfinished ON work (tries)
WHERE state IN ('open', 'failed');
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


# How many are retried before others get a chance.
_AT_ONCE = 500


class Ledger:
    """Survives a kill at any moment. The next requests are in the scheduler's queue;
    what is unfinished when that is empty has failed or was lost."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(_SCHEMA)

    def begin(self, work: Work) -> bool:
        """Return whether it was not known before."""
        new = self._db.execute(
            "INSERT OR IGNORE INTO work (kind, key) VALUES (?, ?)", work
        )
        return new.rowcount > 0

    def done(self, work: Work, parts: int = 0) -> None:
        self._set(work, "done", parts=parts)

    def gone(self, work: Work) -> None:
        self._set(work, "gone")

    def failed(self, work: Work, reason: str) -> None:
        self._set(work, "failed", reason)

    def take_unfinished(self, most_tries: int) -> list[Work]:
        """Return some unfinished work, each piece at most ``most_tries`` times."""
        works = self._db.execute(
            "SELECT kind, key FROM work WHERE state IN ('open', 'failed') "
            "AND tries < ? LIMIT ?",
            (most_tries, _AT_ONCE),
        ).fetchall()
        self._db.executemany(
            "UPDATE work SET tries = tries + 1 WHERE kind = ? AND key = ?", works
        )
        return [Work(*work) for work in works]

    def forget_tries(self) -> None:
        self._db.execute("UPDATE work SET tries = 0 WHERE tries")

    def tally(self, kind: str) -> Tally:
        rows = self._db.execute(
            "SELECT state, COUNT(*), SUM(parts) FROM work WHERE kind = ? "
            "GROUP BY state",
            (kind,),
        ).fetchall()
        counts = {state: count for state, count, _ in rows}
        return Tally(**counts, parts=sum(parts for _, _, parts in rows))

    def gaps(self, most: int) -> list[str]:
        """Return a few of the pieces that are neither done nor gone."""
        rows = self._db.execute(
            "SELECT kind, key, reason FROM work WHERE state IN ('open', 'failed') "
            "ORDER BY state, kind, key LIMIT ?",
            (most,),
        )
        return [
            f"{Work(kind, key)} ({why or 'not finished'})" for kind, key, why in rows
        ]

    @property
    def is_new(self) -> bool:
        return self._db.execute("SELECT 1 FROM work LIMIT 1").fetchone() is None

    @property
    def is_complete(self) -> bool:
        return not self.is_new and not self.gaps(1)

    def note(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, value))

    def noted(self, name: str) -> str | None:
        found = self._db.execute("SELECT value FROM notes WHERE name = ?", (name,))
        row = found.fetchone()
        return None if row is None else str(row[0])

    def close(self) -> None:
        self._db.close()

    def _set(
        self, work: Work, state: str, reason: str | None = None, parts: int = 0
    ) -> None:
        self.begin(work)
        self._db.execute(
            "UPDATE work SET state = ?, reason = ?, parts = ? "
            "WHERE kind = ? AND key = ?",
            (state, reason, parts, *work),
        )
