"""Answers that are held back until the next one shows what they mean."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from twisted.internet.defer import Deferred

from scrapy_politeness.core.outcome import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_politeness.core.outcome import Outcome
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.http.scrapy_internals import Engine

# Seconds. Whoever waits for the answer must not wait for a host that pauses.
_LONGEST = 30.0


class _Held(NamedTuple):
    sent_at: float
    since: float
    turns_out_refused: Deferred[bool]


class Doubts:
    """A request that gets a bare 403 is forbidden, if the host serves another that was
    sent later, and refused, if it serves none of several. Where no other is to come,
    nothing is held back.

    ``has_work`` tells whether more requests wait for a slot; ``watch`` is called when
    an answer is held back."""

    def __init__(
        self,
        engine: Engine,
        has_work: Callable[[Slot], bool],
        watch: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._has_work = has_work
        self._watch = watch
        self.held: dict[Slot, list[_Held]] = {}

    def hold(self, slot: Slot, sent_at: float) -> Deferred[bool] | None:
        """Return what will tell whether a request, which is not settled yet, has turned
        out to be refused; None if there is nothing to wait for."""
        if self._engine.is_closing or not (slot.in_flight > 1 or self._has_work(slot)):
            return None
        held = _Held(sent_at, time.monotonic(), Deferred())
        self.held.setdefault(slot, []).append(held)
        self._engine.make_room(1)
        self._watch()
        return held.turns_out_refused

    def answered(self, slot: Slot, sent_at: float, outcome: Outcome) -> None:
        is_served = outcome.verdict is Verdict.SERVED and outcome.is_page
        if is_served and slot in self.held:
            self._end(slot, lambda held: held.sent_at <= sent_at, refused=False)

    def refused(self, slot: Slot) -> None:
        if slot in self.held:
            self._end(slot, lambda held: True, refused=True)

    def look(self) -> None:
        """Pass on what there is no use in holding back any longer."""
        old = time.monotonic() - _LONGEST
        for slot in list(self.held):
            is_last = not slot.in_flight and not self._has_work(slot)
            if is_last or self._engine.is_closing:
                self._end(slot, lambda held: True, refused=False)
            else:
                self._end(slot, lambda held: held.since < old, refused=False)

    def _end(
        self, slot: Slot, is_over: Callable[[_Held], bool], *, refused: bool
    ) -> None:
        over = [held for held in self.held[slot] if is_over(held)]
        left = [held for held in self.held[slot] if not is_over(held)]
        if left:
            self.held[slot] = left
        else:
            del self.held[slot]
        for held in over:
            self._engine.make_room(-1)
            held.turns_out_refused.callback(refused)
