"""How the databases of this package are opened."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def open_database(
    path: Path,
    *steps: Callable[[sqlite3.Connection], object],
    patience: float = 5.0,
    any_thread: bool = False,
) -> sqlite3.Connection:
    """Connect and take the steps; close the database if one of them fails.
    ``patience`` is how many seconds to wait for a lock."""
    db = sqlite3.connect(
        path,
        timeout=patience,
        isolation_level=None,
        check_same_thread=not any_thread,
    )
    with ExitStack() as stack:
        stack.callback(db.close)
        for step in steps:
            step(db)
        stack.pop_all()
    return db


def write_ahead(db: sqlite3.Connection) -> None:
    """Survive a kill at any moment, and let others read while one writes. Transactions
    are not synced to disk: a power cut may cost the last moments."""
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
