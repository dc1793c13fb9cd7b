"""What must hold whatever comes in: it takes little time, and the log stays sound."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Seconds of this thread's own work: no input may take longer, of 64 KB at most. Nearly
# all take less than a millisecond; what grows with the square of its length does not.
_MOST_WORK = 1.5

_LONGEST_LINE = 1500


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def watched() -> Iterator[list[str]]:
    """Gives the lines that this package logs meanwhile."""
    listener = _Listener()
    ours = logging.getLogger("scrapy_politeness")
    level, propagates = ours.level, ours.propagate
    ours.addHandler(listener)
    ours.setLevel(logging.DEBUG)
    ours.propagate = False
    begun = time.thread_time()
    try:
        yield listener.lines
    finally:
        spent = time.thread_time() - begun
        ours.removeHandler(listener)
        ours.setLevel(level)
        ours.propagate = propagates
    assert spent < _MOST_WORK, f"it took {spent:.2f} s"
    for line in listener.lines:
        assert line.isprintable(), f"forged: {line!r:.300}"
        assert len(line) < _LONGEST_LINE, f"{len(line)} characters: {line:.300}"
