"""What is believed of a host after what it has served and refused, on virtual time."""

from __future__ import annotations

import json
import math
from functools import reduce
from operator import getitem
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_politeness.core.governor.belief import Belief
from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.governor.buckets import Buckets
from scrapy_politeness.core.governor.cells import CELLS
from scrapy_politeness.core.governor.control_law import Governor, Phase
from scrapy_politeness.core.governor.windows import SlidingWindows
from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.quota import Quota
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.core.snapshot import finite, freeze, row_of, thaw
from scrapy_politeness.simulator import (
    ConnectionLimit,
    Downtime,
    FixedWindow,
    RandomFailures,
    RetryAfter,
    Server,
    SlidingWindow,
    Steps,
    TokenBucket,
    refused,
    simulate,
    unanswered,
)
from tests.benchmarks.rows import Unnamed
from tests.support.observed import Followed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy_politeness.core.governor.host_model import Change

SEEDS = [1, 2, 3]
SERVED = Outcome(Verdict.SERVED)
REFUSED = Outcome(Verdict.REFUSED, "503")


class Crawl(Followed):
    """A slot that remembers what became of its rate, as a law of the simulator."""

    def __init__(self, bounds: Bounds, concurrency: int = 8) -> None:
        super().__init__(
            Slot("example.org", bounds, spacing=0.0, concurrency=concurrency)
        )
        self.rates: list[tuple[float, float]] = []
        self.limits: set[float] = set()
        self.settled_at: list[float] = []

    @property
    def governor(self) -> Governor:
        assert self.slot.learner.model is not None
        return self.slot.learner.model.governor

    def settle(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Change:
        change = super().settle(permit, outcome, now, chance)
        self.rates.append((now, change.new_rate))
        if self.slot.ceiling is not None:
            self.limits.add(self.slot.ceiling)
        if change.settled_at is not None:
            self.settled_at.append(change.settled_at)
        return change

    def first_at(self, rate: float, after: float = 0.0) -> float:
        """When that rate was reached first."""
        return next((at for at, r in self.rates if at > after and r >= rate), math.inf)


def crawled(server: Server, seconds: float, seed: int, **bounds: float) -> Crawl:
    crawl = Crawl(Bounds(**{"max_rate": 10.0, **bounds}))  # type: ignore[arg-type]
    simulate([crawl], server, seconds=seconds, seed=seed)
    return crawl


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("share", "least"), [(0.01, 0.8), (0.05, 0.7), (0.1, 0.6)])
def test_bad_luck_is_not_a_limit(share: float, least: float, seed: int) -> None:
    crawl = Crawl(Bounds(max_rate=10.0))
    server = RandomFailures(Server(10.0), share, refused(), seed=seed)
    report = simulate([crawl], server, seconds=1200.0, seed=seed)
    assert report.efficiency >= least
    assert crawl.slot.noise == pytest.approx(share, rel=0.8)


@pytest.mark.parametrize("seed", range(5, 10))
def test_a_rate_that_is_too_low_is_left_though_one_request_in_ten_fails(
    seed: int,
) -> None:
    crawl = Crawl(Bounds(max_rate=10.0))
    crawl.slot.recall(Learned(0.8, 0.05, None), 0.0)
    server = RandomFailures(Server(10.0), 0.1, refused(), seed=seed)
    simulate([crawl], server, seconds=600.0, seed=seed)
    assert crawl.first_at(9.0) < 300.0


@pytest.mark.parametrize("seed", SEEDS)
def test_requests_that_are_never_answered_are_not_a_limit(seed: int) -> None:
    server = RandomFailures(Server(10.0), 0.01, unanswered, seed=seed)
    crawl = Crawl(Bounds(max_rate=10.0), concurrency=16)
    report = simulate([crawl], server, seconds=1200.0, seed=seed)
    assert report.efficiency >= 0.75


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("share", [0.01, 0.05])
def test_a_host_without_a_limit_is_never_said_to_have_one(
    share: float, seed: int
) -> None:
    server = RandomFailures(Server(100.0), share, refused(), seed=seed)
    crawl = crawled(server, 600.0, seed, max_rate=10.0)
    assert not [limit for limit in crawl.limits if limit < 8.0]
    # The most that the settings allow is a place to settle at.
    assert not [rate for rate in crawl.settled_at if rate < 8.0]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("share", "least"), [(0.0, 0.9), (0.01, 0.8), (0.05, 0.7)])
