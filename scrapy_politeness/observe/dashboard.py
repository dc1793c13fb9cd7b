"""What the live display shows, drawn by rich."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scrapy_politeness.core.health import Health
from scrapy_politeness.core.text import shortened
from scrapy_politeness.observe.figures import LIVE, figures_of

if TYPE_CHECKING:
    from scrapy_politeness.observe.census import Census, SlotView

# A glance is enough for so many; fewer where the terminal is small.
_MOST_SLOTS = 8
_WIDEST_NAME = 40
# Lines of the terminal that stay free for the log.
_FOR_OTHERS = 6

_STYLES = {
    Health.HEALTHY: "green",
    Health.DEGRADED: "yellow",
    Health.OVERLOADED: "red",
    Health.PAUSED: "magenta",
}


def draw(heading: str, census: Census, columns: int, lines: int) -> list[str]:
    """Return lines that are narrower than the terminal."""
    console = Console(
        file=StringIO(), force_terminal=True, width=columns - 1, legacy_windows=False
    )
    most = min(_MOST_SLOTS, lines - _FOR_OTHERS)
    with console.capture() as capture:
        console.print(_cut(heading, "bold"), no_wrap=True)
        if most > 0 and census.slots:
            console.print(_table(census, most, columns))
    return [line.rstrip() for line in capture.get().splitlines()]


def _table(census: Census, most: int, columns: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("  host", no_wrap=True, overflow="ellipsis")
    for figure in LIVE:
        table.add_column(figure.title.lower(), justify="right", no_wrap=True)
    table.add_column("health", no_wrap=True)
    for view in census.top(most):
        table.add_row(*_row(view, min(_WIDEST_NAME, columns // 2)))
    more = len(census.slots) - most + census.others
    if more > 0:
        table.add_row(_cut(f"  and {more} more", "dim"))
    return table


def _row(view: SlotView, widest: int) -> tuple[Text, ...]:
    status, known = view.status, figures_of(view)
    unknown = "" if status is None else "?"
    shown = [figure.text(known) or unknown for figure in LIVE]
    how = Text("") if status is None else _cut(view.condition, _STYLES[status.health])
    return (_cut(f"  {shortened(view.key, widest)}"), *map(_cut, shown), how)


def _cut(text: str, style: str = "") -> Text:
    """Text that is no markup, whatever is in it."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
