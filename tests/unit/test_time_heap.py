"""The heap of slots, against a model that sorts."""

from __future__ import annotations

import math
import random
import tracemalloc

from scrapy_politeness.core.time_heap import TimeHeap


def test_the_longest_due_comes_first_and_stays_until_it_is_moved() -> None:
    agenda = TimeHeap()
    agenda.put("later", 3.0)
    agenda.put("first", 1.0)
    agenda.put("second", 2.0)
    assert agenda.due(0.5) is None
    assert agenda.due(2.5) == agenda.due(2.5) == "first"
    agenda.put("first", 9.0)
    assert agenda.due(2.5) == "second"
    assert agenda.next_time == 2.0


def test_of_those_due_at_once_the_one_put_first_comes_first() -> None:
    agenda = TimeHeap()
    for key in ("b", "a", "c"):
        agenda.put(key, 1.0)
    assert agenda.due(1.0) == "b"
    agenda.put("b", 1.0)  # no change: it keeps its place
    assert agenda.due(1.0) == "b"


def test_infinitely_late_means_not_on_the_agenda() -> None:
    agenda = TimeHeap()
    agenda.put("a", 1.0)
    agenda.put("a", math.inf)
    assert agenda.due(2.0) is None
    assert len(agenda) == 0
    assert agenda.next_time == math.inf


def test_it_agrees_with_a_sorted_list_over_random_moves() -> None:
    chance = random.Random(7)
    agenda = TimeHeap()
    model: dict[str, float] = {}
    for step in range(20_000):
        key = f"slot {chance.randrange(50)}"
        if chance.random() < 0.2:
            agenda.discard(key)
            model.pop(key, None)
        else:
            model[key] = chance.random() + step
            agenda.put(key, model[key])
        assert agenda.next_time == min(model.values(), default=math.inf)
        assert len(agenda) == len(model)


def test_moving_one_slot_a_hundred_thousand_times_takes_no_more_memory() -> None:
    agenda = TimeHeap()
    tracemalloc.start()
    try:
        for step in range(100_000):
            agenda.put("busy", 1e9 - step)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 50_000
