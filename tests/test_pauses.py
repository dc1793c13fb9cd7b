"""Pauses on disk: a damaged file costs the pauses, never the crawl."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from scrapy_politeness.stores.pauses import Pauses
from tests.crawl import crawl

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.site import Site

NOW = 1_000_000_000.0


def save(folder: Path, **pauses: object) -> None:
    store = Pauses(str(folder))
    store.close()
    with sqlite3.connect(folder / "politeness.sqlite") as db:
        db.executemany("INSERT INTO pauses VALUES (?, ?)", pauses.items())
    db.close()


def load(folder: Path) -> dict[str, float]:
    store = Pauses(str(folder))
    try:
        return store.load(NOW)
    finally:
        store.close()


def test_pauses_are_there_until_they_are_over(tmp_path: Path) -> None:
    store = Pauses(str(tmp_path))
    store.save("a", NOW + 5)
    store.save("a", NOW + 60)
    store.save("b", NOW - 1)
    store.close()
    assert load(tmp_path) == {"a": 60.0}


def test_a_damaged_entry_is_dropped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, a=NOW + 60, b="soon", c=None, d=b"x", e=float("inf"))
    assert load(tmp_path) == {"a": 60.0}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    caplog.clear()
    assert load(tmp_path) == {"a": 60.0}
    assert not caplog.records


@pytest.mark.parametrize("damage", ["head", "schema", "page", "all"])
def test_a_damaged_file_is_started_anew_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    save(tmp_path, **{f"host{number}": NOW + 60 for number in range(500)})
    path = tmp_path / "politeness.sqlite"
    content = bytearray(path.read_bytes())
    place = {
        "head": slice(0, 16),
        "schema": slice(100, 4096),
        "page": slice(4096, 4200),
        "all": slice(None),
    }[damage]
    content[place] = b"\xff" * len(content[place])
    path.write_bytes(content)
    assert load(tmp_path) == {}
    assert "politeness.sqlite is damaged" in caplog.text
    store = Pauses(str(tmp_path))
    store.save("a", NOW + 60)
    store.close()
    assert load(tmp_path) == {"a": 60.0}


def test_a_file_that_cannot_be_opened_gives_a_clear_error(tmp_path: Path) -> None:
    tmp_path.joinpath("politeness.sqlite").mkdir()
    with pytest.raises(ValueError, match=r"politeness\.sqlite cannot be opened"):
        Pauses(str(tmp_path))


def test_a_crawl_goes_on_without_the_pauses_of_a_damaged_file(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    tmp_path.joinpath("politeness.sqlite").write_bytes(b"garbage" * 500)
    server = site(3)
    settings = {"JOBDIR": str(tmp_path), "POLITENESS_START_RATE": 10}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(result.items) == 3
    assert "politeness.sqlite is damaged" in result.log
