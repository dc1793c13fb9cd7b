"""Saves what a crawl learns in the state file, and reads it back."""

from __future__ import annotations

import logging
import sqlite3
import time
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_politeness.core.text import counted
from scrapy_politeness.http.names import printable
from scrapy_politeness.storage.state_file import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider
    from scrapy.utils.asyncio import CallLaterResult

    from scrapy_politeness.core.learned import Learned
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.storage.state_file import StateFile

_T = TypeVar("_T")

logger = logging.getLogger(__name__)

# Seconds. What a run learned since the last save is lost when it is killed.
_SAVE_EVERY = 5.0

# Collecting this many takes milliseconds; the others follow a little later.
_MOST_AT_ONCE = 1000
_A_LITTLE_LATER = 0.1

# While the file cannot be written, no more than this is kept for later.
_MOST_UNSAVED = 100_000

_LOOK_EVERY = 0.01

# SQLite quotes what it cannot read, and Python may fail to decode that.
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)


class Records:
    """Reads directly, and writes in a thread: pauses at once, the rest every few
    seconds. Whatever goes wrong with the file, the crawl goes on, and what could not be
    written is written later."""

    def __init__(
        self,
        state: StateFile,
        spider: Spider | None = None,
        later: Callable[[float, Callable[[], None]], CallLaterResult] = call_later,
    ) -> None:
        self._state = state
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        self._later = later
        self._timer: CallLaterResult | None = None
        self._writer = ThreadPoolExecutor(1, "politeness-state")
        self._changed: dict[str, Slot] = {}
        self._warned: set[str] = set()
        self._is_closed = False
        # The thread removes from these what it has written.
        self._lock = Lock()
        self._pauses: dict[str, float] = {}
        self._learned: dict[str, Entry | None] = {}
        self._is_due = False

    def pauses(self) -> dict[str, float]:
        """Return the seconds left of the pauses of earlier runs."""
        wall_now = time.time()
        try:
            pauses = self._state.pauses(wall_now)
        except _UNREADABLE as error:
            self._warn_unreadable(error)
            return {}
        self._do(lambda: self._state.tidy(wall_now))
        return pauses

    def recall(self, slot_key: str, start_rate: float) -> Learned | None:
        """Return what is still believed about a slot."""
        entry = self._find(slot_key)
        if entry is None:
            return None
        return entry.learned.aged(time.time() - entry.at, start_rate)

    def changed(self, slot: Slot) -> None:
        """The slot may have learned something."""
        self._changed[slot.key] = slot
        self._plan()

    def paused(self, slot_key: str, until: float) -> None:
        """``until`` is wall time."""
        with self._lock:
            self._pauses[slot_key] = until
        self._save()

    def forget(self, slot_key: str) -> None:
        self._changed.pop(slot_key, None)
        with self._lock:
            self._learned[slot_key] = None
        self._save()

    def close(self) -> None:
        """Save all that is left, in the background."""
        while self._changed:
            self._collect()
        self._save()
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._state.close_reader()
        self._closing = self._writer.submit(self._state.close)
        self._writer.shutdown(wait=False)

    async def wait_closed(self) -> None:
        while not self._closing.done():
            await _sleep(_LOOK_EVERY)
        if left := self._pauses.keys() | self._learned.keys():
            self._log.warning(
                "What was learned about %(slots)s could not be saved for the next run",
                {"slots": counted(len(left), "slot")},
            )

    def _find(self, slot_key: str) -> Entry | None:
        changed = self._changed.get(slot_key)
        if changed is not None and changed.learned is not None:
            return Entry(changed.learned, time.time())
        with self._lock:
            if slot_key in self._learned:
                return self._learned[slot_key]
        if self._is_closed:
            return None
        try:
            return self._state.learned(slot_key)
        except sqlite3.Error as error:
            self._warn_unreadable(error)
        except ValueError as error:
            self._warn(
                "Dropped what was learned about %(slot)s, which cannot be read: "
                "%(error)s. Further drops are not logged",
                {"slot": printable(slot_key), "error": printable(str(error))},
            )
            self.forget(slot_key)
        return None

    def _plan(self, wait: float = _SAVE_EVERY) -> None:
        if self._timer is None and not self._is_closed:
            self._timer = self._later(wait, self._time_to_save)

    def _time_to_save(self) -> None:
        self._timer = None
        self._save()

    def _save(self) -> None:
        if self._is_closed:
            return
        self._collect()
        with self._lock:
            is_unsaved = bool(self._pauses or self._learned)
            is_due, self._is_due = self._is_due, is_unsaved
        if is_unsaved and not is_due:
            self._do(self._write)
        if self._changed:
            self._plan(_A_LITTLE_LATER)
        elif is_unsaved:
            self._plan()  # to see whether it was written

    def _collect(self) -> None:
        wall_now = time.time()
        with self._lock:
            for key in list(islice(self._changed, _MOST_AT_ONCE)):
                if (learned := self._changed.pop(key).learned) is not None:
                    self._learned[key] = Entry(learned, wall_now)
            while len(self._learned) > _MOST_UNSAVED:
                del self._learned[next(iter(self._learned))]

    def _do(self, work: Callable[[], None]) -> None:
        """Run work in the thread, one after the other."""

        def attempt() -> None:
            try:
                work()
            except sqlite3.Error as error:
                self._warn(
                    "The state file cannot be written now; trying again later: "
                    "%(error)s",
                    {"error": printable(str(error))},
                )

        # Other errors must not go unnoticed.
        self._writer.submit(attempt).add_done_callback(Future.result)

    def _write(self) -> None:
        with self._lock:
            self._is_due = False
            pauses, learned = dict(self._pauses), dict(self._learned)
        self._state.write(pauses, learned)
        with self._lock:
            _subtract(pauses, self._pauses)
            _subtract(learned, self._learned)

    def _warn_unreadable(self, error: Exception) -> None:
        self._warn(
            "The state file cannot be read now; going on without it: %(error)s",
            {"error": printable(str(error))},
        )

    def _warn(self, message: str, details: dict[str, object]) -> None:
        """Warn once: where one entry cannot be read, often others cannot either."""
        if message not in self._warned:
            self._warned.add(message)
            self._log.warning(message, details)


def _subtract(written: dict[str, _T], unsaved: dict[str, _T]) -> None:
    """Remove what was written, unless it has changed since."""
    for slot, value in written.items():
        if slot in unsaved and unsaved[slot] is value:
            del unsaved[slot]


async def _sleep(seconds: float) -> None:
    over: Deferred[None] = Deferred()
    call_later(seconds, over.callback, None)
    await maybe_deferred_to_future(over)
