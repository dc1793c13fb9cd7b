"""Writes down, for the report, what each tallied slot does over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_politeness.observe.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_politeness.core.outcome import Outcome, Permit
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.observe.tally import Tally

# A request stands for the time until the next one; but where that is later than two
# intervals, and than this many seconds, nothing was sent in between.
_GAP = 2.0


@dataclass(slots=True)
class Recording:
    """The timeline of one slot, and what is not over yet."""

    timeline: Timeline
    _last_sent: float | None = None
    _interval: float = 0.0
    # What the request before it stood for.
    _gap: float = 0.0
    _silent_since: float | None = None
    _silent_until: float = 0.0
    # After the last request, that is: it stands for as long as the one before.
    _was_silent: bool = False

    def sent(self, now: float, interval: float) -> None:
        self._account_for_last(now)
        self.released(now)
        self._was_silent = False
        self._last_sent, self._interval = now, interval

    def silenced(self, now: float, until: float) -> None:
        if self._silent_since is None or self._silent_until < now:
            self.released(now)
            self._silent_since = now
            self._was_silent = True
        self._silent_until = max(self._silent_until, until)

    def released(self, now: float) -> None:
        if self._silent_since is not None:
            until = min(now, self._silent_until)
            self.timeline.note_silence(self._silent_since, until)
            self._silent_since = None

    def finish(self, now: float) -> None:
        """The crawl is over."""
        timeline = self.timeline
        if self._last_sent is not None:
            stands_for = max(self._interval, self._gap)
            until = min(self._last_sent + stands_for, now)
            share = (until - self._last_sent) / stands_for
            timeline.note_sent(self._last_sent, until, share)
            self._last_sent = None
        self.released(now)
        timeline.extend(now)

    def _account_for_last(self, now: float) -> None:
        since = self._last_sent
        if since is None:
            return
        longest = max(2 * self._interval, _GAP)
        if self._was_silent or now - since > longest:
            now = min(now, since + max(self._interval, self._gap))
        self._gap = now - since
        self.timeline.note_sent(since, now)


class Sampler:
    def __init__(self, start: float) -> None:
        self.start = start
        self.overall = Timeline(start)

    def begin(self, now: float, tallies: Iterable[tuple[str, Tally]]) -> None:
        """The spider is open: from now on, time counts. Nothing was sent so far, but
        slots may be silent since an earlier run."""
        self.start = now
        self.overall = Timeline(now)
        for _, tally in tallies:
            if tally.recording is not None:
                tally.recording.timeline = Timeline(now)

    def sent(self, slot: Slot, tally: Tally, permit: Permit) -> None:
        now = permit.sent_at
        self.overall.note_sent(now, now)
        self._recording(tally).sent(now, 1 / slot.rate)
        self._note_rate(slot, tally, now)

    def settled(self, slot: Slot, tally: Tally, outcome: Outcome, now: float) -> None:
        if outcome.verdict.calls_for_pause:
            self.overall.note_refusal(now)
            self._recording(tally).timeline.note_refusal(now)
        self._note_rate(slot, tally, now)

    def silenced(self, slot: Slot, tally: Tally, now: float) -> None:
        self._recording(tally).silenced(now, slot.blocked_until)

    def released(self, tally: Tally, now: float) -> None:
        self._recording(tally).released(now)

    def _note_rate(self, slot: Slot, tally: Tally, now: float) -> None:
        timeline = self._recording(tally).timeline
        timeline.note_rate(now, slot.rate, slot.ceiling)

    def _recording(self, tally: Tally) -> Recording:
        if tally.recording is None:
            tally.recording = Recording(Timeline(self.start))
        return tally.recording
