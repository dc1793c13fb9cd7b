"""What the subcommands print: text for people, JSON for machines."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from scrapy_politeness.core.text import width

if TYPE_CHECKING:
    from collections.abc import Sequence


class CommandError(Exception):
    """Told to the user in one line, without a traceback."""


def say(text: str) -> None:
    """What standard output has no letters for is escaped."""
    print(encodable(text))


def warn(text: str) -> None:
    print(encodable(f"scrapy politeness: {text}", sys.stderr), file=sys.stderr)


def encodable(text: str, stream: Any = None) -> str:
    encoding = getattr(stream or sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def say_json(data: Any) -> None:
    print(json.dumps(data, indent=2, allow_nan=False))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column is text, the others are numbers. Cells must be printable."""
    lines = [list(headings), *map(list, rows)]
    widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_line(cells, widths) for cells in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    gaps = [
        " " * (most - width(cell)) for cell, most in zip(cells, widths, strict=True)
    ]
    first = cells[0] + gaps[0]
    rest = [gap + cell for gap, cell in zip(gaps[1:], cells[1:], strict=True)]
    return "  ".join([first, *rest]).rstrip()
