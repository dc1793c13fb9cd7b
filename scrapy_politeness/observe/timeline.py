"""What each slot does over time, for the report, in a bounded number of buckets."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from scrapy_politeness.http.names import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scrapy_politeness.core.outcome import Outcome, Permit
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.observe.tally import Tally

# When the buckets are full, pairs of them become one, twice as wide: two days fit as
# well as a minute.
MOST_BUCKETS = 240
_FIRST_WIDTH = 0.25

# Seconds. A request stands for the time until the next one; but where that is later
# than two intervals, and than this, nothing was sent in between.
_GAP = 2.0


ROWS = ("sent", "refused", "paused", "rate", "ceiling")


@dataclass(slots=True)
class Timeline:
    """Five rows of buckets: how many requests were ``sent`` and ``refused``, how many
    seconds were ``paused``, and the last known ``rate`` and ``ceiling``, 0 where there
    was none."""

    start: float
    width: float = _FIRST_WIDTH
    sent: array[float] = field(default_factory=lambda: array("f"))
    refused: array[int] = field(default_factory=lambda: array("I"))
    paused: array[float] = field(default_factory=lambda: array("f"))
    rate: array[float] = field(default_factory=lambda: array("f"))
    ceiling: array[float] = field(default_factory=lambda: array("f"))

    def __len__(self) -> int:
        return len(self.sent)

    def copy(self) -> Timeline:
        return replace(self, **{name: getattr(self, name)[:] for name in ROWS})

    def add_sent(self, since: float, until: float, share: float = 1.0) -> None:
        """Spread a request over the time until the next one: even spacing becomes an
        even line, however few requests fall into a bucket."""
        self.extend(until)
        self._spread(self.sent, since, until, share)

    def add_pause(self, since: float, until: float) -> None:
        if until > since:
            self.extend(until)
            self._spread(self.paused, since, until, until - since)

    def add_refusal(self, now: float) -> None:
        bucket = self.extend(now)
        self.refused[bucket] += 1

    def set_rate(self, now: float, rate: float, ceiling: float | None) -> None:
        bucket = self.extend(now)
        self.rate[bucket] = rate
        self.ceiling[bucket] = ceiling or 0.0

    def extend(self, now: float) -> int:
        """Make sure that there is a bucket for that time, and return its index."""
        age = max(0.0, now - self.start)
        if age >= self.width * len(self.sent):
            while age >= self.width * MOST_BUCKETS:
                self._grow(MOST_BUCKETS)
                self._merge_pairs()
            self._grow(int(age / self.width) + 1)
        return int(age / self.width)

    def _spread(
        self, row: array[float], since: float, until: float, amount: float
    ) -> None:
        """All buckets must exist already: ``extend`` may replace the row."""
        last = self.extend(until)
        first = min(self.extend(since), last)
        if first == last:
            row[first] += amount
            return
        per_second = amount / (until - since)
        for bucket in range(first, last + 1):
            begin = self.start + bucket * self.width
            inside = min(until, begin + self.width) - max(since, begin)
            row[bucket] += per_second * max(0.0, inside)

    def _grow(self, length: int) -> None:
        more = max(0, length - len(self.sent))
        for row in (self.sent, self.paused, self.refused):
            row.frombytes(bytes(more * row.itemsize))
        for row in (self.rate, self.ceiling):
            row.extend([row[-1] if row else 0.0] * more)

    def _merge_pairs(self) -> None:
        self.width *= 2
        for name in ("sent", "paused", "refused"):
            row = getattr(self, name)
            merged = map(sum, zip(row[::2], row[1::2], strict=True))
            setattr(self, name, array(row.typecode, merged))
        self.rate = self.rate[1::2]
        self.ceiling = self.ceiling[1::2]


@dataclass(slots=True)
class Recording:
    """The timeline of one slot, and what is not over yet."""

    timeline: Timeline
    _last_sent: float | None = None
    _interval: float = 0.0
    # What the request before the last stood for.
    _gap: float = 0.0
    _paused_since: float | None = None
    _paused_until: float = 0.0
    # Since the last request: it stands for as long as the one before.
    _was_paused: bool = False

    def sent(self, now: float, interval: float) -> None:
        if (since := self._last_sent) is not None:
            until = now
            if self._was_paused or now - since > max(2 * self._interval, _GAP):
                until = min(now, since + max(self._interval, self._gap))
            self._gap = until - since
            self.timeline.add_sent(since, until)
        self.resumed(now)
        self._was_paused = False
        self._last_sent, self._interval = now, interval

    def paused(self, now: float, until: float) -> None:
        if self._paused_since is None or self._paused_until < now:
            self.resumed(now)
            self._paused_since = now
            self._was_paused = True
        self._paused_until = max(self._paused_until, until)

    def resumed(self, now: float) -> None:
        if self._paused_since is not None:
            until = min(now, self._paused_until)
            self.timeline.add_pause(self._paused_since, until)
            self._paused_since = None

    def finished(self, now: float) -> Timeline:
        """Return the timeline as if all that goes on ended now."""
        end = replace(self, timeline=self.timeline.copy())
        if self._last_sent is not None:
            stands_for = max(self._interval, self._gap)
            until = min(self._last_sent + stands_for, now)
            share = (until - self._last_sent) / stands_for
            end.timeline.add_sent(self._last_sent, until, share)
        end.resumed(now)
        end.timeline.extend(now)
        return end.timeline


class Sampler:
    """Records all tallied slots."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.overall = Timeline(start)
        # Of earlier runs, until the slot is seen again.
        self._earlier: dict[str, Timeline] = {}

    def begin(
        self,
        now: float,
        tallies: Iterable[tuple[str, Tally]],
        earlier: Mapping[str, Timeline] | None = None,
        overall: Timeline | None = None,
    ) -> None:
        """The spider is open. Nothing was sent so far, but slots may be paused since an
        earlier run. What is known of earlier runs is continued, as if no time had
        passed in between."""
        self._earlier = dict(earlier or {})
        self.overall = Timeline(now) if overall is None else overall
        self.start = self.overall.start
        for key, tally in tallies:
            if tally.recording is not None:
                tally.recording.timeline = self._timeline(key)

    def sent(self, slot: Slot, tally: Tally, permit: Permit) -> None:
        now = permit.sent_at
        self.overall.add_sent(now, now)
        recording = self._recording(slot, tally)
        recording.sent(now, 1 / slot.rate)
        recording.timeline.set_rate(now, slot.rate, slot.ceiling)

    def settled(self, slot: Slot, tally: Tally, outcome: Outcome, now: float) -> None:
        timeline = self._recording(slot, tally).timeline
        if outcome.verdict.calls_for_pause:
            self.overall.add_refusal(now)
            timeline.add_refusal(now)
        timeline.set_rate(now, slot.rate, slot.ceiling)

    def paused(self, slot: Slot, tally: Tally, now: float) -> None:
        self._recording(slot, tally).paused(now, slot.blocked_until)

    def resumed(self, slot: Slot, tally: Tally, now: float) -> None:
        self._recording(slot, tally).resumed(now)

    def _recording(self, slot: Slot, tally: Tally) -> Recording:
        if tally.recording is None:
            tally.recording = Recording(self._timeline(slot.key))
        return tally.recording

    def _timeline(self, slot_key: str) -> Timeline:
        known = self._earlier.pop(printable(slot_key), None)
        return known or Timeline(self.start)
