"""Which rate is aimed at, by what is believed: a belief in a limit of 3 requests per
second, with crawls that begin at 1/s."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_politeness.core.governor.aim import UNDER, Aim
from scrapy_politeness.core.governor.bounds import Bounds

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 3.0
BOUNDS = Bounds(start_rate=1.0, max_rate=10.0)


@dataclass
class Believed:
    """``higher`` is how likely it is that the limit is above 3/s and below ``most``."""

    higher: float
    most: float = math.inf
    unseen: float = 0.0
    untested: int = 0
    shown: float = 10.0
    times: float = 20.0
    best_rate: float = LIMIT
    goodput: float = LIMIT
    recent_rate: float = LIMIT

    def is_above(self, rate: float) -> float:
        if rate < LIMIT:
            return 1.0
        return self.higher if rate < self.most else 0.0

    def quantiles(self, *shares: float) -> list[float]:
        return [math.inf if share > 1 - self.higher else LIMIT for share in shares]


def best(
    belief: Any,
    goal: float = LIMIT,
    *,
    was_refused: bool = False,
    has_bad_luck: bool = True,
) -> float:
    aim = Aim(belief, BOUNDS, goal)
    return aim.best(may_try=not was_refused, has_bad_luck=has_bad_luck)


def requests_until(tried: Callable[[int], bool]) -> float:
    return next((n for n in (1, 10, 100, 1000, 10000) if tried(n)), math.inf)


@pytest.mark.parametrize(
    ("higher", "requests"), [(0.5, 100), (0.25, 1000), (0.1, 1000), (0.01, math.inf)]
)
def test_a_limit_is_put_to_the_test_the_sooner_the_less_sure_it_is(
    higher: float, requests: float
) -> None:
    """Below a limit, nothing tells whether it is one."""
    after = requests_until(lambda n: best(Believed(higher, untested=n)) > LIMIT)
    assert after == requests


@pytest.mark.parametrize(("most", "factor"), [(math.inf, 2.0), (1.6 * LIMIT, 1.5)])
def test_what_promises_most_is_tried(most: float, factor: float) -> None:
    assert best(Believed(0.5, most, untested=1000)) == factor * LIMIT


def test_a_try_doubles_the_rate_where_bad_luck_may_end_it() -> None:
    believed = Believed(0.5, untested=1000)
    assert best(believed) == 2 * LIMIT
    assert best(believed, has_bad_luck=False) < 2 * LIMIT


def test_what_hardly_showed_is_tried_without_delay_and_carefully() -> None:
    believed = Believed(0.5, shown=1.0, times=0.0)
    assert LIMIT < best(believed, has_bad_luck=False) < 2 * LIMIT
    assert best(Believed(0.1, shown=1.0, times=0.0), has_bad_luck=False) < LIMIT


def test_a_limit_that_has_shown_itself_more_often_than_bad_luck_is_not_tried() -> None:
    believed = Believed(0.5, untested=1000, shown=24.0, times=20.0)
    assert best(believed) == pytest.approx(LIMIT * UNDER)


def test_a_try_goes_on_until_a_refusal() -> None:
    believed = Believed(0.5, most=1.5 * LIMIT, untested=100)
    goal = 1.25 * LIMIT
    assert best(believed, goal) == goal
    assert best(believed, goal, was_refused=True) == pytest.approx(LIMIT * UNDER)
