"""What is believed of a limit, and what a cycle measures."""

from __future__ import annotations

import pytest

from scrapy_politeness.core.governor.belief import Belief
from scrapy_politeness.core.governor.cycle import Cycle


def _cycle(cycle: Cycle, start: float, rate: float, count: int) -> float:
    for number in range(count):
        cycle.served(start + number / rate)
    return start + count / rate


def _refused_in_a_row(cycle: Cycle, now: float, times: int, *, said: bool) -> None:
    for number in range(times):
        cycle.refused(now, 0.0, number, said=said)


@pytest.mark.parametrize(("silence", "tells_a_limit"), [(1.0, False), (60.0, True)])
def test_own_rate_is_no_limit(silence: float, tells_a_limit: bool) -> None:
    """With hardly any silence, we measure but ourselves."""
    cycle = Cycle()
    now = _cycle(cycle, 0.0, 10.0, 1000)
    _refused_in_a_row(cycle, now, 4, said=True)
    assert (cycle.end(now + silence, 0.0) is not None) == tells_a_limit


@pytest.mark.parametrize(
    ("times", "said", "tells_a_limit"),
    [(2, False, False), (3, False, True), (1, True, False), (2, True, True)],
)
def test_how_many_refusals_in_a_row_are_no_accident(
    times: int, said: bool, tells_a_limit: bool
) -> None:
    cycle = Cycle()
    now = 0.0
    for _ in range(2):
        now = _cycle(cycle, now, 10.0, 300)
        _refused_in_a_row(cycle, now, times, said=said)
        now += 20.0
        assert (cycle.end(now, 0.0) is not None) == tells_a_limit


def test_refusals_that_speak_of_the_rate_count_wherever_they_come() -> None:
    for order in ([False, False, True], [True, False, False]):
        cycle = Cycle()
        now = _cycle(cycle, 0.0, 10.0, 300)
        for number, said in enumerate(order):
            cycle.refused(now, 0.0, number, said=said)
        measured = cycle.end(now + 20.0, 0.0)
        assert measured is not None
        assert measured.weight == pytest.approx(0.5, abs=0.1)


def test_two_cycles_that_agree_weigh_more() -> None:
    cycle = Cycle()
    weights = []
    for start in (0.0, 60.0):
        now = _cycle(cycle, start, 30.0, 120)
        cycle.refused(now, start + 60.0 - now, 0, said=False)
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