def test_a_limit_is_found_among_bad_luck(share: float, least: float, seed: int) -> None:
    crawl = Crawl(Bounds(max_rate=100.0))
    server = RandomFailures(TokenBucket(8.0, 10), share, refused(), seed=seed)
    report = simulate([crawl], server, seconds=1200.0, seed=seed)
    assert report.efficiency >= least
    assert report.over_limit_per_100 <= 6.0
    late = [rate for now, rate in crawl.rates if now > 600]
    assert sorted(late)[len(late) // 2] == pytest.approx(8.0, rel=0.25)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_accidents_in_a_row_do_not_blur_what_is_known_of_a_limit(seed: int) -> None:
    crawl = Crawl(Bounds(max_rate=10.0))
    server = RandomFailures(SlidingWindow(8, 1.0), 0.05, refused(), seed=seed)
    report = simulate([crawl], server, seconds=3600.0, seed=seed)
    assert report.efficiency >= 0.75
    assert report.over_limit_per_100 <= 0.2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_window_that_counts_what_it_refuses_is_found(seed: int) -> None:
    server = SlidingWindow(120, 60.0, counts_refused=True)
    crawl = Crawl(Bounds(max_rate=100.0), concurrency=16)
    report = simulate([crawl], RetryAfter(server), seconds=1800.0, seed=seed)
    assert report.efficiency >= 0.94
    assert report.refusals_per_100 <= 1.0


@pytest.mark.parametrize("reason", ["429", "503"])
@pytest.mark.parametrize("nth", [0, 1, 5])
def test_one_refusal_at_the_very_start_is_over_within_a_minute(
    nth: int, reason: str
) -> None:
    class Once(Server):
        count = 0

        def arrive(self, now: float, page: int = 0):  # type: ignore[no-untyped-def]
            self.count += 1
            fails = self.count == nth + 1
            return refused(reason)(now) if fails else super().arrive(now, page)

    crawl = crawled(Once(10.0), 120.0, 1)
    assert crawl.first_at(9.0) <= 60.0
    assert not crawl.limits


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("start", [0.0, 300.0])
@pytest.mark.parametrize("failure", [refused(), unanswered], ids=["503", "timeout"])
def test_an_outage_of_ten_minutes_is_over_within_a_minute(
    failure: Callable[[float], object], start: float, seed: int
) -> None:
    end = start + 600.0
    server = Downtime(Server(10.0), start, end, failure)  # type: ignore[arg-type]
    crawl = crawled(server, end + 180.0, seed)
    # A host at its first request has not been climbed up to yet.
    climb = 30.0 if start == 0.0 else 0.0
    assert crawl.first_at(9.0, after=end) - end <= 60.0 + climb


@pytest.mark.parametrize("seed", SEEDS)
def test_a_limiter_that_answers_as_failures_do_is_hardly_met(seed: int) -> None:
    """nginx refuses with a bare 503 by default."""
    crawl = Crawl(Bounds(max_rate=10.0))
    server = Unnamed(TokenBucket(2.0, 5))
    report = simulate([crawl], server, seconds=3600.0, seed=seed)
    assert report.efficiency >= 0.97
    assert report.refusals_per_100 <= 1.0


def test_a_limit_that_rises_is_followed_within_minutes() -> None:
    limits = Steps((0.0, 4.0), (300.0, 2.0), (600.0, 6.0))
    needed = [
        crawled(RetryAfter(TokenBucket(limits, 8)), 1200.0, seed).first_at(5.7, 600.0)
        for seed in range(8)
    ]
    assert sorted(needed)[4] < 600.0 + 300.0


def test_ten_minutes_of_bad_luck_are_forgotten_within_a_minute() -> None:
    server = RandomFailures(Server(10.0), 0.05, refused(), end=600.0, seed=1)
    crawl = crawled(server, 700.0, 1)
    assert crawl.first_at(9.0, after=600.0) <= 660.0


def recalling(learned: Learned, **bounds: float) -> Crawl:
    crawl = Crawl(Bounds(**{"max_rate": 10.0, **bounds}))  # type: ignore[arg-type]
    crawl.slot.recall(learned, 0.0)
    return crawl


@pytest.mark.parametrize("limit", [2.0, 4.0])
def test_a_recalled_rate_that_is_too_low_is_given_up_soon(limit: float) -> None:
    crawl = recalling(Learned(limit, 0.1, None))
    simulate([crawl], Server(10.0), seconds=300.0)
    assert crawl.rates[0][1] == pytest.approx(limit, rel=0.05)
    assert crawl.first_at(9.0) <= 90.0


@pytest.mark.parametrize("limit", [0.5, 4.0])
def test_a_recalled_rate_that_is_right_is_kept(limit: float) -> None:
    crawl = recalling(Learned(limit, 0.1, None))
    report = simulate([crawl], TokenBucket(limit, 5), seconds=900.0)
    assert report.efficiency >= 0.88
    assert report.refused <= 10
    assert crawl.slot.learned is not None
    assert crawl.slot.learned.ceiling == pytest.approx(limit, rel=0.2)


@pytest.mark.parametrize("spread", [0.0, 0.1, 5.0, 1e6, math.inf])
@pytest.mark.parametrize("trust", [0.0, 1e-18, 0.5, 1.0])
def test_whatever_is_recalled_the_rate_stays_within_its_bounds(
    spread: float, trust: float
) -> None:
    for limit in (1e-9, 0.5, 1e6):
        governor = Governor(Bounds())
        governor.recall(limit, spread, trust, 0.0)
        assert 0.1 <= governor.rate <= 10.0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_host_that_takes_four_at_once_is_found_out(seed: int) -> None:
    server = ConnectionLimit(4, 0.15, round_trip=0.055, variation=0.2)
    crawl = Crawl(Bounds(max_rate=100.0), concurrency=16)
    report = simulate([crawl], RetryAfter(server), seconds=600.0, seed=seed)
    assert report.efficiency >= 0.75
    assert report.refusals_per_100 <= 1.0


def answer(governor: Governor, outcome: Outcome, at: float) -> float:
    permit = Permit(at, paced=True)
    return governor.observe(permit, outcome, at + 0.01, chance=0.0).pause


def test_a_crawl_that_lags_behind_its_pace_still_finds_the_limit() -> None:
    """A spider that asks 2.5 times a second is refused by a host that allows 2/s."""
    slot = Slot("example.org", Bounds(start_rate=10), spacing=0.0, concurrency=8)
    server, now, served, times = TokenBucket(2.0, 5), 0.0, 0, 0
    while now < 900.0:
        now = max(now + 0.4, slot.ready_at)
        permit = slot.take(now)
        is_served = server.arrive(now + 0.02).served
        slot.settle(permit, SERVED if is_served else REFUSED, now + 0.05, 0.5)
        served += is_served
        times += 1
    assert times - served <= 0.08 * times
    assert served >= 0.9 * 900 * 2.0


def test_a_quota_that_is_stated_no_more_is_kept_to_no_more() -> None:
    governor = Governor(Bounds())
    now = 0.0
    for _ in range(20):
        now += 1.0
        answer(governor, Outcome(Verdict.SERVED, quota=Quota(30, 60, 60, 60)), now)
    assert governor.phase is Phase.STATED
    assert governor.rate < 1.0
    for _ in range(200):
        now += 0.5
        answer(governor, SERVED, now)
    assert governor.phase is not Phase.STATED
    assert governor.rate > 1.0


def test_a_quota_that_leaves_plenty_is_no_limit() -> None:
    """A window that slides says when its oldest request leaves it."""
    governor = Governor(Bounds())
    now = 0.0
    for _ in range(20):
        now += 1.0
        answer(governor, Outcome(Verdict.SERVED, quota=Quota(30, 60)), now)
    assert governor.rate == pytest.approx(0.5, rel=0.05)
    for _ in range(20):
        now += 2.0
        answer(governor, Outcome(Verdict.SERVED, quota=Quota(90, 2)), now)
    assert governor.phase is not Phase.STATED
    assert governor.rate >= 1.0


def test_a_host_that_never_refused_costs_no_memory() -> None:
    governor = Governor(Bounds())
    for second in range(1000):
        answer(governor, SERVED, float(second))
    assert len(json.dumps(freeze(governor))) < 1000


def a_life(seed: int, seconds: float = 300.0) -> Crawl:
    server = RandomFailures(TokenBucket(6.0, 8), 0.02, refused(), seed=seed)
    return crawled(server, seconds, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_host_that_refuses_costs_little_memory(seed: int) -> None:
    state = freeze(a_life(seed).governor)
    assert len(json.dumps(state, separators=(",", ":"))) < 4096


def test_a_host_that_counts_minute_by_minute_is_found_out() -> None:
    found = []
    for seed in SEEDS:
        server = FixedWindow(120, 60.0, phase=12.0 * seed)
        crawl = Crawl(Bounds(max_rate=10.0))
        report = simulate([crawl], server, seconds=1800.0, seed=seed)
        assert report.efficiency >= 0.85
        assert report.refusals_per_100 <= 1.5
        found.append(crawl.governor.likely_limit)
    # Now and then it is put to the test whether the limit still holds.
    wrong = [limit for limit in found if limit != pytest.approx(2.0, rel=0.1)]
    assert len(wrong) <= 1


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_believed_survives_a_journey_as_text(seed: int) -> None:
    here = a_life(seed).governor
    text = json.dumps(freeze(here))
    there = thaw(Governor(Bounds(max_rate=10.0)), json.loads(text))
    random, now = Random(seed), 301.0
    for _ in range(300):
        now += 1 / here.rate
        outcome = REFUSED if random.random() < 0.03 else SERVED
        pauses = [answer(governor, outcome, now) for governor in (here, there)]
        # Written down to a tenth, evidence is not quite the same.
        assert pauses[0] == pytest.approx(pauses[1], rel=0.2, abs=0.5)
        assert there.rate == pytest.approx(here.rate, rel=0.2)
        now += pauses[0]


STRANGE: list[object] = [
    None,
    True,
    -1,
    0,
    1e14,
    -1e14,
    math.inf,
    -math.inf,
    "x",
    [],
    {},
    [1.0],
]


@pytest.mark.parametrize("strange", STRANGE, ids=repr)
def test_damaged_beliefs_are_refused_or_do_no_harm(strange: object) -> None:
    governor = a_life(1, 60.0).governor
    # In the middle of a silence, which is about to be measured.
    for nth, outcome in enumerate([SERVED] * 25 + [REFUSED] * 2):
        answer(governor, outcome, 60.0 + 0.02 * nth)
    sound = freeze(governor)
    assert isinstance(sound["_belief"], dict)
    for path in paths(sound):
        damaged = json.loads(json.dumps(sound))
        *parts, name = path
        reduce(getitem, parts, damaged)[name] = strange
        try:
            governor = thaw(Governor(Bounds(max_rate=10.0)), damaged)
        except ValueError:
            continue
        now = 61.0
        for nth in range(60):
            now += 0.2
            pause = answer(governor, REFUSED if nth % 28 > 25 else SERVED, now)
            assert 0.0 <= pause <= 300.0, path
            assert 0.1 <= governor.rate <= 10.0, path
        state = json.loads(json.dumps(freeze(governor)))
        assert thaw(Governor(Bounds(max_rate=10.0)), state), path


def paths(state: dict[str, Any], *before: str | int) -> Iterator[tuple[Any, ...]]:
    """Of all values in a state, those in lists of parts included."""
    for name, value in state.items():
        yield (*before, name)
        if isinstance(value, dict):
            yield from paths(value, *before, name)
        elif name == "_sliding":
            for place, windows in enumerate(value):
                yield from paths(windows, *before, name, place)


def test_a_state_is_read_after_two_days_without_a_refusal() -> None:
    governor = Governor(Bounds(max_rate=10.0))
    answer(governor, REFUSED, 1.0)
    for nth in range(1, 2 * 24 * 60):
        answer(governor, SERVED, 60.0 * nth)
    state = json.loads(json.dumps(freeze(governor)))
    assert thaw(Governor(Bounds(max_rate=10.0)), state).rate == governor.rate


def test_a_damaged_cell_is_refused() -> None:
    sound = freeze(Belief(1.0, 1.0, 0.0))
    for value in (math.inf, math.nan, "x", None):
        damaged = json.loads(json.dumps(sound))
        damaged["_evidence"][3] = [value]
        with pytest.raises(ValueError, match=r"number|bank|finite|range"):
            thaw(Belief(1.0, 1.0, 0.0), damaged)


def damaged_belief(**values: object) -> Belief:
    sound = json.loads(json.dumps(freeze(Belief(1.0, 1.0, 0.0))))
    return thaw(Belief(1.0, 1.0, 0.0), {**sound, **values})


def test_something_is_left_to_believe_in_whatever_luck_was_written_down() -> None:
    luck = freeze(Belief(1.0, 1.0, 0.0))["_luck"]
    many = [[10**9] * CELLS] * len(luck["_counts"])
    belief = damaged_belief(_luck={**luck, "_counts": many, "_unpaid": 10**9})
    assert 0 <= belief.chance(1.0) <= 1
    assert belief.quantiles(0.1)
    belief.leak(1.0)


WINDOW = SlidingWindows(1.0)


@pytest.mark.parametrize(
    "counts", ["0" * 202, "0" * 201 + "x", "Z" * 201, "A" * 100 + "00", "", None, []]
)
def test_a_window_that_cannot_have_been_written_down_is_not_read(
    counts: object,
) -> None:
    with pytest.raises(ValueError, match="not a window"):
        thaw(SlidingWindows(1.0), {**freeze(WINDOW), "counts": counts})


@pytest.mark.parametrize("empty", [0, 1, 26, 27, 28, 54, 55, 201])
def test_windows_are_written_down_with_all_their_gaps(empty: int) -> None:
    counts = "0" * empty + "7" * (201 - empty)
    here = thaw(SlidingWindows(1.0), {**freeze(WINDOW), "counts": counts})
    there = thaw(SlidingWindows(1.0), json.loads(json.dumps(freeze(here))))
    assert there.rate == here.rate == 7 * (201 - empty)
    assert freeze(there) == freeze(here)


def test_windows_run_on_after_a_journey() -> None:
    here = Belief(2.0, 1.0, 0.0)
    for nth in range(40):
        here.served(nth / 2)
    there = thaw(Belief(1.0, 1.0, 0.0), json.loads(json.dumps(freeze(here))))
    for nth in range(40, 200):
        here.served(nth / 2)
        there.served(nth / 2)
    assert there.goodput == here.goodput > 1.9


def test_a_full_bucket_is_still_full_after_a_journey() -> None:
    here = Buckets(CELLS, (1.02, 1.5, 6.0))
    there = thaw(Buckets(CELLS, (1.02, 1.5, 6.0)), json.loads(json.dumps(freeze(here))))
    assert not any(map(any, there.empty([1.0] * CELLS, 0.0)))


def test_an_array_may_be_shorter_where_it_is_written_down() -> None:
    read = row_of(4, finite)
    assert list(read([])) == [0.0] * 4
    assert list(read([1])) == [0.1] * 4
    with pytest.raises(ValueError, match="at most 4"):
        read([0] * 5)


def test_a_clock_that_stands_still_costs_no_belief() -> None:
    belief = Belief(10.0, 1.0, 0.0)
    for nth in range(20_000):
        belief.served(nth / 100)
    belief.leak(0.0)
    assert belief.best_rate > 10.0


def test_buckets_that_were_written_down_in_disorder_do_no_harm() -> None:
    sound = freeze(Belief(1.0, 1.0, 0.0))
    models = sound["_models"]
    rows = len(models["_buckets"]["missing"])
    missing = [-100, *(100 * (-1) ** cell for cell in range(1, CELLS))]
    models["_buckets"] = {"missing": [missing] * rows}
    belief = damaged_belief(_models=models)
    for _ in range(50):
        belief.served(0.0)
    assert 0 <= belief.chance(1.0) <= 1


def test_a_short_visit_does_not_replace_what_a_long_crawl_has_found() -> None:
    slot = Slot("example.org", Bounds(), spacing=0.0, concurrency=8)
    slot.recall(Learned(2.7, 0.1, None), 0.0)
    for _ in range(30):
        at = slot.ready_at
        slot.settle(slot.take(at), Outcome(Verdict.SERVED), at + 0.1, 0.0)
        assert slot.learned is None or slot.learned.spread is not None
