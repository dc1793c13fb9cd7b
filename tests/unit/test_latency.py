"""Slow answers of an overloaded host cap the rate; those of slow pages do not."""

from __future__ import annotations

import json
import math
from random import Random
from typing import TYPE_CHECKING

import pytest

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.governor.control_law import Governor
from scrapy_politeness.core.governor.latency import Latency, Stage
from scrapy_politeness.core.health import Health, health
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.core.snapshot import freeze, thaw
from scrapy_politeness.simulator import (
    Balancer,
    Latencies,
    QueueingServer,
    Results,
    Server,
    lognormal,
    mixed,
    runs,
    simulate,
)
from scrapy_politeness.simulator.servers import Reply, Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_politeness.core.governor.host_model import Change

SERVED = Outcome(Verdict.SERVED)


class SlowAtTimes(Wrapper):
    """How long a page takes depends on when it is asked for."""

    def __init__(self, server: Server, seconds: Callable[[float], float]) -> None:
        super().__init__(server)
        self.service = seconds(0.0)
        self._seconds = seconds

    def arrive(self, now: float, page: int = 0) -> Reply:
        reply = self.server.arrive(now, page)
        return reply._replace(at=reply.at + self._seconds(now))


class Crawl:
    """A slot that keeps what its outcomes have changed, and that sends no faster
    than its spider, every ``gap`` seconds."""

    def __init__(self, bounds: Bounds, concurrency: int, *, gap: float = 0.0) -> None:
        self.slot = Slot("example.org", bounds, spacing=0.0, concurrency=concurrency)
        self.changes: list[tuple[float, Change]] = []
        self.capped_for = 0.0
        self._gap = gap
        self._sent_at = -math.inf
        self._settled_at = 0.0

    @property
    def ready_at(self) -> float:
        return max(self.slot.ready_at, self._sent_at + self._gap)

    @property
    def has_room(self) -> bool:
        return self.slot.has_room

    def take(self, now: float) -> Permit:
        self._sent_at = now
        return self.slot.take(now)

    def settle(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Change:
        change = self.slot.settle(permit, outcome, now, chance)
        self.changes.append((now, change))
        assert self.slot.learner.model is not None
        if self.slot.learner.model.is_capped:
            self.capped_for += now - self._settled_at
        self._settled_at = now
        return change

    @property
    def relieved(self) -> list[Change]:
        return [change for _, change in self.changes if change.relieved]


def run(
    crawl: Crawl,
    server: Server,
    *,
    seconds: float = 1800.0,
    seed: int = 0,
    timeout: float = 30.0,
) -> Results:
    return simulate([crawl], server, seconds=seconds, seed=seed, timeout=timeout)


@pytest.mark.parametrize(("concurrency", "seed"), [(8, 7), (16, 8)])
@pytest.mark.parametrize(
    "slow",
    [
        lambda host, seed: Latencies(host, runs(0.05, 0.5, length=50)),
        lambda host, seed: Latencies(host, mixed(0.05, 0.5, seed=seed)),
        lambda host, seed: Latencies(host, lognormal(0.1, 1.5, seed)),
        lambda host, seed: Latencies(host, [0.15], first=0.003),
        lambda host, seed: Latencies(host, runs(0.03, 0.15, 0.6, length=40)),
        lambda host, seed: Latencies(host, runs(0.02, 0.4, length=10)),
        lambda host, seed: Latencies(host, runs(0.02, 0.4, length=20)),
        lambda host, seed: SlowAtTimes(
            host, lambda now: 0.6 if 600 < now < 1500 else 0.05
        ),
        lambda host, seed: SlowAtTimes(host, lambda now: 0.1 + now % 300 / 500),
    ],
    ids=[
        *("in runs", "mixed", "heavy-tailed", "static robots.txt", "three kinds"),
        *("in runs of 10", "in runs of 20", "a bad quarter", "drifting"),
    ],
)
def test_slow_pages_of_a_healthy_host_do_not_slow_the_crawl_down(
    slow: Callable[[Server, int], Server], concurrency: int, seed: int
) -> None:
    crawl = Crawl(Bounds(start_rate=5.0, max_rate=10.0), concurrency)
    report = run(crawl, slow(Server(10.0), seed), seed=seed)
    assert report.efficiency >= 0.95
    assert crawl.capped_for < 0.15 * report.seconds
    assert not crawl.relieved


@pytest.mark.parametrize(
    ("server", "concurrency", "start", "most"),
    [
        (lambda seed: QueueingServer(20.0, variation=0.2, seed=seed), 8, 1.0, 100.0),
        (lambda seed: QueueingServer(20.0, variation=0.2, seed=seed), 16, 1.0, 100.0),
        (lambda seed: QueueingServer(20.0, variation=0.2, seed=seed), 100, 5.0, 100.0),
        (lambda seed: QueueingServer(18.0, variation=0.2, seed=seed), 16, 5.0, 20.0),
        (
            lambda seed: QueueingServer(20.0, workers=4, variation=0.2, seed=seed),
            16,
            1.0,
            100.0,
        ),
        (
            lambda seed: Balancer(
                [
                    QueueingServer(5.0, variation=0.2, seed=100 * seed + number)
                    for number in range(4)
                ]
            ),
            16,
            1.0,
            100.0,
        ),
    ],
    ids=["8 slots", "16 slots", "100 slots", "at most 20/s", "4 workers", "4 servers"],
)
def test_a_host_that_queues_is_kept_busy_without_a_queue(
    server: Callable[[int], Server], concurrency: int, start: float, most: float
) -> None:
    crawl = Crawl(Bounds(start_rate=start, max_rate=most), concurrency)
    report = run(crawl, server(6), seed=6, timeout=3.0)
    assert report.efficiency >= 0.88
    assert report.median_latency < 1.6 * report.unloaded_latency
    assert report.timeouts_per_100 <= 0.1
    assert crawl.relieved


@pytest.mark.parametrize("concurrency", [8, 16, 100])
def test_a_start_that_is_too_fast_is_noticed_before_anything_times_out(
    concurrency: int,
) -> None:
    crawl = Crawl(Bounds(start_rate=5.0, max_rate=10.0), concurrency)
    server = QueueingServer(2.0, variation=0.2, seed=6)
    report = run(crawl, server, seed=6, timeout=10.0)
    assert report.efficiency >= 0.85
    assert report.median_latency < 1.6 * report.unloaded_latency
    assert not report.timed_out


def test_service_times_that_vary_much_do_not_make_the_cap_fall_without_end() -> None:
    crawl = Crawl(Bounds(max_rate=100.0), 16)
    report = run(crawl, QueueingServer(20.0, variation=1.0, seed=6), seed=6)
    assert report.efficiency >= 0.55


@pytest.mark.parametrize("gap", [2.0, 0.4])
def test_a_slow_spider_is_not_slowed_down_for_slow_answers(gap: float) -> None:
    server = SlowAtTimes(Server(1 / gap), lambda now: 0.05 if now < 300 else 0.3)
    crawl = Crawl(Bounds(max_rate=10.0), 8, gap=gap)
    report = run(crawl, server)
    assert report.efficiency >= 0.95
    assert crawl.capped_for == 0
    assert crawl.slot.rate > 1 / gap


def test_a_host_that_can_do_more_again_gets_it_within_two_minutes() -> None:
    server = QueueingServer(4.0, variation=0.2)
    faster = QueueingServer(50.0, variation=0.2)

    class Recovering(QueueingServer):
        def arrive(self, now: float, page: int = 0) -> Reply:
            return (server if now < 600 else faster).arrive(now)

    crawl = Crawl(Bounds(max_rate=10.0), 16)
    run(crawl, Recovering(10.0), seconds=900.0)
    rates = [(now, change.new_rate) for now, change in crawl.changes]
    assert max(rate for now, rate in rates if 300 < now < 600) < 5
    assert min(rate for now, rate in rates if now > 720) == 10


def test_a_host_that_is_slow_for_its_own_reasons_is_back_at_its_rate_in_seconds() -> (
    None
):
    """Eight places do not carry 10/s at 1.2 s a page: the slot is full, which looks
    like a queue until a trial shows that it is none."""

    server = SlowAtTimes(Server(10.0), lambda now: 1.2 if 600 < now < 1200 else 0.05)
    crawl = Crawl(Bounds(max_rate=10.0), 8)
    report = run(crawl, server)
    assert not crawl.relieved
    assert crawl.capped_for < 30
    slow, fast = 600 * 8 / 1.25, 1200 * 10.0
    assert report.served > 0.97 * (slow + fast)


def test_the_governor_learns_nothing_from_what_the_cap_holds_back() -> None:
    crawl = Crawl(Bounds(max_rate=1000.0), 16)
    run(crawl, QueueingServer(20.0, variation=0.2), seconds=600.0)
    model = crawl.slot.learner.model
    assert model is not None
    assert model.is_capped
    assert model.rate < 22
    assert model.governor.rate < 200
    [change] = crawl.relieved
    assert change.new_rate < change.old_rate


def test_a_fixed_rate_is_not_capped() -> None:
    crawl = Crawl(Bounds(start_rate=30.0, max_rate=30.0, adaptive=False), 16)
    run(crawl, QueueingServer(20.0), seconds=60.0)
    assert crawl.slot.rate == 30


def answer(latency: Latency, seconds: float, sent_at: float, *, rate: float) -> bool:
    now = sent_at + seconds
    return latency.observe(seconds, sent_at, now, rate=rate, full=False)


def slowing_down() -> Latency:
    """A host whose responses get slower until a lower rate is tried."""
    latency = Latency(0.1)
    for number in range(40):
        answer(latency, 0.1, number * 0.1, rate=10.0)
    number = 40
    while latency.stage is Stage.FREE:
        answer(latency, 0.1 + 0.05 * (number - 40), number * 0.1, rate=10.0)
        number += 1
    return latency


def overloaded() -> tuple[Latency, float]:
    """What has just been found out about a host that queues, and when."""
    latency = slowing_down()
    now = 100.0
    while latency.cap < 4:
        answer(latency, 0.1, now, rate=10.0)
        now += 0.2
    return latency, now


def test_answers_that_get_later_and_later_are_tried_at_a_lower_rate() -> None:
    latency, _ = overloaded()
    # It answered one request in 0.15 s.
    assert 5.5 < latency.cap < 7


def test_a_trial_that_does_not_help_lifts_the_cap_at_once() -> None:
    latency = slowing_down()
    sent_at = 100.0
    while latency.stage is Stage.TRIAL:
        assert sent_at < 105
        answer(latency, 0.8, sent_at, rate=10.0)
        sent_at += 0.2
    assert latency.cap == math.inf
    for number in range(1000):
        assert not answer(latency, 0.8, 110 + number * 0.1, rate=10.0)
        assert latency.cap == math.inf


@pytest.mark.parametrize(
    "latencies",
    [[0.05] * 50 + [0.5] * 50, [0.05, 0.5] * 50, [0.5] * 50 + [5.0] * 50],
    ids=["a step", "in turn", "a large step"],
)
def test_a_step_of_the_latency_is_no_queue(latencies: list[float]) -> None:
    latency = Latency(0.1)
    for number, seconds in enumerate(5 * latencies):
        answer(latency, seconds, number * 0.1, rate=10.0)
        assert latency.stage is Stage.FREE


@pytest.mark.parametrize(
    ("answers", "expected"),
    [(0, Health.OVERLOADED), (10, Health.DEGRADED), (2000, Health.HEALTHY)],
)
def test_health_follows_the_queue(answers: int, expected: Health) -> None:
    latency, now = overloaded()
    governor = Governor(Bounds(start_rate=10.0))
    for number in range(answers):
        answer(latency, 0.1, now + number * 0.2, rate=10.0)
    assert health(governor, latency, paused=False) is expected
    assert health(governor, latency, paused=True) is Health.PAUSED


def test_its_state_is_small_and_survives_a_copy_at_any_time() -> None:
    random = Random(0)
    server = QueueingServer(20.0, variation=0.2)
    latency = copy = Latency(0.1)
    now = 0.0
    for _ in range(4000):
        now += 1 / min(25.0, latency.cap)
        done = server.arrive(now).at
        for each in (latency, copy):
            each.observe(done - now, now, done, rate=25.0, full=False)
        assert copy.cap == pytest.approx(latency.cap)
        assert copy.stage is latency.stage
        if random.random() < 0.1:
            text = json.dumps(freeze(latency))
            assert len(text) < 2048
            copy = thaw(Latency(0.1), json.loads(text))
    assert latency.cap < 25


@pytest.mark.parametrize(
    "damage",
    [
        {"stage": "asleep"},
        {"cap": "fast"},
        {"cap": math.nan},
        {"_window": [0.1] * 2000},
        {"_normal": -1.0},
        {"_normal": math.inf},
        {"_late": -1},
        {"_ended": None},
    ],
)
def test_damaged_state_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        thaw(Latency(0.1), {**freeze(Latency(0.1)), **damage})


@pytest.mark.parametrize("stage", ["free", "trial", "held"])
@pytest.mark.parametrize(
    "strange",
    [
        {"cap": -5.0, "_before": -math.inf},
        {"_late": 1000, "_ended": []},
        {"_ended": [math.inf, -math.inf], "_late": 7},
        {"_window": [-1.0] * 900, "_full": 10**9},
        {"_longest": math.inf},
        {"_throughput": -1e9, "_in_vain": 10**9},
        {"_since": math.inf, "_from": -math.inf, "_step": 1e9},
    ],
)
def test_strange_state_breaks_nothing(stage: str, strange: dict[str, object]) -> None:
    latency = thaw(Latency(0.1), {**freeze(Latency(0.1)), "stage": stage, **strange})
    for number in range(200):
        answer(latency, 0.1 + 0.01 * number, number * 0.1, rate=10.0)
        assert latency.cap >= 0.1
    assert thaw(Latency(0.1), json.loads(json.dumps(freeze(latency))))
