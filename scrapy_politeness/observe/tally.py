"""Counts per slot, of a bounded number of slots; the rest is counted together."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from scrapy_politeness.core.cause import Cause
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.observe.evidence import Responses
from scrapy_politeness.observe.figures import COUNTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy_politeness.core.route import Flight
    from scrapy_politeness.observe.timeline import Recording

# A broad crawl has millions of hosts. Up to twice as many are tallied between two
# clean-ups.
MOST_TALLIED = 512

# A host may invent statuses.
_MOST_FAILURES = 8
_OTHER_FAILURE = "something else"

_FAILURES = {
    Verdict.REFUSED: "refused",
    Verdict.BUSY: "refused",
    Verdict.TIMED_OUT: "timed_out",
    Verdict.FAILED: "failed",
    Verdict.UNREACHABLE: "failed",
    Verdict.UNWELCOME: "failed",
}

# Seconds: from what nobody notices to the longest Retry-After that is obeyed.
BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)


class Histogram:
    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def cumulative(self) -> list[int]:
        """Count the values up to each bound, and all of them."""
        return list(accumulate(self._counts))


@dataclass(slots=True)
class Tally:
    """What was done for a slot, or for several together.

    ``waited`` are the seconds for which politeness held requests back; ``causes`` has
    all that requests waited for, politeness or not.
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
    # By the reason of each outcome that was no success.
    failures: Counter[str] = field(default_factory=Counter)
    # Since when a request waits for this slot, and why the slot is paused if it is.
    held_since: float | None = None
    paused_because: Cause = Cause.HOST
    # Why it was stopped, if we are not welcome.
    blocked_because: str = ""
    # At which rates the host has served and refused.
    responses: Responses = field(default_factory=Responses)
    # For the report, where one is wanted.
    recording: Recording | None = None
    # What the log said last: see RateLog.
    logged_rate: float | None = None
    logged_settled: float | None = None
    logged_overload: bool = False
    logged_bad_luck: bool = False
    logged_concurrency: int | None = None
    logged_waiting: bool = False
    # As of the last outcome.
    concurrency: int | None = None
    # Whether its rate was cut and has not risen since.
    was_cut: bool = False

    @property
    def main_cause(self) -> Cause:
        """The part of politeness that its requests waited for longest."""
        held = {c: s for c, s in self.causes.items() if c.is_politeness}
        return max(held, key=held.__getitem__, default=Cause.HOST)

    @property
    def average_interval(self) -> float | None:
        """Seconds from one request to the next."""
        if self.sent < 2 or self.first_sent is None or self.last_sent is None:
            return None
        return (self.last_sent - self.first_sent) / (self.sent - 1)

    def add(self, other: Tally) -> None:
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for cause, seconds in other.causes.items():
            self.blame(cause, seconds)
        for reason, times in other.failures.items():
            self.add_failures(reason, times)
        self.responses.add(other.responses)

    def add_failures(self, reason: str, times: int = 1) -> None:
        is_known = reason in self.failures or len(self.failures) < _MOST_FAILURES
        self.failures[reason if is_known else _OTHER_FAILURE] += times

    def blame(self, cause: Cause, seconds: float) -> None:
        self.causes[cause] = self.causes.get(cause, 0.0) + seconds

    def copy(self) -> Tally:
        copied = Tally()
        copied.add(self)
        copied.first_sent, copied.last_sent = self.first_sent, self.last_sent
        copied.blocked_because = self.blocked_because
        return copied


class Tallies:
    """Where there are too many slots, the least interesting ones are added to
    ``other``; a slot that returns starts at zero. ``pending`` counts the requests that
    wait for a slot."""

    def __init__(self, pending: Callable[[str], int], most: int = MOST_TALLIED) -> None:
        self.pending = pending
        self._most = most
        self._slots: dict[str, Tally] = {}
        self.other = Tally()
        # Slots that returned and were dropped again count twice.
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
        key, now = flight.route.slot.key, flight.permit.sent_at
        tally = self._slots.get(key) or self.of(key)
        since = asked_at if tally.held_since is None else tally.held_since
        tally.held_since = now if self.pending(key) else None
        last = tally.last_sent
        if last is None:
            tally.first_sent = now
        else:
            if since > last:
                tally.blame(Cause.SPIDER, since - last)
            tally.responses.sent(now - last)
        tally.sent += 1
        tally.last_sent = now
        self._held(tally, flight, now - since)
        return tally

    def _held(self, tally: Tally, flight: Flight, seconds: float) -> None:
        slot, permit = flight.route.slot, flight.permit
        late = permit.late if permit.late < seconds else seconds
        by_budgets = 0.0
        if flight.shared:
            by_budgets = max(0.0, late - min(p.late for p in flight.shared))
        held = seconds - late + by_budgets
        tally.waited += held
        self.waits.add(held)
        if seconds > late:
            cause = tally.paused_because if permit.resumed else slot.bound_by
            tally.blame(cause, seconds - late)
        if by_budgets:
            tally.blame(Cause.SETTINGS, by_budgets)
        is_full = permit.beside >= slot.concurrency
        rest = Cause.ANSWERS if is_full else Cause.CRAWLER
        tally.blame(rest, late - by_budgets)

    def settled(self, slot_key: str, outcome: Outcome) -> Tally:
        tally = self._slots.get(slot_key) or self.of(slot_key)
        verdict = outcome.verdict
        if verdict is Verdict.SERVED:
            tally.served += 1
            tally.responses.settled(refused=False)
        elif (name := _FAILURES.get(verdict)) is not None:
            setattr(tally, name, getattr(tally, name) + 1)
            if verdict.is_overload:
                tally.responses.settled(refused=True)
            tally.add_failures(outcome.reason)
        return tally

    def _make_room(self) -> None:
        def interest(slot_key: str) -> tuple[int, int, float, int]:
            tally = self._slots[slot_key]
            refused = tally.refused + tally.timed_out
            return self.pending(slot_key), refused, tally.waited, tally.sent

        ranked = sorted(self._slots, key=interest, reverse=True)
        for slot in ranked[self._most :]:
            self.other.add(self._slots.pop(slot))
        self.others += len(ranked) - self._most
