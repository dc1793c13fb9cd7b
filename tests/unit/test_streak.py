"""Failures in a row, and what they mean for a slot."""

from __future__ import annotations

from random import Random

import pytest

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.slot import Slot

SERVED = Outcome(Verdict.SERVED)
CUT = Outcome(Verdict.UNREACHABLE, "ConnectionLost")
TIMEOUT = Outcome(Verdict.TIMED_OUT, "timeout")


def new_slot(concurrency: int = 8) -> Slot:
    bounds = Bounds(start_rate=10.0, max_rate=10.0)
    return Slot("example.org", bounds, spacing=0.0, concurrency=concurrency)


def ask(slot: Slot, outcome: Outcome, now: float) -> Outcome:
    """Send one request, and return what its outcome is taken for."""
    permit = slot.take(now)
    judged = slot.serving.judged(permit, outcome)
    slot.settle(permit, outcome, now, 0.0)
    return judged


@pytest.mark.parametrize("failure", [CUT, TIMEOUT])
def test_failures_without_a_success_between_are_a_block(failure: Outcome) -> None:
    slot = new_slot()
    ask(slot, SERVED, 0.0)
    judged = [ask(slot, failure, now).is_block for now in range(1, 7)]
    assert judged == [False, False, False, True, True, True]
    assert slot.paused_until > 5


def test_single_failures_among_successes_stay_single() -> None:
    slot = new_slot()
    for now in range(0, 300, 3):
        assert ask(slot, SERVED, now) is SERVED
        assert ask(slot, CUT, now + 1) is CUT
        assert ask(slot, CUT, now + 2) is CUT
    assert slot.rate == 10.0


def test_a_host_with_bad_luck_needs_a_longer_row() -> None:
    slot, random = new_slot(), Random(1)
    blocks = 0
    for now in range(3000):
        outcome = CUT if random.random() < 0.3 else SERVED
        blocks += ask(slot, outcome, now).is_block
    assert blocks == 0
    assert slot.serving.most_cuts
    assert slot.noise == pytest.approx(0.3, abs=0.05)
    rows = [ask(slot, CUT, 3000 + nth).is_block for nth in range(20)]
    assert rows.index(True) >= 8


def test_what_was_sent_before_the_last_that_was_served_is_in_no_row() -> None:
    slot = new_slot()
    early = [Permit(float(nth), paced=True) for nth in range(8)]
    slot.in_flight = 8
    ask(slot, SERVED, 100.0)
    assert not any(slot.serving.judged(permit, TIMEOUT).is_block for permit in early)


def test_one_at_a_time_asks_whether_a_block_is_over() -> None:
    slot, again = new_slot(), new_slot()
    for each in (slot, again):
        ask(each, SERVED, 0.0)
        for now in range(1, 5):
            ask(each, CUT, now)
    slot.take(slot.ready_at)
    assert not slot.has_room
    ask(again, SERVED, again.ready_at)
    again.take(again.ready_at)
    assert again.has_room


def test_a_slot_that_is_reset_knows_of_no_block() -> None:
    slot = new_slot()
    for now in range(4):
        ask(slot, CUT, now)
    slot.forget()
    slot.reset()
    slot.take(slot.ready_at)
    assert slot.has_room
    assert not ask(slot, CUT, slot.ready_at).is_block


def test_other_errors_are_no_block() -> None:
    slot = new_slot()
    error = Outcome(Verdict.FAILED, "500 Internal Server Error")
    assert not any(ask(slot, error, now).is_block for now in range(20))


def test_a_host_that_never_served_anything_is_a_dead_link() -> None:
    slot = new_slot()
    assert not any(ask(slot, CUT, now).is_block for now in range(20))


def test_pages_that_fail_again_make_no_row_but_go_on_with_one() -> None:
    slot = new_slot()
    again = CUT._replace(is_repeated=True)
    ask(slot, SERVED, 0.0)
    assert not any(ask(slot, again, now).is_block for now in range(1, 20))
    rows = [ask(slot, CUT, now).is_block for now in range(20, 26)]
    assert rows == [False, False, False, True, True, True]
    assert ask(slot, again, 30.0).is_block
