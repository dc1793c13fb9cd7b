"""Several limits at once, on virtual time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from scrapy_politeness.core.budget import Budget
from scrapy_politeness.core.pace import Limit, Pace
from scrapy_politeness.core.windows import Window, Windows

PLOS = ("10/m", "300/h", "7200/day")


def limit(*notations: str) -> Limit:
    return Limit.together([Limit.parse(notation) for notation in notations])


def send(budget: Budget, count: int) -> list[float]:
    """Send as early as possible."""
    now, sent = 0.0, []
    for _ in range(count):
        now = max(now, budget.ready_at)
        budget.take(now)
        sent.append(now)
    return sent


def most_in_any(window: float, times: list[float]) -> int:
    first, most = 0, 0
    for nth, at in enumerate(times):
        while times[first] <= at - window:
            first += 1
        most = max(most, nth - first + 1)
    return most


@pytest.mark.parametrize(
    "notations", [PLOS, PLOS[::-1], ("5/2s", "60/m"), ("1/s", "2500/h")]
)
def test_no_window_ever_holds_more_than_its_limit(notations: tuple[str, ...]) -> None:
    budget = Budget("host", limit(*notations))
    times = send(budget, 9000)
    for each in map(Limit.parse, notations):
        assert most_in_any(each.period, times) <= each.count


def test_the_shortest_is_spread_and_the_longer_ones_are_used_up() -> None:
    times = send(Budget("host", limit("5/2s", "60/m")), 180)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[:59] == pytest.approx([0.4] * 59, rel=0.05)
    # The 61st goes when the first has left, and so on.
    assert times[60] == pytest.approx(60, rel=0.02)
    assert times[120] == pytest.approx(120, rel=0.02)


def test_of_two_limits_for_the_same_period_the_lower_one_holds() -> None:
    assert limit("20/m", "10/m") == Limit.parse("10/m")


def test_a_window_for_millions_remembers_few_times_and_is_nearly_used_up() -> None:
    window = Window(1_000_500, 86400.0)
    assert window.groups <= 1000
    assert window.group * window.groups > 0.99 * window.count
    windows = Windows([Window(2500, 100.0)])
    sent = 0
    while windows.ready_at <= 0.0:
        windows.take(0.0)
        sent += 1
    assert 2490 <= sent <= 2500
    assert windows.ready_at == 100.0


@pytest.mark.parametrize("processes", [1, 3, 50])
def test_processes_that_go_on_alone_keep_to_the_window_together(
    processes: int,
) -> None:
    share = Window(20, 60.0).shared(processes)
    assert processes * share.count / share.seconds <= 20 / 60.0


@pytest.mark.parametrize("notation", ["2/10s", "20/m", "300/h", "7200/day"])
def test_processes_that_share_a_window_keep_to_it_by_an_even_pace(
    notation: str,
) -> None:
    each = Limit.parse(notation)
    [window] = limit("1/s", notation).windows
    times = send(Budget("all", spacing=window.interval, burst=window.burst), 9000)
    assert most_in_any(each.period, times) <= each.count
    assert len(times) / times[-1] > 0.85 * each.count / each.period


def test_what_is_sent_outlives_a_pause() -> None:
    pace = Pace(1, [Window(2, 100.0)])
    pace.take(0.0, 1.0)
    pace.take(1.0, 1.0)
    pace.pause_until(50.0, 1.0)
    assert pace.ready_at(1.0) == 100.0
    assert pace.idle_at(1.0) == 101.0
