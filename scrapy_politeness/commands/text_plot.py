"""A plot in the terminal: bars over time, a line across, marks below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_politeness.core.text import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

HEIGHT = 12
_HEADROOM = 1.15


@dataclass(frozen=True)
class Ink:
    """What is drawn with; ``bars`` are the fillings of a cell, from empty to full."""

    bars: str
    line: str
    mark: str
    side: str
    corner: str
    floor: str


FINE = Ink(" ▁▂▃▄▅▆▇█", "┄", "✗", "│", "└", "─")
PLAIN = Ink(" #", "-", "x", "|", "+", "-")


@dataclass(frozen=True)
class TextPlot:
    """A column for each of ``heights``; ``line`` is a height for all of them, and
    ``marks`` says below which of them something happened."""

    heights: Sequence[float]
    line: float
    marks: Sequence[bool]
    seconds: float
    ink: Ink

    def draw(self) -> str:
        top = _HEADROOM * max(self.line, *self.heights)
        step = top / HEIGHT
        line_row = int(self.line / step)
        rows = [
            f"{self._label(row, line_row):>8} {self.ink.side}"
            + "".join(
                self._cell(height / step - row, row == line_row)
                for height in self.heights
            )
            for row in reversed(range(HEIGHT))
        ]
        ink = self.ink
        axis = f"{'0':>8} {ink.corner}" + ink.floor * len(self.heights)
        marks = "".join(ink.mark if marked else " " for marked in self.marks)
        lines = [*rows, axis, f"{'refused':>8}  {marks}", self._times()]
        return "\n".join(line.rstrip() for line in lines)

    def _label(self, row: int, line_row: int) -> str:
        return f"{self.line:.3g}/s" if row == line_row else ""

    def _cell(self, filled: float, on_line: bool) -> str:
        bars = self.ink.bars
        full = len(bars) - 1
        eighths = max(0, min(full, round(filled * full)))
        if on_line and not eighths:
            return self.ink.line
        return bars[eighths]

    def _times(self) -> str:
        end = duration(self.seconds)
        return f"{'':>10}0 s" + end.rjust(max(len(end) + 1, len(self.heights) - 3))
