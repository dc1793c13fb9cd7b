"""The arithmetic, on virtual time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from scrapy_politeness.core.cause import Block
from scrapy_politeness.core.governor.backoff import Backoff
from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.governor.control_law import Governor
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.pace import Limit
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.http.retry_after import retry_after

SERVED = Outcome(Verdict.SERVED)
REFUSED = Outcome(Verdict.REFUSED, "429")
TIMED_OUT = Outcome(Verdict.TIMED_OUT, "timeout")
FAILED = Outcome(Verdict.FAILED, "ConnectionLost")
IGNORED = Outcome(Verdict.IGNORED, "IgnoreRequest")

BOUNDS = Bounds(start_rate=4.0, min_rate=0.5, max_rate=32.0)


def serve(governor: Governor, times: int, now: float = 0.0) -> float:
    """Serve one request every 0.2 s; return when the last was served."""
    for _ in range(times):
        now += 0.2
        governor.observe(Permit(now, paced=True), SERVED, now, 0.0)
    return now


def refuse(governor: Governor, now: float, wait: float | None = None) -> float:
    outcome = Outcome(Verdict.REFUSED, "429", wait)
    return governor.observe(Permit(now, paced=True), outcome, now, 0.0).pause


@pytest.mark.parametrize("outcome", [REFUSED, TIMED_OUT])
def test_a_refusal_and_a_timeout_halve_the_rate(outcome: Outcome) -> None:
    governor = Governor(BOUNDS)
    governor.observe(Permit(0.0, paced=False), outcome, 1.0, 0.0)
    assert governor.rate == 2.0


def test_the_rate_is_halved_once_per_flight() -> None:
    governor = Governor(BOUNDS)
    flight = [Permit(sent_at, paced=True) for sent_at in (0.0, 0.2, 0.4)]
    for permit in flight:
        governor.observe(permit, REFUSED, 1.0, 0.0)
    assert governor.rate == 2.0
    governor.observe(Permit(7.0, paced=True), REFUSED, 7.1, 0.0)
    assert governor.rate == 1.0


@pytest.mark.parametrize(("wait", "pause"), [(None, 5.0), (7.0, 7.0)])
def test_a_busy_host_is_waited_for_at_the_same_rate(
    wait: float | None, pause: float
) -> None:
    governor = Governor(BOUNDS)
    now = serve(governor, 1)
    busy = Outcome(Verdict.BUSY, "MediaWiki maxlag", wait)
    advice = governor.observe(Permit(now, paced=True), busy, now + 1, 0.0)
    assert (advice.pause, advice.cut) == (pause, False)
    assert governor.rate == BOUNDS.start_rate
    assert governor.limit is None
    # Ever longer, but once for all that were under way.
    governor.observe(Permit(now, paced=True), busy, now + 1.1, 0.0)
    later = now + 20
    advice = governor.observe(Permit(later, paced=True), busy, later, 0.0)
    assert advice.pause == 10.0
    serve(governor, 100, later + 20)
    assert governor.rate > BOUNDS.start_rate


def test_the_rate_stays_within_its_bounds() -> None:
    governor = Governor(BOUNDS)
    now = serve(governor, 1000)
    assert governor.rate == BOUNDS.max_rate
    for seconds in range(100):
        refuse(governor, now + seconds)
    assert governor.rate == BOUNDS.min_rate


def test_sustained_successes_raise_the_rate() -> None:
    governor = Governor(BOUNDS)
    serve(governor, BOUNDS.raise_after - 1)
    assert governor.rate == 4.0
    serve(governor, 1)
    assert governor.rate > 4.0


def test_a_failure_that_is_no_refusal_does_not_hold_up_the_search() -> None:
    governor = Governor(BOUNDS)
    now = serve(governor, BOUNDS.raise_after - 1)
    advice = governor.observe(Permit(now, paced=True), FAILED, now, 0.0)
    assert (advice.pause, advice.cut) == (0.0, False)
    serve(governor, 1, now)
    assert governor.rate > BOUNDS.start_rate


def test_what_is_not_the_hosts_fault_changes_nothing() -> None:
    governor = Governor(BOUNDS)
    serve(governor, BOUNDS.raise_after - 1)
    assert governor.observe(Permit(0.0, paced=True), IGNORED, 0.0, 0.0).pause == 0
    serve(governor, 1)
    assert governor.rate > 4.0


def test_no_raise_while_the_pace_is_not_what_limits() -> None:
    governor = Governor(BOUNDS)
    for _ in range(100):
        governor.observe(Permit(0.0, paced=False), SERVED, 0.0, 0.0)
    assert governor.rate == BOUNDS.start_rate


def test_a_single_timeout_halves_the_rate_for_a_moment_only() -> None:
    governor = Governor(BOUNDS)
    now = serve(governor, 300) + 0.2
    before = governor.rate
    governor.observe(Permit(now, paced=True), TIMED_OUT, now + 1, 0.0)
    assert governor.rate == before / 2
    serve(governor, 10, now + 5)
    assert governor.rate == before
    assert governor.limit is None


@pytest.mark.parametrize("rate", [None, 1.0])
def test_a_crawl_that_is_slowed_down_otherwise_is_cut_from_its_real_rate(
    rate: float | None,
) -> None:
    governor = Governor(Bounds(start_rate=10.0))
    now = 0.0
    for _ in range(60):
        now += 1.0
        governor.observe(Permit(now, paced=False, rate=rate), SERVED, now, 0.0)
    now += 1.0
    governor.observe(Permit(now, paced=False, rate=rate), REFUSED, now, 0.0)
    assert governor.rate == pytest.approx(0.5, rel=0.05)


def silences(governor: Governor, times: int, now: float = 0.0) -> list[float]:
    """Be refused that often in a row, and as silent as advised after each time."""
    pauses = []
    for _ in range(times):
        pauses.append(refuse(governor, now))
        now += pauses[-1] + 0.1
    return pauses


def test_a_host_that_goes_on_refusing_is_asked_ever_more_rarely() -> None:
    pauses = silences(Governor(BOUNDS), 6)
    assert pauses == sorted(pauses)
    assert pauses[0] <= 5.0
    assert 5.0 <= pauses[1] <= 10.0
    assert 15.0 <= pauses[2] <= 20.0
    # So that it is soon found healthy.
    assert all(20.0 <= pause <= 30.0 for pause in pauses[3:])


def test_a_host_that_is_down_for_long_is_asked_after_a_twentieth_of_that() -> None:
    pauses = silences(Governor(BOUNDS), 200)
    down_for = 0.0
    for pause in pauses:
        assert pause <= max(30.0, 0.06 * down_for)
        down_for += pause
    assert pauses[-1] == BOUNDS.backoff_max


def test_the_backoff_begins_again_after_a_success() -> None:
    governor = Governor(BOUNDS)
    refuse(governor, 0.0)
    assert refuse(governor, 5.0) > 5.0
    serve(governor, 1, now=30.0)
    assert refuse(governor, 31.0) <= 5.0


def test_a_success_from_before_the_cut_does_not_end_the_backoff() -> None:
    governor = Governor(BOUNDS)
    refuse(governor, 1.0)
    governor.observe(Permit(0.5, paced=True), SERVED, 1.5, 0.0)
    assert refuse(governor, 2.0) > 5.0


def test_jitter_lengthens_the_backoff_by_a_tenth_at_most() -> None:
    def pause(chance: float, longest: float = 300.0) -> float:
        backoff = Backoff(5.0, longest)
        return backoff.refused(None, chance, 1.0, 0.0, 0.0)

    assert pause(0.0) == 5
    assert 5 < pause(0.5) < pause(0.999) < 5.5
    assert pause(0.999, longest=5.0) == 5


def test_a_refusal_that_is_half_as_likely_meant_gets_half_the_silence() -> None:
    assert Backoff(5.0, 300.0).refused(None, 0.0, 0.5, 0.0, 0.0) == 2.5
    assert Backoff(5.0, 300.0).refused(7.0, 0.0, 0.5, 0.0, 0.0) == 7.0


def test_a_small_retry_after_does_not_beat_the_backoff_from_the_second_on() -> None:
    governor = Governor(BOUNDS)
    assert refuse(governor, 0.0, wait=0.0) == 0.0
    assert refuse(governor, 1.0, wait=0.0) > 5.0
    assert refuse(governor, 2.0, wait=100.0) == 100.0


def test_a_longer_retry_after_of_the_same_flight_still_counts() -> None:
    governor = Governor(BOUNDS)
    refuse(governor, 1.0, wait=2.0)
    late = Outcome(Verdict.REFUSED, "429", 30.0)
    advice = governor.observe(Permit(0.9, paced=True), late, 1.1, 0.0)
    assert (advice.pause, advice.cut) == (30.0, False)


def test_two_thousand_refusals_in_a_row_are_survived() -> None:
    governor = Governor(BOUNDS)
    assert [refuse(governor, 10.0 * n) for n in range(2000)][-1] == 300


def test_a_fixed_rate_pauses_but_does_not_adapt() -> None:
    governor = Governor(replace(BOUNDS, adaptive=False))
    assert silences(governor, 2)[-1] >= 5.0
    serve(governor, 100, now=30.0)
    assert governor.rate == 4.0


def new_slot(
    rate: float = 10.0, *, spacing: float = 0.0, concurrency: int = 1000
) -> Slot:
    bounds = Bounds(start_rate=rate, max_rate=rate, min_rate=min(0.1, rate))
    return Slot("example.org", bounds, spacing=spacing, concurrency=concurrency)


def send(slot: Slot, times: int, now: float = 0.0, late: float = 0.0) -> list[float]:
    """Send as soon as may be, each ``late`` behind its time; return when."""
    sent = []
    for _ in range(times):
        now = max(now, slot.ready_at + late)
        slot.take(now)
        sent.append(now)
    return sent


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def test_the_first_goes_at_once_and_the_next_are_spaced_by_the_rate() -> None:
    sent = send(new_slot(10.0), 5, now=7.0)
    assert sent[0] == 7.0
    assert gaps(sent) == pytest.approx([0.1] * 4)


def test_late_timers_do_not_lower_the_rate() -> None:
    sent = send(new_slot(100.0), 101, late=0.002)
    assert sent[-1] == pytest.approx(1.0, abs=0.01)


def test_a_crawl_that_was_idle_does_not_catch_up() -> None:
    slot = new_slot(10.0)
    send(slot, 1)
    assert gaps(send(slot, 4, now=60.0)) == pytest.approx([0.1] * 3)


def test_robots_delay_is_never_undercut_not_even_after_a_late_timer() -> None:
    slot = new_slot(100.0)
    send(slot, 1)
    slot.obey_robots(0.2, now=0.05)
    sent = send(slot, 20, now=0.05, late=0.004)
    assert min(gaps([0.05, *sent])) >= 0.2


def test_own_spacing_is_a_floor_under_the_learned_rate() -> None:
    assert min(gaps(send(new_slot(10.0, spacing=2.0), 5))) >= 2.0


def test_success_counts_only_where_the_pace_held_the_request_back() -> None:
    slot = new_slot(10.0)
    assert not slot.take(0.0).paced
    assert slot.take(0.101).paced
    assert not slot.take(5.0).paced
    floored = new_slot(10.0, spacing=1.0)
    floored.take(0.0)
    assert not floored.take(1.0).paced


def test_a_pause_holds_everything_and_the_later_deadline_counts() -> None:
    slot = new_slot(10.0)
    assert slot.block(Block.HOLD, 10.0)
    assert not slot.block(Block.HOLD, 5.0)
    assert slot.ready_at == 10.0


def test_room_is_what_the_concurrency_leaves() -> None:
    slot = new_slot(1000.0, concurrency=2)
    permits = [slot.take(0.0), slot.take(1.0)]
    assert not slot.has_room
    slot.settle(permits[0], SERVED, 2.0, 0.0)
    assert slot.has_room


NOW = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2", 2.0),
        (" 120 ", 120.0),
        ("1.5", 1.5),
        ("0", 0.0),
        # Nobody waits for more than a century.
        ("9" * 40, 100 * 366 * 86400),
        ("9" * 400, 100 * 366 * 86400),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10.0),
        ("Sunday, 06-Nov-94 08:49:47 GMT", 10.0),
        ("Sun Nov  6 08:49:47 1994", 10.0),
        ("Sun, 06 Nov 1994 08:49:00 GMT", 0.0),
        ("-5", None),
        ("1e400", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        ("\u0663", None),
        ("Sun, 06 Nov 99999 08:49:37 GMT", None),
        ("Sun, 99 Nov 1994 99:99:99 GMT", None),
        ("x" * 100_000, None),
    ],
)
def test_retry_after(text: str, seconds: float | None) -> None:
    assert retry_after([text], date=None, wall_now=NOW) == seconds


def test_retry_after_dates_are_judged_by_the_hosts_own_clock() -> None:
    hour_ahead = "Sun, 06 Nov 1994 09:49:37 GMT"
    assert retry_after([hour_ahead], date=hour_ahead, wall_now=NOW) == 0.0
    assert retry_after([hour_ahead], date="garbage", wall_now=NOW) == 3600.0


def test_of_several_retry_after_the_longest_counts() -> None:
    assert retry_after(["2", "soon", "7"], date=None, wall_now=NOW) == 7.0


@pytest.mark.parametrize(
    ("text", "count", "period"),
    [
        ("5/2s", 5, 2.0),
        ("40/m", 40, 60.0),
        ("1/1500ms", 1, 1.5),
        ("1000/day", 1000, 86400.0),
        ("1/s", 1, 1.0),
        ("10 / 2 minutes", 10, 120.0),
        ("3/0.5h", 3, 1800.0),
        ("7/hours", 7, 3600.0),
        ("2/second", 2, 1.0),
        ("2/3 sec", 2, 3.0),
        ("3/MIN", 3, 60.0),
        ("2/2d", 2, 172800.0),
    ],
)
def test_limit_notation(text: str, count: int, period: float) -> None:
    limit = Limit.parse(text)
    assert limit.count == count
    assert limit.period == pytest.approx(period)


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "5/", "/s", "0/s", "5/0s", "-5/s", "5/s/s", "1e3/s", "5/m5"),
        *("5/2x", "1/mss", "1/ds", "1/ss", "1/dayd"),
        *("9" * 400 + "/s", "9" * 5000 + "/s", "1/" + "9" * 400 + "s"),
        *("1/0." + "0" * 320 + "1s", "9" * 300 + "/0." + "0" * 20 + "1s"),
    ],
)
def test_limit_notation_that_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Limit.parse(text)
