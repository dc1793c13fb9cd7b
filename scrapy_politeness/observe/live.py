"""The live display at the bottom of a terminal, drawn by rich."""

from __future__ import annotations

import logging
import sys
from threading import RLock
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.segment import SegmentLines
from rich.table import Table
from rich.text import Text

from scrapy_politeness.core.health import Health
from scrapy_politeness.core.text import shortened
from scrapy_politeness.observe import figures
from scrapy_politeness.observe.figures import figures_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_politeness.observe.census import Census, SlotView

_MOST_SLOTS = 8
_WIDEST_NAME = 40
# Lines of the terminal that stay free for the log.
_LOG_LINES = 6

_STYLES = {
    Health.HEALTHY: "green",
    Health.DEGRADED: "yellow",
    Health.OVERLOADED: "red",
    Health.PAUSED: "magenta",
    Health.BLOCKED: "red",
}


class LiveDisplay:
    """One for the process: crawls that run side by side show their tables one below the
    other. ``show`` and ``hide`` are for the event loop alone.

    What is written to stdout, stderr or the log in the meantime appears above the
    display. rich's own redirection would leave out log handlers, and wrap long lines.
    """

    def __init__(self) -> None:
        # Threads write to the log, too.
        self.lock = RLock()
        self._shown: dict[object, SegmentLines] = {}
        self._live: Live | None = None
        self._streams: dict[str, StreamAbove] = {}

    def show(self, owner: object, heading: str, census: Census) -> None:
        live = self._live or self._start()
        console = live.console
        table = draw(heading, census, console.width, console.height)
        # Rendered once: each line of the log writes it again.
        lines = console.render_lines(table, pad=False)
        with self.lock:
            self._shown[owner] = SegmentLines(lines, new_lines=True)
            live.update(Group(*self._shown.values()), refresh=True)

    def hide(self, owner: object, heading: str, census: Census) -> None:
        """Leave the last state of what was shown, if it was, in the terminal."""
        if self._live is None or self._shown.pop(owner, None) is None:
            return
        console = self._live.console
        try:
            with self.lock:
                self._live.update(Group(*self._shown.values()), refresh=True)
                console.print(draw(heading, census, console.width, console.height))
        finally:
            if not self._shown:
                self._stop(self._live)

    def clear(self) -> None:
        """Make room for bytes, which do not pass through the display."""
        if self._live is not None:
            with self.lock:
                self._live.update("", refresh=True)

    def _start(self) -> Live:
        console = _Console(
            file=sys.stderr,
            force_terminal=True,
            force_interactive=True,
            legacy_windows=False,
        )
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        for name in ("stderr", "stdout"):
            stream = getattr(sys, name)
            isatty = getattr(stream, "isatty", None)
            if stream is console.file or (isatty is not None and isatty()):
                self._streams[name] = StreamAbove(stream, console, self)
                setattr(sys, name, self._streams[name])
        _redirect_log({id(above.stream): above for above in self._streams.values()})
        return self._live

    def _stop(self, live: Live) -> None:
        # Not under the lock: a thread that logs has locked its handler, and may be
        # waiting for this lock.
        _redirect_log({id(above): above.stream for above in self._streams.values()})
        with self.lock:
            self._live = None
            try:
                live.stop()
            finally:
                for name, above in self._streams.items():
                    if getattr(sys, name) is above:
                        setattr(sys, name, above.stream)
                    above.finish()
                self._streams = {}


class StreamAbove:
    """A stream of the terminal, in whole lines above the display. Others may keep it
    for longer than there is a display: then it is the stream itself."""

    def __init__(self, stream: TextIO, console: Console, display: LiveDisplay) -> None:
        self.stream = stream
        self._console: Console | None = console
        self._display = display
        self._rest = ""

    def write(self, text: str) -> int:
        with self._display.lock:
            if self._console is None:
                return self.stream.write(text)
            lines, newline, self._rest = (self._rest + text).rpartition("\n")
            if newline:
                self._console.out(lines, highlight=False)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def finish(self) -> None:
        self._console = None
        self.stream.write(self._rest)

    @property
    def buffer(self) -> Any:
        self._display.clear()
        return self.stream.buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Console(Console):
    def show_cursor(self, show: bool = True) -> bool:
        """Never hide it: a killed crawl could not bring it back."""
        return False


def _redirect_log(streams: dict[int, Any]) -> None:
    """Scrapy makes a new handler with each crawl, so look at all of them."""
    for handler in logging.root.handlers:
        stream = getattr(handler, "stream", None)
        if isinstance(handler, logging.StreamHandler) and id(stream) in streams:
            handler.setStream(streams[id(stream)])


DISPLAY = LiveDisplay()


def draw(heading: str, census: Census, columns: int, lines: int) -> Group:
    most = min(_MOST_SLOTS, lines - _LOG_LINES)
    title = _text(heading, "bold")
    if most <= 0 or not census.slots:
        return Group(title)
    live = [figure for figure in figures.FIGURES if figure.is_live]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("  host", no_wrap=True)
    for figure in live:
        table.add_column(figure.title.lower(), justify="right", no_wrap=True)
    table.add_column("health", no_wrap=True)
    for view in census.top(most):
        name = shortened(view.key, min(_WIDEST_NAME, columns // 2))
        known, unknown = figures_of(view), "?" if view.status else ""
        cells = (_text(figure.text(known) or unknown) for figure in live)
        table.add_row(_text(f"  {name}"), *cells, _condition(view))
    more = len(census.slots) - most + census.others
    if more > 0:
        table.add_row(_text(f"  and {more} more", "dim"))
    return Group(title, table)


def _condition(view: SlotView) -> Text:
    status = view.status
    return _text(view.condition, _STYLES[status.health]) if status else _text("")


def _text(text: str, style: str = "") -> Text:
    """Text that is not markup, whatever it contains."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
