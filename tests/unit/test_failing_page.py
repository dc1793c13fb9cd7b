"""When a page that is refused is asked for again, and when no more, on virtual time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import pytest

from scrapy_politeness.core.failing_page import Failures, Persistence
from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.slot import Slot

HOUR = 3600.0


@dataclass
class BrokenPage:
    """Is never served. Its others are, but for the time of an ``outage``, and ``until``
    they are all done. A try is made as soon as that is allowed, or after a ``pause`` of
    the slot."""

    base: float = 5.0
    longest: float = 300.0
    noise: float = 0.0
    until: float = math.inf
    outage: tuple[float, float] = (math.inf, math.inf)
    pause: float = 0.1
    suspect: bool = False

    def tries(self, most: int = 100) -> list[float]:
        persistence = Persistence(self.base, self.longest)
        failures: Failures | None = None
        now, times = 0.0, [0.0]
        while len(times) < most:
            alone = now >= self.until
            failures = (
                Failures(now)
                if failures is None
                else failures.refused(
                    now,
                    others_served=self._served(failures, now),
                    alone=alone,
                    suspect=self.suspect,
                )
            )
            at = persistence.next_try(failures, now, alone=alone, noise=self.noise)
            if at == math.inf:
                return times
            now = at if at > now else now + self.pause
            times.append(now)
        return times

    def _served(self, failures: Failures, now: float) -> bool:
        if failures.refused_at >= self.until:
            return False
        began, ended = self.outage
        return not (began <= failures.refused_at and now <= ended)


@pytest.mark.parametrize(
    ("base", "longest", "tries"),
    [
        (5, 300, [0, 0, 5, 15, 35, 75, 155, 315, 615]),
        (1, 300, [0, 0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811]),
        # Eight times are not enough as long as it has not been ten minutes.
        (5, 60, [0, 0, 5, 15, 35, 75, 135, 195, 255, 315, 375, 435, 495, 555, 615]),
        (300, 300, [0, 0, 300, 600, 900, 1200, 1500, 1800, 2100]),
    ],
)
def test_a_page_that_fails_while_others_are_served(
    base: float, longest: float, tries: list[float]
) -> None:
    assert BrokenPage(base, longest).tries() == pytest.approx(tries, abs=0.2)


@pytest.mark.parametrize(
    ("base", "until", "tries"),
    [
        # It was found just before the last of the others was served.
        (1, 0.1, [0, 0, 1, 3, 7]),
        (5, 0.1, [0, 0, 5, 15, 35]),
        (5, 20, [0, 0, 5, 15, 35]),
        # With the last of the others, it has failed often enough; the next one ends it.
        (5, 80, [0, 0, 5, 15, 35, 75, 155]),
    ],
)
def test_where_nothing_else_is_left_a_few_tries_are_enough(
    base: float, until: float, tries: list[float]
) -> None:
    page = BrokenPage(base, until=until, pause=0.05)
    assert page.tries() == pytest.approx(tries, abs=0.2)


@pytest.mark.parametrize(
    ("noise", "failures"), [(0.0, 4), (0.01, 4), (0.05, 5), (0.1, 7), (0.5, 20)]
)
def test_bad_luck_is_no_reason_to_give_a_page_up(noise: float, failures: int) -> None:
    page = BrokenPage(noise=noise, until=0.1, pause=0.05)
    assert len(page.tries()) == 1 + failures
    # One time in a million is taken into account.
    assert noise**failures < 1e-6


def test_bad_luck_takes_longer_to_rule_out_while_others_are_served() -> None:
    assert len(BrokenPage(noise=0.3).tries()) > len(BrokenPage().tries())


def test_refusals_of_a_host_that_serves_nobody_are_not_the_pages() -> None:
    page = BrokenPage(outage=(0.0, math.inf), pause=HOUR)
    assert page.tries(most=20) == [HOUR * n for n in range(20)]


def test_an_outage_in_between_does_not_count() -> None:
    page = BrokenPage(outage=(10.0, HOUR), pause=300.0)
    tries = page.tries()
    # One failure before it, and all that it takes after it.
    after = [at for at in tries if at > HOUR]
    gaps = [later - earlier for earlier, later in pairwise(after)]
    assert gaps[:4] == [10, 20, 40, 80]


def test_a_lone_page_that_was_never_known_to_fail_is_not_given_up() -> None:
    """It may be a quota that is used up."""
    assert len(BrokenPage(until=0.0).tries(most=50)) == 50


@pytest.mark.parametrize(
    ("base", "tries"), [(1, [0, 0, 1, 3, 7, 15, 31]), (5, [0, 0, 5, 15, 35, 75, 155])]
)
def test_the_last_page_is_given_up_where_the_refusal_says_nothing_of_rates(
    base: float, tries: list[float]
) -> None:
    """Later than others, since it might be the host after all."""
    page = BrokenPage(base, until=0.0, suspect=True)
    assert page.tries() == pytest.approx(tries, abs=0.2)


@pytest.mark.parametrize(
    ("refusals", "speaks_of_rate", "spared"),
    [
        ([], False, False),
        ([True], False, True),
        ([True, False], False, False),
        ([], True, False),
        ([True], True, False),
        ([True, True], True, True),
        ([True, True, False], True, False),
        ([True, False, True], True, True),
    ],
)
def test_the_host_is_not_blamed_for_a_page_that_is_known_to_fail(
    refusals: list[bool], speaks_of_rate: bool, spared: bool
) -> None:
    failures = Failures(0.0)
    for nth, others_served in enumerate(refusals):
        failures = failures.refused(nth, others_served=others_served, alone=False)
    assert failures.spares_host(speaks_of_rate=speaks_of_rate) is spared


def test_a_clock_that_was_set_back_gives_no_page_up_early() -> None:
    failures = Failures(HOUR)
    for _ in range(20):
        failures = failures.refused(0.0, others_served=True, alone=False)
    failures = failures.refused(-HOUR, others_served=True, alone=False)
    assert failures.seconds == 0.0
    assert not Persistence(5, 300).gives_up(failures, alone=False)


@pytest.mark.parametrize(
    ("verdict", "is_seen"), [(Verdict.SERVED, True), (Verdict.FAILED, False)]
)
def test_a_slot_knows_when_the_last_was_sent_that_was_served(
    verdict: Verdict, is_seen: bool
) -> None:
    slot = Slot("a.example", Bounds(), spacing=0.0, concurrency=8)
    first, second = slot.take(10.0), slot.take(20.0)
    slot.settle(second, Outcome(verdict), 21.0, 0.0)
    slot.settle(first, Outcome(verdict), 30.0, 0.0)
    assert slot.serving.sent_at == (20.0 if is_seen else -math.inf)
