"""What is believed of a limit, and what a cycle measures."""

from __future__ import annotations

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
        cycle.refused(now, 0.0, in_a_row, 0.0)
    measured = cycle.end(now + 1.0, 0.0)
    assert measured is None or measured.weight < 0.01


def test_two_cycles_that_agree_weigh_more() -> None:
    cycle = Cycle()
    weights = []
    for start in (0.0, 60.0):
        now = _cycle(cycle, start, 30.0, 120)
        cycle.refused(now, start + 60.0 - now, 0, 0.0)
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
