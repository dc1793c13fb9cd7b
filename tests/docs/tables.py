"""The tables of docs/reference.md that the code has, too.

    python -m tests.docs.tables

writes them again, after a change of the code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_politeness.config import refusals, slots
from scrapy_politeness.config.table import SETTINGS
from scrapy_politeness.core.health import Health
from scrapy_politeness.observe.figures import FIGURES
from tests.docs.documents import ROOT, Document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REFERENCE = Document(ROOT / "docs" / "reference.md")


def _settings() -> Iterator[list[str]]:
    for row in SETTINGS.values():
        yield [f"`{row.name}`", f"`{row.default!r}`", row.meaning]


def _keys(keys: Mapping[str, slots.Key]) -> Iterator[list[str]]:
    for name, key in keys.items():
        yield [f"`{name}`", key.meaning]


def _stats() -> Iterator[list[str]]:
    for figure in FIGURES:
        if figure.stat:
            yield [f"`politeness/slots/<slot>/{figure.stat}`", figure.meaning]


def _metrics() -> Iterator[list[str]]:
    for figure in FIGURES:
        if figure.metric:
            end = "_total" if figure.is_count else ""
            label = (
                f"`slot`, `{figure.label}`: `{figure.name}`"
                if figure.label
                else "`slot`"
            )
            yield [f"`{figure.metric}{end}`", label, figure.meaning]
    yield [
        "`health`",
        "`slot`, `health`",
        "1 for the slot's health: " + ", ".join(f"`{h.value}`" for h in Health),
    ]


TABLES = {
    "Settings": list(_settings()),
    "Keys of POLITENESS_LIMITS": list(_keys(slots.KEYS)),
    "Keys of POLITENESS_REFUSALS": list(_keys(refusals.KEYS)),
    "Stats of each slot": list(_stats()),
    "Metrics of each slot": list(_metrics()),
}


def main() -> None:
    text = REFERENCE.text
    for heading, rows in TABLES.items():
        section = REFERENCE.section(heading)
        lines = section.splitlines(keepends=True)
        first = next(n for n, line in enumerate(lines) if line.startswith("|--")) + 1
        after = len(lines) - next(
            n for n, line in enumerate(reversed(lines)) if line.startswith("|")
        )
        made = [f"| {' | '.join(row)} |\n" for row in rows]
        text = text.replace(section, "".join([*lines[:first], *made, *lines[after:]]))
    REFERENCE.path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
