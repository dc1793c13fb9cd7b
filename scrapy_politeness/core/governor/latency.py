"""Does the host answer more slowly because of our rate? If so, cap the rate.

Theory of operation
-------------------
A slow answer proves nothing: robots.txt is a static file, one page takes a hundred
times as long as another, and a host has its own bad hours. Overloaded is a host that
*queues*: it answers as many requests per second as it can, and whatever comes faster
waits. Then all answers are late, those of fast pages too; each is later than the one
before, until every place of the slot is taken; and slowing down helps.

Answers are judged in windows of a few, in the order in which they come. A window is
compared with what is normal for this host: a running median, not the fastest ever.

=====  =====================================================  =====  =================
stage  what happens                                           next   the cap
=====  =====================================================  =====  =================
FREE   nearly all answers of a window are late, and they get  TRIAL  half of what the
       later and later, or the slot is full                          host answers
TRIAL  answers are normal again: it seems overloaded          HELD   just under what
                                                                     it answered
TRIAL  they are still late: so they would be at any rate,     FREE,  as before the
       and that is normal now                                 HELD   trial
HELD   nearly all answers of some windows are late            TRIAL  half of it
HELD   no answers are late for a while                        HELD   one step higher
HELD   the cap is far above what the governor wants           FREE   none
HELD   answers are late at one lower cap after the other,     HELD   soon a large step
       though no fewer than are sent: that is normal now             higher
=====  =====================================================  =====  =================

The host is called overloaded after two trials in a row that have helped: where fast and
slow pages take turns, one may help by accident.

At half the rate, a queue is gone after twice the time that its last request waits. So
a trial is short, and a false alarm costs next to nothing. What is found to be normal
stays so for a time, which doubles with every false alarm.

Only requests that went as soon as the pace, or a full slot, let them go can show
anything. What a slow spider sends is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from itertools import combinations

from scrapy_politeness.core.snapshot import (
    State,
    kept,
    number,
    one_of,
    optional,
    positive,
    series,
    whole,
)

# Answers in a window, and windows that are remembered. A trial has to be short.
_WINDOW = 8
_TRIAL_WINDOW = 5
_HISTORY = 8

# Late is what takes this many times as long as normal, and this much longer: a
# host that answers in 5 ms is not overloaded at 15. One answer of a window may be in
# time: it may come from a cache.
_LATE = 1.5
_LATE_SECONDS = 0.03
_NEARLY_ALL = 1

# Latencies rise if this share of all pairs does. Eight in random order do so once in
# a thousand times; a step from fast pages to slow ones never does.
_RISING_PAIRS = 0.89
_FEWEST_RISING = 5

# What is normal moves by these shares per window, faster towards what is good.
_SLOWER = 0.03
_FASTER = 0.06

# Throughput is measured over this many windows.
_MEASURED = 2
_MEASURED_IF_HELD = 4

# The rate of a trial, as a share of the throughput. It ends at the latest when the
# queue has had this many times its longest wait to drain, and has helped if no more
# than this share of the delay is left.
_DRAIN = 0.5
_DRAIN_WAITS = 3.0
_LEFT = 0.25

# So many trials in a row hardly help by accident.
_SURE = 2

# Just under the throughput, so that no queue builds up again.
_UNDER = 0.97

# Near its capacity a host is late now and then: only if that lasts for this many
# windows or seconds is it a queue that grows. Few answers measure the throughput badly,
# so the cap does not fall further than to this share, or to the second one if the slot
# is full: then the cap may be far above what the host can do.
_LATE_WINDOWS = 4
_LATE_FOR = 4.0
_LARGEST_CUT = 0.9
_LARGEST_CUT_IF_FULL = 0.75

# A host that queues answers fewer than are sent. If one that answers this share of
# them was late so often, at one lower cap after the other, it is not for our rate.
_KEEPS_UP = 0.97
_IN_VAIN = 3

# One step up. Steps get larger only well above the last known throughput: what is
# 5 % too fast makes a queue that is seen before anything times out.
_STEP = 0.05
_LARGEST_STEP = 0.5
_STEP_AGAIN = 0.2
_WELL_ABOVE = 1.1

# A cap is tested for as many seconds, windows and normal latencies as a queue needs to
# show, if at least this share of it is in use.
_TEST_SECONDS = 4.0
_TEST_WINDOWS = 4
_TEST_LATENCIES = 10.0
_IN_USE = 0.8

# A cap that is so far above the rate is none.
_FAR_ABOVE = 1.5

# Seconds without a step after a queue has shown, doubled each time.
_HOLD = 10.0
_LONGEST_HOLD = 40.0

# Seconds for which what was accepted stays normal, doubled each time.
_ACCEPT = 60.0
_LONGEST_ACCEPT = 1920.0


class Stage(Enum):
    FREE = "free"
    TRIAL = "trial"
    HELD = "held"


@dataclass(eq=False, repr=False, slots=True)
class Latency(State):
    """``_least`` is the rate below which there is no cap."""

    _least: float
    stage: Stage = kept(one_of(Stage), Stage.FREE)
    cap: float = kept(number, math.inf)
    # Since when the cap is what it is, and from when on requests count.
    _since: float = kept(number, -math.inf)
    _from: float = kept(number, -math.inf)
    _normal: float | None = kept(optional(positive), None)
    # What was normal before something slower was accepted, for how long that is done,
    # and until when.
    _formerly: float | None = kept(optional(positive), None)
    _accept: float = kept(positive, _ACCEPT)
    _accepted_until: float = kept(number, -math.inf)
    # The latencies of this window, and how many found the slot full.
    _window: list[float] = kept(series(number), [])
    _full: int = kept(whole, 0)
    # Of the last windows: a low quantile, when each ended, how many were late.
    _lows: list[float] = kept(series(number), [])
    _ended: list[float] = kept(series(number), [])
    _late: int = kept(whole, 0)
    # Of a trial: cap and rate before it, what the host answered per second, and the
    # longest wait.
    _before: float = kept(number, math.inf)
    slowed_from: float = kept(number, math.inf)
    _throughput: float = kept(number, 0.0)
    _longest: float = kept(number, 0.0)
    # Of a cap: the windows in which nothing was late, the next step, until when there
    # is none, and how often the cap was lowered since the last step.
    _tested: int = kept(whole, 0)
    _step: float = kept(positive, _STEP)
    _hold: float = kept(positive, _HOLD)
    _held_until: float = kept(number, -math.inf)
    _in_vain: int = kept(whole, 0)
    # How many trials in a row have helped.
    _helped: int = kept(whole, 0)

    def __repr__(self) -> str:
        return f"<Latency {self.stage.value}, at most {self.cap:.3g}/s>"

    def shape(self) -> dict[str, object]:
        caps = ("cap", "_before", "slowed_from")
        return {**State.shape(self), **dict.fromkeys(caps, self._at_least)}

    @property
    def is_overloaded(self) -> bool:
        """Tell whether requests of ours are known to pile up, or did so just now."""
        if self.stage is Stage.TRIAL:
            return self._before < math.inf
        return self.stage is Stage.HELD and self._late > 0

    def observe(
        self, latency: float, sent_at: float, now: float, *, rate: float, full: bool
    ) -> bool:
        """Learn from an answer; return whether it has shown that the host is
        overloaded. ``rate`` is what the governor wants to send; ``full`` says that the
        request took the last place of its slot."""
        if sent_at < self._from:
            self._longest = max(self._longest, latency)
            return False
        if not self._ended:
            is_first = self._normal is None
            self._ended = [sent_at if is_first else now]
            if not is_first:
                return False
        self._window.append(latency)
        self._full += full
        window = self._window
        size = _TRIAL_WINDOW if self.stage is Stage.TRIAL else _WINDOW
        # A crawl that starts too fast is far behind before its first window ends.
        starts_too_fast = self._normal is None and _rise(window)
        if len(window) < size and not starts_too_fast:
            return False
        was_full = 2 * self._full > len(window)
        self._window = []
        self._full = 0
        self._ended = [*self._ended[-_HISTORY:], now]
        if self.stage is Stage.TRIAL:
            return self._try(window, sent_at, now)
        self._judge(window, was_full, rate, now)
        return False

    def interrupt(self, until: float) -> None:
        """The crawl was held up until then. Of what was under way, the slow answers
        come last, and they alone: none of it counts."""
        self._from = max(self._from, until)
        self._start_window()

    def _judge(
        self, window: list[float], was_full: bool, rate: float, now: float
    ) -> None:
        ordered = sorted(window)
        low, median = ordered[_NEARLY_ALL], ordered[len(window) // 2]
        rises = _rise(window)
        if self._normal is None:
            self._normal = low
            if rises:
                self._normal, low = window[0], median
        if was_full and self._formerly is not None and now >= self._accepted_until:
            # With a full slot, a queue that was taken for normal does not show.
            self._normal, self._formerly = self._formerly, None
        self._lows = [*self._lows[1 - _HISTORY :], low]
        held = self.stage is Stage.HELD
        if low <= _LATE * self._normal + _LATE_SECONDS:
            self._late = 0
            if held and not was_full:
                self._test(self._normal, rate, now)
            elif not held:
                self._normal = self._moved(self._normal, median, now)
            return
        self._late += 1
        grows = self._is_late_for_long(now) if held else rises or _rise(self._lows)
        if not grows and not was_full:
            return
        if self._in_vain < _IN_VAIN:
            self.slowed_from = min(rate, self.cap)
            self._begin_trial(window, was_full, now)
        else:
            self._accept_as_normal(median, now)
            self._step = _STEP_AGAIN
            self._held_until = now
            self._go(Stage.HELD, self.cap, now)

    def _moved(self, normal: float, median: float, now: float) -> float:
        if median > normal:
            return min(median, normal * (1 + _SLOWER))
        if now < self._accepted_until:
            return normal
        return max(median, normal * (1 - _FASTER))

    def _is_late_for_long(self, now: float) -> bool:
        windows = min(self._late, len(self._ended) - 1)
        lasted = now - self._ended[-1 - windows]
        return self._late >= _LATE_WINDOWS or lasted >= _LATE_FOR

    def _begin_trial(self, window: list[float], was_full: bool, now: float) -> None:
        held = self.stage is Stage.HELD
        most = _MEASURED_IF_HELD if held else _MEASURED
        windows = min(most, len(self._ended) - 1)
        elapsed = now - self._ended[-1 - windows]
        throughput = windows * len(window) / elapsed if elapsed > 0 else math.inf
        if held:
            least = _LARGEST_CUT_IF_FULL if was_full else _LARGEST_CUT
            throughput = max(throughput, least * self.cap)
        self._throughput = min(throughput, self.cap)
        self._before = self.cap
        self._longest = max(window)
        self._go(Stage.TRIAL, _DRAIN * self._throughput, now)

    def _try(self, window: list[float], sent_at: float, now: float) -> bool:
        median = sorted(window)[len(window) // 2]
        normal = median if self._normal is None else self._normal
        before, self._before = self._before, math.inf
        is_new = before == math.inf
        delay = max(0.0, self._longest - normal)
        if median <= normal + max(_LEFT * delay, _LATE_SECONDS):
            self._normal = min(normal, (normal + median) / 2)
            self._step = _STEP
            self._held_until = now + self._hold
            self._hold = min(2 * self._hold, _LONGEST_HOLD)
            keeps_up = self._throughput >= _KEEPS_UP * before
            self._in_vain = self._in_vain + 1 if keeps_up else 0
            self._go(Stage.HELD, _UNDER * self._throughput, now)
            # So it is until a whole window was in time.
            self._late = 1
            self._helped += 1
            return self._helped == _SURE
        if sent_at - self._since > _DRAIN_WAITS * self._longest:
            self._accept_as_normal(median, now)
            self._go(Stage.FREE if is_new else Stage.HELD, before, now)
        else:
            self._before = before
        return False

    def _accept_as_normal(self, latency: float, now: float) -> None:
        self._formerly, self._normal = self._normal, latency
        self._accepted_until = now + self._accept
        self._accept = min(2 * self._accept, _LONGEST_ACCEPT)
        self._in_vain = self._helped = 0

    def _test(self, normal: float, rate: float, now: float) -> None:
        if rate < _IN_USE * self.cap:
            return
        self._tested += 1
        seconds = max(_TEST_SECONDS, _TEST_LATENCIES * normal)
        if self._tested < _TEST_WINDOWS or now < self._since + seconds:
            return
        if now < self._held_until:
            return
        self._in_vain = 0
        cap = self.cap * (1 + self._step)
        if cap > _WELL_ABOVE * self._throughput:
            self._step = min(2 * self._step, _LARGEST_STEP)
        if cap < _FAR_ABOVE * rate:
            self._go(Stage.HELD, cap, now)
        else:
            self._hold = _HOLD
            self._helped = 0
            self._go(Stage.FREE, math.inf, now)

    def _go(self, stage: Stage, cap: float, now: float) -> None:
        self.stage = stage
        self.cap = self._at_least(cap)
        self._since = self._from = now
        self._tested = 0
        self._start_window()

    def _start_window(self) -> None:
        self._window = []
        self._full = 0
        self._lows = []
        self._ended = []
        self._late = 0

    def _at_least(self, cap: float) -> float:
        return max(self._least, number(cap))


def _rise(values: list[float]) -> bool:
    if len(values) < _FEWEST_RISING:
        return False
    pairs = list(combinations(values, 2))
    return sum(a < b for a, b in pairs) >= _RISING_PAIRS * len(pairs)
