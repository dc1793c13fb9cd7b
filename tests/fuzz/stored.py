"""Files that a run finds: the state of earlier ones, and the requests they left."""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from hypothesis import example, given
from hypothesis import strategies as st
from scrapy import Request
from scrapy.squeues import PickleLifoDiskQueue

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.storage.disk_backlog import DiskBacklog
from scrapy_politeness.storage.marks import USUAL
from scrapy_politeness.storage.records import Records
from scrapy_politeness.storage.state_file import Entry, StateFile
from tests.fuzz.documents import damaged, edits
from tests.fuzz.texts import names
from tests.fuzz.watch import watched
from tests.support.ready import Quiet

_IN_MEMORY = Path("/dev/shm")


def folder_in_memory() -> TemporaryDirectory[str]:
    """Where nothing has to be written to a disk, if there is such a place."""
    return TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None)


SLOTS = ("a.example", "b.example", "c.example")

_cuts = st.none() | st.floats(0, 1)
_cells = st.one_of(
    *(st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.binary(max_size=9)),
    *(names.filter(str.isascii), st.sampled_from(SLOTS), st.just("x" * 100_000)),
)


@cache
def _state_file() -> bytes:
    with folder_in_memory() as folder:
        path = Path(folder, "state")
        with StateFile(path) as state:
            learned = Learned(5.0, 0.1, 4)
            entries = dict.fromkeys(SLOTS, Entry(learned, time.time()))
            state.write({SLOTS[0]: time.time() + 1000.0}, entries)
        return path.read_bytes()


def _use_state(path: Path) -> None:
    """As a crawl does; ValueError is what stops it."""
    try:
        state = StateFile(path)
    except ValueError:
        return
    records = Records(state, later=Mock())
    for slot, left in records.pauses().items():
        assert isinstance(slot, str)
        assert 0 < left < math.inf
    bounds = Bounds()
    for slot in (*SLOTS, "\ud800", "new"):
        learned = records.recall(slot, bounds.start_rate)
        if learned is not None:
            known = Slot(slot, bounds, spacing=0.0, concurrency=8)
            known.recall(learned, time.monotonic())
            assert bounds.min_rate <= known.rate <= bounds.max_rate
            assert 1 <= known.concurrency <= 8
    records.paused("new", time.time() + 5)
    records.close()
    for thread in threading.enumerate():
        if thread.name.startswith("politeness-state"):
            thread.join()


@given(edits, _cuts)
@example([(0.5, b"\0")], None)  # SQLite says what is wrong in several lines
def state_files_may_be_damaged(
    changes: list[tuple[float, bytes]], cut: float | None
) -> None:
    with folder_in_memory() as folder:
        path = Path(folder, "state")
        path.write_bytes(damaged(_state_file(), changes, cut))
        with watched():
            _use_state(path)


_ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
_ENDLESS_VIEW = (
    f"DROP TABLE pauses; CREATE VIEW pauses AS {_ENDLESS} "
    "SELECT 'host' || x AS slot, 1e10 + x AS until FROM n"
)
_SCHEMAS = (
    _ENDLESS_VIEW,
    "",
    "DROP TABLE pauses",
    "ALTER TABLE learned ADD COLUMN more",
    "CREATE TABLE other (x)",
    "CREATE TRIGGER t BEFORE INSERT ON pauses BEGIN SELECT RAISE(FAIL, 'no'); END",
    f"CREATE TRIGGER t AFTER DELETE ON pauses BEGIN INSERT INTO learned {_ENDLESS} "
    "SELECT x, 1, 1, 1, 1 FROM n; END",
    "DROP TABLE pauses; CREATE TABLE pauses (slot, until)",
    "PRAGMA user_version = 7",
    "PRAGMA user_version = -7",
    "PRAGMA application_id = 7",
)


