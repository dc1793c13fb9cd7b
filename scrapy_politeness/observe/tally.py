"""Counts per slot, of a bounded number of slots; the rest is counted together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_politeness.core.cause import Cause
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.observe.figures import COUNTS
from scrapy_politeness.observe.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy_politeness.core.route import Flight
    from scrapy_politeness.observe.sampler import Recording

# Of a broad crawl's millions of hosts, these are kept apart; twice as many while they
# are collected.
MOST_TALLIED = 512

# A host may invent statuses.
_MOST_TROUBLES = 8
_OTHER_TROUBLE = "something else"


@dataclass(slots=True)
class Tally:
    """What was done for a slot, or for several together.

    ``waited`` are the seconds in which there were requests to send, and politeness held
    them back; ``causes`` says what all requests of the slot waited for, politeness or
    not.
    """

    sent: int = 0
    served: int = 0
    refused: int = 0
    timed_out: int = 0
    failed: int = 0
    rescheduled: int = 0
    given_up: int = 0
    waited: float = 0.0
    first_sent: float | None = None
    last_sent: float | None = None
    causes: dict[Cause, float] = field(default_factory=dict)
    # What went wrong how often, by what was said of it.
    troubles: Counter[str] = field(default_factory=Counter)
    # Since when a request waits for this slot, and why it is silent if it is.
    held_since: float | None = None
    paused_because: Cause = Cause.HOST
    # For the report, where one is wanted.
    recording: Recording | None = None
    # What was told of it in the log.
    told_rate: float | None = None
    told_place: float | None = None
    told_relief: bool = False
    told_bad_luck: bool = False
    told_concurrency: int | None = None
    # How many could be under way when it was looked at last.
    concurrency: int | None = None
    # Whether its rate was cut and has not risen since.
    was_cut: bool = False
    is_warned: bool = False

    @property
    def main_cause(self) -> Cause:
        """What its requests waited for longest, of all that politeness is."""
        held = {c: s for c, s in self.causes.items() if c.is_politeness}
        return max(held, key=held.__getitem__, default=Cause.HOST)

    @property
    def average_interval(self) -> float | None:
        """Seconds between two requests; None where there were no two."""
        if self.sent < 2 or self.first_sent is None or self.last_sent is None:
            return None
        return (self.last_sent - self.first_sent) / (self.sent - 1)

    def add(self, other: Tally) -> None:
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for cause, seconds in other.causes.items():
            self.blame(cause, seconds)
        for reason, times in other.troubles.items():
            self.trouble(reason, times)

    def trouble(self, reason: str, times: int = 1) -> None:
        is_known = reason in self.troubles or len(self.troubles) < _MOST_TROUBLES
        self.troubles[reason if is_known else _OTHER_TROUBLE] += times

    def blame(self, cause: Cause, seconds: float) -> None:
        self.causes[cause] = self.causes.get(cause, 0.0) + seconds

    def copy(self) -> Tally:
        copied = Tally()
        copied.add(self)
        copied.first_sent, copied.last_sent = self.first_sent, self.last_sent
        return copied


class Tallies:
    """Where there are too many slots, those with the least to tell are counted as
    ``other``; one that is heard of again begins anew. ``pending`` tells how many
    requests wait for a slot."""

    def __init__(self, pending: Callable[[str], int], most: int = MOST_TALLIED) -> None:
        self.pending = pending
        self._most = most
        self._slots: dict[str, Tally] = {}
        self.other = Tally()
        # How many slots the others are, those that came back counted again.
        self.others = 0
        self.waits = Histogram()

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[tuple[str, Tally]]:
        return iter(self._slots.items())

    def of(self, slot_key: str) -> Tally:
        tally = self._slots.get(slot_key)
        if tally is None:
            if len(self._slots) >= 2 * self._most:
                self._make_room()
            tally = self._slots[slot_key] = Tally()
        return tally

    @property
    def total(self) -> Tally:
        total = self.other.copy()
        for tally in self._slots.values():
            total.add(tally)
        return total

    def queued(self, slot_key: str, now: float) -> None:
        """A request waits for a slot that had none."""
        tally = self._slots.get(slot_key)
        if tally is not None and tally.held_since is None:
            tally.held_since = now

    def sent(self, flight: Flight, asked_at: float) -> Tally:
        """A request that came to the gate at ``asked_at`` was sent."""
        slot, permit = flight.route.slot, flight.permit
        now = permit.sent_at
        tally = self.of(slot.key)
        since = asked_at if tally.held_since is None else tally.held_since
        tally.held_since = now if self.pending(slot.key) else None
        if tally.last_sent is not None:
            tally.blame(Cause.SPIDER, max(0.0, since - tally.last_sent))
        tally.sent += 1
        if tally.first_sent is None:
            tally.first_sent = now
        tally.last_sent = now
        self._held(tally, flight, now - since)
        return tally

    def _held(self, tally: Tally, flight: Flight, seconds: float) -> None:
        slot, permit = flight.route.slot, flight.permit
        late = min(permit.late, seconds)
        by_budgets = 0.0
        if flight.shared:
            by_budgets = max(0.0, late - min(p.late for p in flight.shared))
        held = seconds - late + by_budgets
        tally.waited += held
        self.waits.note(held)
        cause = tally.paused_because if permit.resumed else slot.bound_by
        tally.blame(cause, seconds - late)
        tally.blame(Cause.SETTINGS, by_budgets)
        is_full = permit.beside >= slot.concurrency
        rest = Cause.ANSWERS if is_full else Cause.CRAWLER
        tally.blame(rest, late - by_budgets)

    def settled(self, slot_key: str, outcome: Outcome) -> None:
        tally = self.of(slot_key)
        if outcome.verdict is Verdict.SERVED:
            tally.served += 1
        elif outcome.verdict.is_refusal:
            tally.refused += 1
        elif outcome.verdict is Verdict.TIMED_OUT:
            tally.timed_out += 1
        elif outcome.verdict in (Verdict.FAILED, Verdict.UNREACHABLE):
            tally.failed += 1
        if outcome.verdict not in (Verdict.SERVED, Verdict.IGNORED):
            tally.trouble(outcome.reason)

    def _make_room(self) -> None:
        def interest(slot_key: str) -> tuple[int, int, float, int]:
            tally = self._slots[slot_key]
            troubles = tally.refused + tally.timed_out
            return self.pending(slot_key), troubles, tally.waited, tally.sent

        ranked = sorted(self._slots, key=interest, reverse=True)
        for slot in ranked[self._most :]:
            self.other.add(self._slots.pop(slot))
        self.others += len(ranked) - self._most
