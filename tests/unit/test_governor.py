"""The law against model servers, one simulated hour each from a cold start."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from statistics import mean, median
from typing import TYPE_CHECKING

import pytest

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.governor.concurrency import Concurrency
from scrapy_politeness.core.governor.control_law import Governor
from scrapy_politeness.core.governor.latency import Latency
from scrapy_politeness.core.health import Health, health
from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.quota import Quota
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.simulator import (
    ConnectionLimit,
    FixedWindow,
    Network,
    QueueingServer,
    RandomFailures,
    Results,
    RetryAfter,
    Server,
    SlidingWindow,
    Steps,
    TokenBucket,
    refused,
    simulate,
)
from tests.support.observed import Followed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from scrapy_politeness.core.governor.host_model import Change

BOUNDS = Bounds(start_rate=1.0, max_rate=100.0)

STEPS = Steps((0.0, 4.0), (1200.0, 2.0), (2400.0, 6.0))


DAY = 86400.0


class Watched(Followed):
    """A slot whose changes are watched."""

    def __init__(self, slot: Slot, watch: Callable[[Change], object]) -> None:
        super().__init__(slot)
        self._watch = watch

    def settle(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Change:
        change = super().settle(permit, outcome, now, chance)
        self._watch(change)
        return change


def run(server: Server, seed: int, seconds: float = 3600.0) -> Results:
    slot = Slot("example.org", BOUNDS, spacing=0.0, concurrency=16)
    return simulate([slot], server, seed=seed, seconds=seconds)


@pytest.mark.parametrize(
    ("server", "efficiency", "refusals_per_100"),
    [
        (lambda: TokenBucket(20.0, 10), 0.95, 0.5),
        (lambda: TokenBucket(4.0, 20), 0.97, 0.5),
        (lambda: TokenBucket(1.0, 5), 0.97, 0.5),
        (lambda: TokenBucket(0.2, 3), 0.94, 2.0),
        (lambda: FixedWindow(120, 60.0, phase=12.0), 0.96, 0.5),
        (lambda: FixedWindow(200, 10.0, phase=2.0), 0.94, 0.5),
        (lambda: SlidingWindow(120, 60.0), 0.88, 0.5),
        (lambda: SlidingWindow(20, 1.0), 0.9, 0.5),
        (lambda: SlidingWindow(3, 1.0), 0.9, 0.5),
        (lambda: SlidingWindow(1, 1.0), 0.85, 0.5),
        (lambda: TokenBucket(10.0, 1), 0.8, 0.7),
        (lambda: SlidingWindow(120, 60.0, counts_refused=True), 0.7, 0.7),
        (lambda: TokenBucket(STEPS, 5), 0.88, 0.5),
    ],
    ids=[
        "bucket 20/s",
        "bucket 4/s",
        "bucket 1/s",
        "bucket 0.2/s",
        "fixed 120/min",
        "fixed 200/10s",
        "sliding 120/min",
        "sliding 20/s",
        "sliding 3/s",
        "sliding 1/s",
        "bucket 10/s, no burst",
        "sliding, all count",
        "steps",
    ],
)
def test_it_settles_just_under_the_limit(
    server: object, efficiency: float, refusals_per_100: float
) -> None:
    assert callable(server)
    host = RetryAfter(server())
    # A fast host shows sooner what it allows.
    seconds = 1200.0 if host.allowed(0.0, 1.0) >= 20 else 3600.0
    report = run(host, seed=3, seconds=seconds)
    assert report.efficiency >= efficiency
    assert report.refusals_per_100 <= refusals_per_100


def test_what_was_learned_can_be_kept_and_spares_the_next_run_the_search() -> None:
    def run_from(learned: Learned | None) -> tuple[Results, Slot]:
        slot = Slot("example.org", BOUNDS, spacing=0.0, concurrency=16)
        if learned is not None:
            slot.recall(learned, 0.0)
        server = RetryAfter(TokenBucket(20.0, 10))
        return simulate([slot], server, seconds=600.0), slot

    first, slot = run_from(None)
    assert slot.learned is not None
    kept = Learned.from_dict(slot.learned.to_dict())
    second, _ = run_from(kept)
    assert second.efficiency > first.efficiency
    assert second.reached_at is not None
    assert first.reached_at is not None
    assert second.reached_at < first.reached_at


def test_an_old_rate_is_trusted_less() -> None:
    """Whether it was high or low, and whether it is a limit or was only stood."""

    def begins_at(learned: Learned, age: float) -> float:
        slot = Slot("example.org", BOUNDS, spacing=0.0, concurrency=16)
        slot.recall(learned.aged(age, BOUNDS.start_rate), 0.0)
        return slot.rate

    for learned in (Learned(9.0, 0.1, 8), Learned(9.0, None, 8), Learned(0.2, 0.1, 8)):
        assert learned.ceiling is not None
        ages = [0.0, DAY, 3 * DAY, 1e4 * DAY]
        rates = [begins_at(learned, age) for age in ages]
        assert rates[0] == pytest.approx(learned.ceiling, rel=0.1)
        # Ever closer to the start rate, from above or from below.
        assert sorted(rates, reverse=learned.ceiling > 1) == rates
        assert rates[0] != rates[1]
        assert rates[-1] == pytest.approx(BOUNDS.start_rate, rel=0.05)
        assert begins_at(learned, -1e9) == begins_at(learned, 0.0)


@pytest.mark.parametrize(
    "damage",
    [
        {},
        {"spread": 0.1},
        {"ceiling": "fast", "spread": 0.1, "concurrency": 8},
        {"ceiling": float("nan"), "spread": 0.1, "concurrency": 8},
        {"ceiling": -1, "spread": 0.1, "concurrency": 8},
        {"ceiling": 1, "spread": -0.1, "concurrency": 8},
        {"ceiling": 1, "spread": "wide", "concurrency": 8},
        {"ceiling": 1, "spread": 0.1, "concurrency": 0},
        {"ceiling": True, "spread": 0.1, "concurrency": 8},
        {"ceiling": 10**400, "spread": 0.1, "concurrency": 8},
    ],
)
def test_damaged_values_are_refused(damage: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"range|number|no limit"):
        Learned.from_dict(damage)


def test_a_fixed_rate_has_nothing_to_keep() -> None:
    bounds = Bounds(start_rate=30.0, max_rate=30.0, adaptive=False)
    slot = Slot("example.org", bounds, spacing=0.0, concurrency=16)
    simulate([slot], RetryAfter(TokenBucket(20.0, 10)), seconds=60.0)
    assert slot.learned is None


def test_of_concurrency_only_what_was_found_is_kept() -> None:
    def found(server: Server) -> Learned:
        slot = Slot("example.org", BOUNDS, spacing=0.0, concurrency=16)
        simulate([slot], RetryAfter(server), seconds=600.0)
        assert slot.learned is not None
        return Learned.from_dict(slot.learned.to_dict())

    def recalled(learned: Learned) -> int:
        slot = Slot("example.org", BOUNDS, spacing=0.0, concurrency=32)
        slot.recall(learned, 0.0)
        return slot.concurrency

    narrow = ConnectionLimit(4, 0.15, round_trip=0.055, variation=0.2)
    assert recalled(found(narrow)) < 8
    assert recalled(found(TokenBucket(20.0, 10))) == 32


def test_a_host_that_limits_connections_gets_fewer_at_once() -> None:
    server = ConnectionLimit(4, 0.15, round_trip=0.055, variation=0.2)
    slot = Slot("example.org", BOUNDS, spacing=0.0, concurrency=16)
    report = simulate([slot], RetryAfter(server))
    assert report.efficiency >= 0.75
    assert report.refusals_per_100 <= 1.0
    assert 3 <= slot.concurrency <= 5


@pytest.mark.parametrize("latency", [0.05, 0.6])
@pytest.mark.parametrize(
    "make",
    [
        lambda: TokenBucket(20.0, 10),
        lambda: TokenBucket(4.0, 20),
        lambda: SlidingWindow(120, 60.0),
        lambda: FixedWindow(120, 60.0, phase=24.0),
    ],
)
def test_a_host_that_limits_requests_keeps_its_concurrency(
    make: Callable[[], Server], latency: float
) -> None:
    """However many are in flight when it refuses, and goes on refusing."""
    slot = Slot("example.org", BOUNDS, spacing=0.0, concurrency=16)
    network = Network(latency, jitter=0.2)
    simulate([slot], make(), seconds=1200.0, network=network)
    assert slot.concurrency == 16
    assert not slot.limits_connections


@pytest.mark.parametrize(
    "make",
    [
        lambda: TokenBucket(20.0, 10),
        lambda: FixedWindow(200, 10.0),
        lambda: SlidingWindow(20, 1.0),
    ],
)
def test_the_limit_is_reached_quickly_from_a_slow_start(
    make: Callable[[], Server],
) -> None:
    """As a rule: one start in twenty takes minutes."""
    reports = [run(make(), seed=seed, seconds=180.0) for seed in range(5)]
    assert median(report.reached_at or 180.0 for report in reports) <= 80.0
    assert median(report.refused_until_reached for report in reports) <= 8
    assert min(report.efficiency for report in reports) > 0.5


def test_what_was_sent_lately_tells_more_than_the_average() -> None:
    """A crawl that was slower than it might have been meets a limit of 10 a second."""
    governor = Governor(Bounds(max_rate=10.0))
    for nth in range(200):
        answer(governor, SERVED, 0.3 * nth)
    for nth in range(10):
        answer(governor, SERVED, 60.0 + nth / 11)
    answer(governor, REFUSED, 60.0 + 10 / 11)
    answer(governor, SERVED, 63.0)
    assert governor.likely_limit == pytest.approx(10.0, rel=0.2)


@pytest.mark.parametrize("seed", range(22, 26))
def test_when_all_that_is_under_way_fails_it_is_no_accident(seed: int) -> None:
    """A queue that was too slow from the start, before an answer could show it."""
    bounds = Bounds(start_rate=5.0, max_rate=100.0)
    slot = Slot("example.org", bounds, spacing=0.0, concurrency=16)
    server = QueueingServer(2.0, workers=1, variation=0.2, seed=seed)
    report = simulate([slot], server, seconds=1200.0, seed=seed, timeout=3.0)
    assert report.efficiency > 0.8


@pytest.mark.parametrize("server", [FixedWindow(120, 60.0), SlidingWindow(120, 60.0)])
def test_a_window_is_found_without_being_told_how_long_to_wait(server: Server) -> None:
    report = run(server, seed=1)
    assert report.efficiency >= 0.90
    assert report.refusals_per_100 <= 1.5


def answer(governor: Governor, outcome: Outcome, at: float) -> None:
    governor.observe(Permit(at, paced=True), outcome, at + 0.01, chance=0.0)


SERVED = Outcome(Verdict.SERVED)
REFUSED = Outcome(Verdict.REFUSED, "429", wait=1.0)


@pytest.mark.parametrize("wait", [None, 1.0, 40.0])
def test_a_crawl_with_nothing_to_send_does_not_take_that_for_the_hosts_silence(
    wait: float | None,
) -> None:
    def rate_after(idle: float) -> float:
        slot = Slot("example.org", BOUNDS, spacing=0.0, concurrency=16)
        slot.recall(Learned(4.0, 0.1, None), 0.0)
        now = 0.0
        for number in range(66):
            now = max(now, slot.ready_at)
            outcome = SERVED if number != 60 else REFUSED._replace(wait=wait)
            slot.settle(slot.take(now), outcome, now + 0.01, 0.0)
            if number == 60:
                now += idle
        return slot.rate

    # One that is not in use is not raised: that may be one step.
    assert rate_after(600.0) == pytest.approx(rate_after(0.0), rel=0.25)


def test_a_rate_is_settled_when_the_limit_is_known() -> None:
    slot = Slot("example.org", BOUNDS, spacing=0.0, concurrency=16)
    settled = []
    watched = Watched(slot, lambda change: settled.append(change.settled_at))
    simulate([watched], RetryAfter(TokenBucket(4.0, 5)), seconds=600.0)
    rates = [rate for rate in settled if rate is not None]
    assert rates
    assert rates == pytest.approx([4.0] * len(rates), rel=0.2)


@pytest.mark.parametrize("seed", [19, 20, 21, 22])
def test_two_refusals_are_no_place_to_settle(seed: int) -> None:
    slot = Slot("example.org", Bounds(), spacing=0.0, concurrency=16)
    settled = []
    watched = Watched(slot, lambda change: settled.append(change.settled_at))
    unlucky = RandomFailures(Server(10.0), 0.1, refused(), seed=seed)
    simulate([watched], unlucky, seconds=120.0, seed=seed)
    assert {rate for rate in settled if rate is not None} <= {10.0}


def test_a_rate_that_the_host_told_is_settled() -> None:
    governor = Governor(BOUNDS)
    assert not governor.is_settled
    answer(governor, Outcome(Verdict.SERVED, quota=Quota(50, 30, 100, 60)), 0.0)
    assert governor.is_settled


def test_a_rate_that_may_not_rise_is_settled() -> None:
    governor = Governor(Bounds(start_rate=1.0, max_rate=2.0))
    for second in range(40):
        answer(governor, SERVED, float(second))
    assert governor.rate == 2.0
    assert governor.is_settled


def test_a_refusal_degrades_health_until_it_is_served_again() -> None:
    governor = Governor(BOUNDS)
    answer(governor, SERVED, 0.0)
    answer(governor, REFUSED, 1.0)
    assert health(governor, Latency(0.1), paused=False) is Health.DEGRADED
    answer(governor, SERVED, 3.0)
    assert health(governor, Latency(0.1), paused=False) is Health.HEALTHY


def connections_of(most: int, limit: int, *, times: int = 200) -> Concurrency:
    """What is known of a host that refuses each request beside more than ``limit``,
    while as many are sent at once as is thought right, and now and then one more."""
    concurrency = Concurrency(most)
    for nth in range(times):
        beside = min(most, concurrency.limit + (nth % 10 == 0))
        outcome = SERVED if beside <= limit else REFUSED
        concurrency.observe(
            Permit(0.0, paced=True, beside=beside), outcome, lambda _: 0.01
        )
    return concurrency


def test_four_connections_are_found() -> None:
    concurrency = connections_of(16, 4)
    assert concurrency.limit in (3, 4)
    assert concurrency.is_found


def test_a_host_that_takes_all_keeps_all() -> None:
    concurrency = connections_of(16, 16)
    assert (concurrency.limit, concurrency.is_found) == (16, False)


def test_refusals_among_few_are_not_blamed_on_the_connections() -> None:
    concurrency = Concurrency(8)
    for nth in range(400):
        outcome = REFUSED if nth % 50 == 49 else SERVED
        permit = Permit(0.0, paced=True, beside=1 + nth % 8)
        concurrency.observe(permit, outcome, lambda _: 0.02)
    assert (
        concurrency.observe(Permit(0.0, True, beside=1), REFUSED, lambda _: 0.02) == 0.0
    )
    assert (concurrency.limit, concurrency.is_found) == (8, False)


def test_a_limit_of_connections_that_is_gone_is_forgotten() -> None:
    concurrency = connections_of(8, 3)
    assert concurrency.limit < 5
    for nth in range(5000):
        beside = min(8, concurrency.limit + (nth % 10 == 0))
        concurrency.observe(Permit(0.0, True, beside=beside), SERVED, lambda _: 0.01)
    assert (concurrency.limit, concurrency.is_found) == (8, False)


@pytest.mark.parametrize("most", [10.0, 100.0])
def test_of_a_host_that_never_refuses_the_rate_that_it_stood_is_kept(
    most: float,
) -> None:
    bounds = replace(BOUNDS, max_rate=most)
    slot = Slot("example.org", bounds, spacing=0.0, concurrency=16)
    now = 0.0
    kept = []
    for _ in range(90):
        now = max(now, slot.ready_at)
        permit = slot.take(now)
        slot.settle(permit, SERVED, now + 0.01, 0.0)
        kept.append(slot.learned)
    assert kept[0] is None
    assert kept[-1] is not None
    assert kept[-1].ceiling is not None
    rate = slot.status(now).rate
    assert rate / 2 <= kept[-1].ceiling <= rate
    if most == 10.0:
        assert kept[-1].ceiling == most
    later = Slot("example.org", bounds, spacing=0.0, concurrency=16)
    later.recall(kept[-1], 0.0)
    assert later.status(0.0).rate == pytest.approx(kept[-1].ceiling, rel=0.02)


def seconds_of_400_pages(failures: Collection[int]) -> float:
    """Without any failure it takes 55 seconds; at the start rate, 400."""
    slot = Slot("example.org", Bounds(), spacing=0.0, concurrency=8)
    refused = Outcome(Verdict.REFUSED, reason="503 Service Unavailable")
    now = 0.0
    for number in range(400):
        now = max(now, slot.ready_at)
        outcome = refused if number in failures else Outcome(Verdict.SERVED)
        slot.settle(slot.take(now), outcome, now + 0.03, chance=0.5)
        now += 0.03
    return now


@pytest.mark.parametrize("failures", [(3, 5), (7, 21, 33), (8, 15, 18)])
def test_failures_at_the_start_are_made_up_for(failures: tuple[int, ...]) -> None:
    assert seconds_of_400_pages(failures) < 120


@pytest.mark.parametrize(("failed", "of"), [(2, 15), (3, 25), (4, 40)])
def test_no_accident_at_the_start_is_believed_for_long(failed: int, of: int) -> None:
    draws = [Random(seed).sample(range(of), failed) for seed in range(40)]
    seconds = [seconds_of_400_pages(draw) for draw in draws]
    assert mean(seconds) < 90
    assert max(seconds) < 160
