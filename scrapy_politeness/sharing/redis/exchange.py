"""One round trip: reports and asks go, and what the answers mean is passed on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy_politeness.core.cause import Block
from scrapy_politeness.sharing.redis.connection import UnavailableError
from scrapy_politeness.sharing.redis.replies import Saved, read_time
from scrapy_politeness.sharing.redis.server_clock import LONGEST_ROUND_TRIP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy.statscollectors import StatsCollector

    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.sharing.port import Hearer
    from scrapy_politeness.sharing.redis.asks import Ask
    from scrapy_politeness.sharing.redis.connection import Connection
    from scrapy_politeness.sharing.redis.learning import SharedLearning
    from scrapy_politeness.sharing.redis.replies import Granted
    from scrapy_politeness.sharing.redis.reservations import Reservations
    from scrapy_politeness.sharing.redis.server_clock import RoundTrip, ServerClock


class Exchange:
    """``members`` is the largest number of processes that were heard of."""

    hearer: Hearer

    def __init__(
        self,
        clock: ServerClock,
        round_trip: RoundTrip,
        reservations: Reservations,
        learning: SharedLearning,
        stats: StatsCollector,
    ) -> None:
        self._clock = clock
        self._round_trip = round_trip
        self._reservations = reservations
        self._learning = learning
        self._stats = stats
        self.members = 1

    async def run(
        self,
        connection: Connection,
        sources: Iterable[Slot | Budget],
        *,
        is_last: bool = False,
    ) -> None:
        """``sources`` are all that are shared. Raise UnavailableError if the server
        does not answer, or too late to be of use."""
        sent_at = time.monotonic()
        reports = self._learning.calls(sent_at, is_last=is_last)
        asks = self._reservations.calls(
            sent_at, self._learning.revision_of, self._learning.resets_of
        )
        calls = [call for *_, call in reports] + [call for _, call in asks]
        if not calls:
            return
        answers = await connection.run(calls)
        received_at = time.monotonic()
        self._round_trip.learn(received_at - sent_at)
        connection.round_trip = self._round_trip.usual
        self._stats.inc_value("politeness/redis/round_trips")
        self._stats.inc_value("politeness/redis/calls", len(calls))
        for (slot, copy, _), answer in zip(reports, answers, strict=False):
            saved = Saved.read(answer)
            self._learn_clock(sources, sent_at, received_at, saved.there)
            for report, change in self._learning.answered(
                slot, copy, saved, received_at
            ):
                if change.pause and slot.permits.is_joined:
                    self._reservations.paused(slot, received_at)
                    slot.block(Block.PAUSE, report.at + change.pause)
                self.hearer.learned(slot, report.outcome, change)
            slot.announce()
        for (ask, _), answer in zip(asks, answers[len(reports) :], strict=True):
            there = read_time(answer)
            self._learn_clock(sources, sent_at, received_at, there)
            # Only the first answer after that shows that the clock was set.
            if answer == there or ask.is_outdated:
                self._reservations.withdraw(ask, received_at)
            else:
                granted = self._reservations.read(ask, answer)
                self._hear(ask, granted, sent_at, received_at)
            for waiting in ask.waiting:
                waiting.announce()
        if self._round_trip.is_too_long:
            raise too_far(self._round_trip.usual)
        if self._reservations.come_too_late:
            raise UnavailableError(
                "permits arrive too late to be used: it is too far away, or this "
                "process is too busy"
            )

    def _hear(
        self, ask: Ask, granted: Granted, sent_at: float, received_at: float
    ) -> None:
        slot = ask.slot
        if slot is not None:
            if self._learning.was_reset(slot, granted.resets):
                slot.unblock(Block.PAUSE)
            self._learning.hear(slot, granted.revision, granted.model)
        pause = self._reservations.answered(ask, granted, sent_at, received_at)
        if slot is not None and pause:
            self.hearer.paused_elsewhere(slot, pause)
        self._stats.inc_value("politeness/redis/permits", len(granted.waits))
        self.members = max(self.members, *granted.members)

    def _learn_clock(
        self,
        sources: Iterable[Slot | Budget],
        sent_at: float,
        received_at: float,
        there: int,
    ) -> None:
        if self._clock.learn(sent_at, received_at, there):
            self._reservations.doubt(list(sources))


def too_far(seconds: float) -> UnavailableError:
    return UnavailableError(
        f"too far away: a round trip takes {seconds:.2f} s, and must take less than "
        f"{LONGEST_ROUND_TRIP} s"
    )
