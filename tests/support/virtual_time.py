"""An event loop whose time passes only when nothing is left to do."""

from __future__ import annotations

import asyncio
import selectors
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

# Wall-clock time when the virtual time began.
EPOCH = 1_800_000_000.0

# Seconds that each round of the loop takes. Timers ring up to this early, and who looks
# at the clock then must not wait for ever.
_ROUND = 1e-9


class _Selector(selectors.DefaultSelector):
    """Does not wait for a timer, but moves the time on."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        events: list[Any] = super().select(0)
        if not events:
            assert timeout is not None, "everything waits for something else"
            self.loop.now += max(_ROUND, timeout)
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        selector = _Selector()
        super().__init__(selector)
        selector.loop = self
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def wall_time(self) -> float:
        return EPOCH + self.now


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run something to its end; ``time`` tells the virtual time meanwhile."""

    def here() -> T:
        loop = VirtualLoop()
        try:
            with (
                mock.patch("time.monotonic", loop.time),
                mock.patch("time.time", loop.wall_time),
            ):
                return loop.run_until_complete(work)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    # The tests' own thread has its event loop already.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(here).result()
