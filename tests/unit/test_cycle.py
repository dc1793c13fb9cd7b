"""What is believed of a limit, and what a cycle measures."""

from __future__ import annotations

import pytest

from scrapy_politeness.core.governor.belief import Belief
from scrapy_politeness.core.governor.cycle import Cycle


def _cycle(cycle: Cycle, start: float, rate: float, count: int) -> float:
    for number in range(count):
        cycle.served(start + number / rate)
    return start + count / rate


def test_own_rate_is_no_limit() -> None:
    """Two refusals in a row, and hardly any silence: we measure but ourselves."""
    cycle = Cycle()
    now = _cycle(cycle, 0.0, 10.0, 1000)
    for in_a_row in range(2):
        cycle.refused(now, 0.0, in_a_row, 0.0, said=True)
    assert cycle.end(now + 1.0, 0.0) is None


@pytest.mark.parametrize(
    ("in_a_row", "said", "tells_a_limit"),
    [(2, False, False), (2, True, True), (4, False, True)],
)
def test_how_many_failures_in_a_row_are_no_accident(
    in_a_row: int, said: bool, tells_a_limit: bool
) -> None:
    cycle = Cycle()
    now = _cycle(cycle, 0.0, 10.0, 300)
    for number in range(in_a_row):
        cycle.refused(now, 0.0, number, 0.02, said=said)
    cycle.end(now + 20.0, 0.0)
    now = _cycle(cycle, now + 20.0, 10.0, 300)
    for number in range(in_a_row):
        cycle.refused(now, 0.0, number, 0.02, said=said)
    assert (cycle.end(now + 20.0, 0.0) is not None) == tells_a_limit


def test_two_cycles_that_agree_weigh_more() -> None:
    cycle = Cycle()
    weights = []
    for start in (0.0, 60.0):
        now = _cycle(cycle, start, 30.0, 120)
        cycle.refused(now, start + 60.0 - now, 0, 0.0, said=False)
        measured = cycle.end(start + 60.0, 0.0)
        assert measured is not None
        assert 1.9 < measured.least <= measured.most < 2.1
        weights.append(measured.weight)
    assert weights[0] == 1.0
    assert weights[1] > 2.0


def test_evidence_leaks_upwards_rather_than_downwards() -> None:
    belief = Belief(8.0, 1.0, 0.0)
    belief.measured(7.9, 8.1, 3.0)
    low, middle, high = belief.quantiles(0.2, 0.5, 0.8)
    now = 0.0
    for _ in range(30):
        for _ in range(10):
            now += 0.2
            belief.served(now)
        belief.leak(now)
    later = belief.quantiles(0.2, 0.5, 0.8)
    assert later[2] / high > low / later[0]
    assert later[1] > middle
