"""State files, read and written without a crawl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_politeness.storage.state_file import Entry, StateFile

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_000_000_000.0


def save(
    path: Path,
    pauses: dict[str, float] | None = None,
    learned: dict[str, Entry | None] | None = None,
) -> None:
    with StateFile(path) as state:
        state.write(pauses or {}, learned or {})


def pauses(path: Path) -> dict[str, float]:
    with StateFile(path) as state:
        return state.pauses(NOW)


def learned(path: Path, slot_key: str) -> Entry | None:
    with StateFile(path) as state:
        return state.learned(slot_key)