@given(
    st.sampled_from(_SCHEMAS),
    st.lists(st.tuples(_cells, _cells), max_size=4),
    st.lists(st.tuples(*[_cells] * 5), max_size=4),
)
@example(_ENDLESS_VIEW, [], [])
@example("", [("a.example", "x" * 100_000)], [("a.example", "x" * 100_000, 1, 1, 1)])
def state_rows_may_be_anything(
    schema: str, pauses: list[tuple[Any, ...]], learned: list[tuple[Any, ...]]
) -> None:
    with folder_in_memory() as folder:
        path = Path(folder, "state")
        path.write_bytes(_state_file())
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            _insert(db, "REPLACE INTO pauses VALUES (?, ?)", pauses)
            _insert(db, "REPLACE INTO learned VALUES (?, ?, ?, ?, ?)", learned)
            db.executescript(schema)
        with watched():
            _use_state(path)


def _insert(db: sqlite3.Connection, sql: str, rows: list[tuple[Any, ...]]) -> None:
    for row in rows:
        with suppress(sqlite3.IntegrityError):  # SQLite itself does not take it
            db.execute(sql, row)


def _backlog(folder: str) -> DiskBacklog:
    crawler: Any = SimpleNamespace(spider=Quiet())
    return DiskBacklog(folder, crawler, PickleLifoDiskQueue, None, in_progress=set)


@cache
def _requests_file() -> bytes:
    with folder_in_memory() as folder:
        backlog = _backlog(folder)
        for slot in SLOTS:
            request = Request(f"http://{slot}/", meta={"n": 1})
            backlog.push(slot, request, USUAL, 0.0)
        backlog.close()
        return Path(folder, "requests.sqlite").read_bytes()


def _pop_all(folder: str) -> int:
    backlog = _backlog(folder)
    popped = 0
    backlog.release(math.inf)
    for slot in list(backlog.ready):
        assert isinstance(slot, str)
        while slot in backlog.ready:
            assert backlog.peek(slot) is None or slot in backlog.ready
            popped += slot in backlog.ready and backlog.pop(slot) is not None
    assert len(backlog) == 0
    backlog.close()
    return popped


@given(edits, _cuts)
@example([], 0.875)  # fewer requests than the index counts
def request_files_may_be_damaged(
    changes: list[tuple[float, bytes]], cut: float | None
) -> None:
    with folder_in_memory() as folder:
        path = Path(folder, "requests.sqlite")
        path.write_bytes(damaged(_requests_file(), changes, cut))
        # It says so, and nothing goes without limits.
        with watched(), suppress(ValueError, sqlite3.DatabaseError):
            _pop_all(folder)


_bodies = st.one_of(
    st.tuples(edits, _cuts), st.binary(max_size=20), st.none(), st.integers(-5, 5)
)


# last, band, held, early, failing, ends, delay
_USUAL = (0, 1, 0, 0, 0, None, None)
_rows = st.tuples(*(_cells, _cells, _cells, _bodies), *[_cells] * 7)


@given(st.lists(_rows, max_size=5))
@example([(b"", 0, 0, ([], None), *_USUAL), ("a", 0, 2**63 - 1, ([], None), *_USUAL)])
@example([("a", 0, 0, ([], None), 0, 1, 1, 1, 0, 1e308, 1e308)])
def request_rows_may_be_anything(rows: list[tuple[Any, ...]]) -> None:
    with folder_in_memory() as folder:
        path = Path(folder, "requests.sqlite")
        path.write_bytes(_requests_file())
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            [(sound,)] = db.execute("SELECT body FROM requests LIMIT 1")
            whole = [
                (
                    *row[:3],
                    damaged(sound, *row[3]) if isinstance(row[3], tuple) else row[3],
                    *row[4:],
                )
                for row in rows
            ]
            columns = "slot, rank, place, body, last, band, held, early, failing"
            columns += ", ends, delay"
            marks = ", ".join("?" * 11)
            sql = f"INSERT INTO requests ({columns}) VALUES ({marks})"
            _insert(db, sql, whole)
        with watched():
            popped = _pop_all(folder)
        assert popped >= len(SLOTS)
