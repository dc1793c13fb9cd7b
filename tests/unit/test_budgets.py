"""Shared budgets and routes, on virtual time."""

from __future__ import annotations

import pytest

from scrapy_politeness.core.budget import Budget
from scrapy_politeness.core.cause import Block
from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.lru import LRU
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.pace import Limit, Pace
from scrapy_politeness.core.slot import Slot

SERVED = Outcome(Verdict.SERVED)
REFUSED = Outcome(Verdict.REFUSED, "429", wait=60.0)


def test_a_burst_is_saved_up_by_rest_and_never_larger() -> None:
    pace = Pace(burst=3)
    sent = []
    now = 0.0
    for _ in range(6):
        now = max(now, pace.ready_at(1.0))
        pace.take(now, 1.0)
        sent.append(now)
    assert sent == [0, 0, 0, 1, 2, 3]
    # After 1.5 s of rest there are two, after an hour three.
    assert pace.ready_at(1.0) == 4
    for now, saved_up in ((5.5, 2), (3600.0, 3)):
        for _ in range(saved_up):
            assert pace.ready_at(1.0) <= now
            pace.take(now, 1.0)
        assert pace.ready_at(1.0) > now


def test_after_a_pause_there_is_no_burst() -> None:
    slot = Slot("host", Bounds(start_rate=1), spacing=0, concurrency=99, burst=5)
    slot.take(0.0)
    slot.block(Block.PAUSE, 100.0)
    assert slot.ready_at == 100.0
    slot.take(100.0)
    assert slot.ready_at == pytest.approx(101.0)


@pytest.mark.parametrize(("before", "after"), [(60.0, 0.01), (0.1, 1.0)])
def test_a_burst_that_is_used_up_stays_so_when_the_rate_changes(
    before: float, after: float
) -> None:
    pace = Pace(burst=5)
    for _ in range(5):
        pace.take(0.0, before)
    assert pace.ready_at(after) == pytest.approx(after)


def test_a_reset_ends_a_pause_but_not_the_spacing() -> None:
    for burst in (1, 5):
        slot = Slot(
            "host", Bounds(start_rate=1), spacing=0, concurrency=99, burst=burst
        )
        for _ in range(burst):
            slot.take(0.0)
        slot.block(Block.PAUSE, 3600.0)
        assert slot.reset()
        assert slot.ready_at == pytest.approx(1.0)


def test_a_slot_is_idle_when_its_burst_is_saved_up_again() -> None:
    slot = Slot("host", Bounds(start_rate=1), spacing=0, concurrency=99, burst=5)
    permits = [slot.take(0.0) for _ in range(5)]
    for permit in permits:
        slot.settle(permit, SERVED, 0.1, 0.0)
    assert not slot.is_idle(3.0)
    assert slot.is_idle(5.1)


def test_a_floor_holds_within_a_burst() -> None:
    slot = Slot(
        "host", Bounds(start_rate=1), spacing=0, concurrency=99, burst=5, floor=0.25
    )
    for nth in range(4):
        assert slot.ready_at <= nth * 0.25
        slot.take(nth * 0.25)


def test_a_request_that_was_early_is_paid_for_by_the_next() -> None:
    budget = Budget("server", Limit(1, 1.0))
    for _ in range(10):
        budget.take(0.0)
    assert budget.ready_at == pytest.approx(10, rel=0.02)


def test_a_request_that_is_delayed_holds_up_the_others_for_one_interval() -> None:
    budget = Budget("all", Limit(1, 1.0))
    slow, quick = object(), object()
    budget.claim(slow, 0.0)
    assert 0.9 < budget.claimable_at < 1.1
    budget.claim(quick, 1.1)
    budget.unclaim(quick)  # it came from a cache
    assert budget.claimable_at < 1.1


def test_those_who_wait_at_the_gate_go_before_the_queue() -> None:
    budget = Budget("all", Limit(1, 1.0))
    budget.take(0.0)
    budget.waiting = 3
    assert budget.claimable_at == pytest.approx(4, rel=0.02)


def test_a_refusal_slows_a_proxy_down_but_does_not_silence_it() -> None:
    budget = Budget("proxy", Limit(10, 1.0), Bounds(start_rate=10, max_rate=10))
    permit = budget.take(0.0)
    assert budget.settle(permit, REFUSED, 0.1, 0.0)
    assert 1 / budget.interval == pytest.approx(5, rel=0.02)
    assert budget.ready_at < 0.3


def test_of_what_is_not_needed_the_oldest_is_forgotten() -> None:
    busy = {"a"}
    memory = LRU[str, int](3, lambda key, _: key not in busy)
    for number, key in enumerate("abcd"):
        memory[key] = number
    assert set(memory) == {"a", "c", "d"}
    assert memory["c"] == 2
    memory["e"] = 4
    assert set(memory) == {"a", "c", "e"}
    busy |= {"c", "e", "f"}
    memory["f"] = 5
    assert set(memory) == {"a", "c", "e", "f"}
