"""The state file: what it keeps, and what it makes of damage."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.storage.records import Records
from scrapy_politeness.storage.state_file import Entry, StateFile
from tests.support.lag import METER
from tests.support.state import NOW, learned, pauses, save

if TYPE_CHECKING:
    from collections.abc import Iterator


DAY = 86400.0
FAST = Learned(9.0, None, None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


def execute(path: Path, statement: str, *rows: tuple[object, ...]) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.executemany(statement, rows) if rows else db.execute(statement)


@contextmanager
def recording(path: Path) -> Iterator[Records]:
    """Nothing is saved on time here, only at once and in the end."""
    records = Records(StateFile(path), later=Mock())
    yield records
    records.close()
    for thread in threading.enumerate():
        if thread.name.startswith("politeness-state"):
            thread.join()


def slot_that_knows(key: str, knows: Learned) -> Slot:
    slot = Slot(key, Bounds(), spacing=0.0, concurrency=8)
    slot.recall(knows, 0.0)
    for _ in range(20):  # fewer answers would not be worth saving
        at = slot.ready_at
        slot.settle(slot.take(at), Outcome(Verdict.SERVED), at, 0.0)
    return slot


def test_pauses_are_there_until_they_are_over(path: Path) -> None:
    save(path, {"a": NOW + 5, "b": NOW - 1})
    save(path, {"a": NOW + 60})
    assert pauses(path) == {"a": 60.0}
    with StateFile(path) as state:
        state.tidy(NOW + 61)
        assert state.pauses(NOW) == {}


@pytest.mark.parametrize(
    "slot_key", ["example.org", "ключ 7", "\ud800", "a\0b", "x" * 5000]
)
@pytest.mark.parametrize("knows", [FAST, Learned(None, None, 3), Learned(0.2, 0.1, 1)])
def test_what_was_learned_comes_back(path: Path, slot_key: str, knows: Learned) -> None:
    assert learned(path, slot_key) is None
    save(path, learned={slot_key: Entry(knows, NOW)})
    assert learned(path, slot_key) == Entry(knows, NOW)
    save(path, learned={slot_key: None})
    assert learned(path, slot_key) is None


def test_more_than_anybody_can_mean_is_cut_and_not_taken_for_damage(path: Path) -> None:
    save(path, learned={"a": Entry(Learned(1e9, float("inf"), 10**30), NOW)})
    assert learned(path, "a") == Entry(Learned(1e6, 1e6, 10**6), NOW)


def test_damaged_pauses_are_dropped_with_one_warning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(path, {"a": NOW + 60})
    damage = (("b", "soon"), ("c", None), ("d", b"x"), ("e", float("inf")), (b"f", NOW))
    execute(path, "INSERT INTO pauses VALUES (?, ?)", *damage)
    with StateFile(path) as state:
        assert state.pauses(NOW) == {"a": 60.0}
        state.tidy(NOW)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    caplog.clear()
    assert pauses(path) == {"a": 60.0}
    assert not caplog.records


@pytest.mark.parametrize(
    "damage",
    [
        ("fast", 5.0, None, NOW),
        (float("inf"), 5.0, None, NOW),
        (float("nan"), 5.0, None, NOW),
        (1e9, 5.0, None, NOW),
        (-1.0, 5.0, None, NOW),
        (None, None, None, NOW),
        (9.0, -1.0, None, NOW),
        (9.0, b"\xff", None, NOW),
        (9.0, 5.0, "{", NOW),
        (9.0, 5.0, 0, NOW),
        (9.0, 5.0, None, None),
        (9.0, 5.0, None, "yesterday"),
        (9.0, 5.0, None, float("-inf")),
    ],
)
def test_a_damaged_entry_is_dropped_with_one_warning_and_the_rest_is_used(
    path: Path, caplog: pytest.LogCaptureFixture, damage: tuple[object, ...]
) -> None:
    save(path, learned={"sound": Entry(FAST, time.time())})
    rows = (("a", *damage), ("b", *damage))
    execute(path, "INSERT INTO learned VALUES (?, ?, ?, ?, ?)", *rows)
    with recording(path) as records:
        assert records.recall("a", 1.0) is None
        assert records.recall("b", 1.0) is None
        assert records.recall("sound", 1.0) is not None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert learned(path, "a") is None
    assert learned(path, "b") is None


@pytest.mark.parametrize("damage", ["head", "schema", "page", "all"])
def test_a_damaged_file_is_set_aside_with_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    entries: dict[str, Entry | None] = {
        f"host{n}": Entry(FAST, NOW) for n in range(500)
    }
    save(path, dict.fromkeys(entries, NOW + 60), entries)
    content = bytearray(path.read_bytes())
    place = {
        "head": slice(0, 16),
        "schema": slice(100, 4096),
        "page": slice(4096, 4200),
        "all": slice(None),
    }[damage]
    content[place] = b"\xff" * len(content[place])
    path.write_bytes(content)
    assert pauses(path) == {}
    assert "state.sqlite is damaged" in caplog.text
    assert path.with_name("state.sqlite.damaged").read_bytes() == content
    save(path, {"a": NOW + 60})
    assert pauses(path) == {"a": 60.0}


def test_a_table_with_other_columns_is_damage(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(path)
    execute(path, "ALTER TABLE learned DROP COLUMN spread")
    assert learned(path, "a") is None
    assert "state.sqlite is damaged" in caplog.text


def test_a_file_of_a_newer_version_is_left_alone(path: Path) -> None:
    save(path, {"a": NOW + 60})
    execute(path, "PRAGMA user_version = 3")
    before = path.read_bytes()
    with pytest.raises(
        ValueError, match="format 3 is that of a newer scrapy-politeness"
    ):
        StateFile(path)
    assert path.read_bytes() == before


def test_of_a_file_of_format_1_the_pauses_are_kept_and_rates_learned_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(path, {"a": NOW + 60})
    for statement in (
        "DROP TABLE learned",
        "CREATE TABLE learned (slot TEXT PRIMARY KEY, ceiling REAL, burst REAL, "
        "concurrency INTEGER, learned_at REAL) WITHOUT ROWID",
        f"INSERT INTO learned VALUES ('a', 0.5, 5.0, 8, {NOW})",
        "PRAGMA user_version = 1",
    ):
        execute(path, statement)
    assert pauses(path) == {"a": 60.0}
    assert learned(path, "a") is None
    save(path, learned={"a": Entry(FAST, NOW)})
    assert learned(path, "a") == Entry(FAST, NOW)
    assert not caplog.records


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    execute(path, "CREATE TABLE thesis (chapter TEXT)")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="another program"):
        StateFile(path)
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_opened_gives_a_clear_error(path: Path) -> None:
    path.mkdir()
    with pytest.raises(ValueError, match=r"state\.sqlite cannot be opened"):
        StateFile(path)
    with pytest.raises(ValueError, match="cannot be opened"):
        StateFile(Path("/dev/null/state.sqlite"))


def test_an_old_entry_is_trusted_less(path: Path) -> None:
    now = time.time()
    ages = {"new": 0.0, "day": DAY, "old": 1e4 * DAY, "future": -1e4 * DAY}
    save(path, learned={key: Entry(FAST, now - age) for key, age in ages.items()})
    with recording(path) as records:
        found = {key: records.recall(key, start_rate=1.0) for key in ages}
    ceilings = {key: entry and entry.ceiling for key, entry in found.items()}
    expected = {"new": 9.0, "day": 5.0, "old": 1.0, "future": 9.0}
    assert ceilings == pytest.approx(expected, rel=0.01)


def test_what_is_not_yet_saved_is_known_all_the_same(path: Path) -> None:
    with recording(path) as records:
        records.changed(slot_that_knows("a", FAST))
        assert records.recall("a", 1.0) is not None
        records.paused("b", NOW)  # which saves everything
        assert records.recall("a", 1.0) is not None
        records.forget("a")
        assert records.recall("a", 1.0) is None
    assert learned(path, "a") is None


def test_a_locked_file_holds_up_nobody_and_is_written_later(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(path, learned={"known": Entry(FAST, time.time())})
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with recording(path) as records:
            began_at = time.monotonic()
            for number in range(100):
                records.changed(slot_that_knows(f"host{number}", FAST))
                records.paused(f"host{number}", NOW + 60)
            assert records.recall("known", 1.0) is not None
            took = time.monotonic() - began_at
            assert took < 0.5 + METER.lost(began_at)
            while not caplog.records:
                time.sleep(0.01)
            other.execute("ROLLBACK")
    assert ["cannot be written now" in r.message for r in caplog.records] == [True]
    assert len(pauses(path)) == 100
    assert learned(path, "host99") is not None
