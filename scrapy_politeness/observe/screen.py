"""The lines at the bottom of a terminal, beside all else that is written there.

Whatever is written to the terminal through Python's own streams, logging included,
comes above those lines: they are wiped out before it and written again after it. What
they look like is made up a few times per second; to write them again is cheap.
"""

from __future__ import annotations

import logging
import os
import sys
from threading import RLock
from typing import TYPE_CHECKING, Any, TextIO

from scrapy_politeness.core.text import width

if TYPE_CHECKING:
    from collections.abc import Iterable

_STREAMS = ("stderr", "stdout")


class Screen:
    """One for the whole process: crawls that run side by side show their lines one
    below the other. The first to come takes over the streams, the last to go gives
    them back. ``show`` and ``leave`` are for the event loop alone."""

    def __init__(self) -> None:
        # Threads write to the log, too.
        self.lock = RLock()
        self._blocks: dict[object, list[str]] = {}
        self._shown: list[int] = []
        self._out: TextIO | None = None
        self._above: dict[str, Above] = {}

    def show(self, owner: object, lines: list[str]) -> None:
        """Show these lines instead of those that the owner has shown before."""
        if not self._blocks:
            self._take_over()
        with self.lock:
            self._blocks[owner] = lines
            self.write("")

    def leave(self, owner: object, last_words: list[str]) -> None:
        """Show the owner's lines no longer. If there were any, others come, to stay."""
        if owner not in self._blocks:
            return
        try:
            with self.lock:
                del self._blocks[owner]
                self.write("".join(f"{line}\n" for line in last_words))
        finally:
            if not self._blocks:
                self._give_back()

    def write(self, text: str) -> None:
        """``text`` is of whole lines."""
        with self.lock:
            out = self._out or sys.stderr
            lines = [line for block in self._blocks.values() for line in block]
            out.write("".join([self._wiping(), text, *(f"{line}\n" for line in lines)]))
            out.flush()
            self._shown = list(map(visible_width, lines))

    def wipe(self) -> None:
        """Make room for somebody who does not write through here."""
        with self.lock:
            if self._out is not None and self._shown:
                self._out.write(self._wiping())
                self._out.flush()
                self._shown = []

    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal."""
        try:
            size = os.get_terminal_size((self._out or sys.stderr).fileno())
        except (OSError, ValueError, AttributeError):
            return 80, 24
        return size.columns or 80, size.lines or 24

    def _wiping(self) -> str:
        if not self._shown:
            return ""
        # A terminal that has become narrower has wrapped what is too long for it.
        columns, _ = self.size()
        rows = sum(max(1, -(-shown // columns)) for shown in self._shown)
        return f"\r\x1b[{rows}A\x1b[J"

    def _take_over(self) -> None:
        self._out = sys.stderr
        for name in _STREAMS:
            stream = getattr(sys, name)
            if is_terminal(stream) or stream is self._out:
                self._above[name] = Above(stream, self)
                setattr(sys, name, self._above[name])
        self._redirect({id(a.stream): a for a in self._above.values()})

    def _give_back(self) -> None:
        self._redirect({id(a): a.stream for a in self._above.values()})
        with self.lock:
            for name, above in self._above.items():
                above.finish()
                if getattr(sys, name) is above:
                    setattr(sys, name, above.stream)
            self._above = {}
            self._shown = []
            self._out = None

    @staticmethod
    def _redirect(streams: dict[int, Any]) -> None:
        """Scrapy makes a new handler with each crawl, so all are looked at.

        Never under the lock: a thread that logs has locked the handler, and may be
        waiting for this lock to write.
        """
        for handler in logging.root.handlers:
            stream = getattr(handler, "stream", None)
            if isinstance(handler, logging.StreamHandler) and id(stream) in streams:
                handler.setStream(streams[id(stream)])


class Above:
    """A stream of a terminal whose lines come above those at the bottom.

    Others may keep it for longer than there are any: then it is what it stands for.
    """

    def __init__(self, stream: TextIO, screen: Screen) -> None:
        self.stream = stream
        self._screen = screen
        self._rest = ""
        self._is_over = False

    def write(self, text: str) -> int:
        with self._screen.lock:
            if self._is_over:
                return self.stream.write(text)
            lines, newline, self._rest = (self._rest + text).rpartition("\n")
            if newline:
                self._screen.write(lines + newline)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def finish(self) -> None:
        self._is_over = True
        if self._rest:
            self.stream.write(self._rest)

    @property
    def buffer(self) -> Any:
        """Whoever writes bytes does so at once, and finds an empty line."""
        if not self._is_over:
            self._screen.wipe()
        return self.stream.buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


SCREEN = Screen()


def is_terminal(stream: Any) -> bool:
    """Not every stream that somebody puts in the place of stderr has all methods."""
    isatty = getattr(stream, "isatty", None)
    return isatty is not None and bool(isatty()) and os.environ.get("TERM") != "dumb"


def visible_width(line: str) -> int:
    """How wide a line is without the codes for its colours."""
    parts = line.split("\x1b[")
    return width(parts[0] + "".join(p.partition("m")[2] for p in parts[1:]))
