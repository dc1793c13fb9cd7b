"""What the subcommands print: text and plots for people, JSON for machines."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from scrapy_politeness.core.text import duration, width

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEIGHT = 12
_HEADROOM = 1.15
_BARS = " ▁▂▃▄▅▆▇█"
_ASCII = str.maketrans("▁▂▃▄▅▆▇█┄✗│└─", "___#####-x|+-")


class CommandError(Exception):
    """Printed in one line, without a traceback."""


def print_text(text: str, stream: Any = None) -> None:
    """Escape what the encoding of the stream does not have."""
    encoding = getattr(stream or sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream)


def print_warning(text: str) -> None:
    print_text(f"scrapy politeness: {text}", sys.stderr)


def print_json(data: Any) -> None:
    print(json.dumps(data, indent=2, allow_nan=False))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column is text, the others are numbers. Cells must be printable."""
    lines = [headings, *rows]
    widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_line(cells, widths) for cells in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    gaps = [
        " " * (most - width(cell)) for cell, most in zip(cells, widths, strict=True)
    ]
    rest = [gap + cell for gap, cell in zip(gaps[1:], cells[1:], strict=True)]
    return "  ".join([cells[0] + gaps[0], *rest]).rstrip()


def plot(
    rates: Sequence[float], limit: float, refused: Sequence[bool], seconds: float
) -> str:
    """Bars over time, a line for the limit, and marks below for refusals."""
    step = _HEADROOM * max(limit, *rates) / _HEIGHT
    limit_row = int(limit / step)
    lines = []
    for row in reversed(range(_HEIGHT)):
        empty = "┄" if row == limit_row else " "
        bars = "".join(_bar(rate / step - row) or empty for rate in rates)
        label = f"{limit:.3g}/s" if row == limit_row else ""
        lines.append(f"{label:>8} │{bars}")
    end = duration(seconds)
    lines += [
        f"{'0':>8} └" + "─" * len(rates),
        f"{'refused':>8}  " + "".join("✗" if mark else " " for mark in refused),
        f"{'':>10}0 s" + end.rjust(max(len(end) + 1, len(rates) - 3)),
    ]
    drawn = "\n".join(line.rstrip() for line in lines)
    try:
        drawn.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return drawn.translate(_ASCII)
    return drawn


def _bar(filled: float) -> str:
    return _BARS[max(0, min(8, round(8 * filled)))].strip()
