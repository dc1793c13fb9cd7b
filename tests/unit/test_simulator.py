"""The model servers tell the truth, and the report counts what happened."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.governor.host_model import Change
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.quota import Quota
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.simulator import (
    ConnectionLimit,
    FixedWindow,
    Network,
    QueueingServer,
    QuotaHeaders,
    Results,
    RetryAfter,
    Server,
    SlidingWindow,
    Steps,
    TokenBucket,
    always,
    simulate,
)
from tests.benchmarks.laws import NAMES, law

if TYPE_CHECKING:
    from collections.abc import Callable

STILL = Network(latency=0.0, jitter=0.0)
BOUNDS = Bounds(start_rate=1.0, max_rate=100.0)


@dataclass
class Metronome:
    """Sends at a rate, whatever comes back, and remembers it."""

    rate: float
    room: int = 1000
    sent: int = 0
    outcomes: list[tuple[float, Outcome]] = field(default_factory=list)

    @property
    def ready_at(self) -> float:
        return self.sent / self.rate

    @property
    def has_room(self) -> bool:
        return self.room > 0

    def take(self, now: float) -> Permit:
        self.sent += 1
        self.room -= 1
        return Permit(now, paced=True)

    def settle(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Change:
        self.room += 1
        self.outcomes.append((now, outcome))
        return Change(self.rate, self.rate, 0.0, cut=False)

    def times(self, verdict: Verdict) -> list[float]:
        return [time for time, outcome in self.outcomes if outcome.verdict is verdict]


def served_times(server: Server, rate: float, seconds: float) -> list[float]:
    client = Metronome(rate)
    simulate([client], server, seconds=seconds, network=STILL)
    return client.times(Verdict.SERVED)


LIMITS: list[Callable[[], Server]] = [
    lambda: TokenBucket(2.0, 5),
    lambda: FixedWindow(20, 10.0),
    lambda: SlidingWindow(20, 10.0),
    lambda: SlidingWindow(20, 10.0, counts_refused=True),
    lambda: ConnectionLimit(3, 1.5, round_trip=0.0),
]


@pytest.mark.parametrize("make", LIMITS)
def test_a_client_just_under_the_limit_is_never_refused(
    make: Callable[[], Server],
) -> None:
    report = simulate([Metronome(1.98)], make(), seconds=1000, network=STILL)
    assert report.refused == 0
    assert report.served == pytest.approx(report.allowed, rel=0.015)


@pytest.mark.parametrize(
    ("server", "period", "each", "first"),
    [
        (TokenBucket(2.0, 5), 10.0, 20, 24),
        (FixedWindow(20, 10.0), 10.0, 20, 20),
        (FixedWindow(20, 10.0, phase=5.0), 10.0, 20, 40),
        (SlidingWindow(20, 10.0), 10.0, 20, 20),
        (SlidingWindow(20, 10.0, counts_refused=True), 10.0, 0, 20),
        (ConnectionLimit(3, 1.0, round_trip=0.0), 10.0, 30, 27),
    ],
)
def test_a_client_far_over_the_limit_gets_exactly_the_limit(
    server: Server, period: float, each: int, first: int
) -> None:
    times = served_times(server, rate=32.0, seconds=100.0)
    counts = [0] * 10
    for time in times:
        counts[min(9, int(time / period))] += 1
    assert counts[0] == first
    assert counts[2:9] == [each] * 7


def test_a_sliding_window_serves_its_limit_in_any_window() -> None:
    times = served_times(SlidingWindow(20, 10.0), rate=7.3, seconds=300.0)
    assert all(
        later - earlier >= 10.0 - 1e-6
        for earlier, later in zip(times, times[20:], strict=False)
    )


def test_who_pauses_gets_into_a_window_that_counts_refusals() -> None:
    server = SlidingWindow(2, 10.0, counts_refused=True)
    answers = [server.arrive(now).served for now in (0.0, 1.0, 2.0, 11.0, 13.0, 14.0)]
    assert answers == [True, True, False, True, True, False]


@pytest.mark.parametrize("make", [*LIMITS, lambda: QueueingServer(2.0)])
def test_what_is_allowed_adds_up(make: Callable[[], Server]) -> None:
    server = make()
    assert server.allowed(0.0, 50.0) == pytest.approx(100.0)
    parts = server.allowed(0.0, 17.3) + server.allowed(17.3, 50.0)
    assert parts == pytest.approx(100.0)


@pytest.mark.parametrize("make", LIMITS)
def test_a_client_that_waits_as_told_is_served(make: Callable[[], Server]) -> None:
    server = make()
    now = 0.0
    for _ in range(200):
        reply = server.arrive(now)
        if not reply.served:
            wait = server.wait(now)
            assert wait > 0
            now += wait
            assert server.arrive(now).served
        now += 0.01


def test_a_limit_changes_when_it_is_said_to() -> None:
    steps = Steps((0.0, 4.0), (100.0, 2.0), (200.0, 6.0))
    times = served_times(TokenBucket(steps, 1), rate=24.0, seconds=300.0)
    counts = [sum(1 for t in times if a <= t < a + 50) for a in range(50, 300, 50)]
    assert counts == pytest.approx([200, 100, 100, 300, 300], abs=1)
    assert steps.total(0.0, 300.0) == 1200
    assert steps.changes(300.0) == [100.0, 200.0]


def test_night_follows_day_follows_night() -> None:
    hour = 3600.0
    steps = Steps((0.0, 1.0), (12 * hour, 3.0), every=24 * hour)
    assert [steps.rate(h * hour) for h in (0, 11, 12, 23, 24, 36)] == [1, 1, 3, 3, 1, 3]
    assert steps.total(6 * hour, 42 * hour) == (18 * 1 + 18 * 3) * hour
    assert steps.changes(48 * hour) == [12 * hour, 24 * hour, 36 * hour]


def test_recovery_is_measured_from_each_change_of_the_limit() -> None:
    steps = Steps((0.0, 4.0), (100.0, 2.0), (200.0, 6.0))
    report = simulate(
        [Metronome(4.0)], TokenBucket(steps, 1), seconds=300, network=STILL
    )
    down, up = report.recoveries
    assert down.at == 100.0
    assert down.after == pytest.approx(10.0, abs=0.6)
    assert down.refused == pytest.approx(20, abs=2)
    assert up.after is None  # 4 of 6 a second


def test_the_limit_is_reached_when_a_whole_window_was_used() -> None:
    class Slow(Metronome):
        """Ten seconds at a half of the rate."""

        @property
        def ready_at(self) -> float:
            late = self.sent > 5 * self.rate
            return self.sent / self.rate + 5 if late else 2 * self.sent / self.rate

    report = simulate([Slow(20.0)], TokenBucket(20.0, 5), seconds=60, network=STILL)
    # 90 % of ten seconds at 20/s: two seconds may still be of the slow ones.
    assert report.reached_at == pytest.approx(18.0, abs=0.2)


def test_a_queue_makes_wait_and_a_client_gives_up() -> None:
    client = Metronome(rate=4.0)
    simulate([client], QueueingServer(2.0), seconds=30, network=STILL, timeout=3.0)
    first = client.times(Verdict.TIMED_OUT)[0]
    # Each one waits a quarter of a second longer: the eleventh first more than 3 s.
    assert first == pytest.approx(11 * 0.25 + 3.0)
    # The server works on for those who left, so nobody is served in time any more.
    assert max(client.times(Verdict.SERVED)) < first
    assert client.outcomes[-1][1].verdict is Verdict.TIMED_OUT


def test_a_queue_with_many_workers_is_as_fast_as_its_capacity() -> None:
    server = QueueingServer(20.0, workers=4)
    report = simulate([Metronome(100.0, room=8)], server, seconds=100, network=STILL)
    assert report.efficiency == pytest.approx(1.0, abs=0.01)
    assert server.service == 0.2
    assert report.median_latency == pytest.approx(8 / 20)


def test_variation_keeps_the_capacity() -> None:
    server = QueueingServer(20.0, variation=1.0)
    report = simulate([Metronome(100.0, room=8)], server, seconds=1000, network=STILL)
    assert report.efficiency == pytest.approx(1.0, abs=0.03)


def test_as_many_requests_as_connections_are_never_refused() -> None:
    network = Network()
    server = ConnectionLimit(4, 0.15, round_trip=network.round_trip, variation=0.2)
    report = simulate([Metronome(100.0, room=4)], server, seconds=200, network=network)
    assert report.refused == 0
    assert report.efficiency == pytest.approx(1.0, abs=0.02)


def test_a_request_travels_to_the_server_and_back() -> None:
    client = Metronome(1.0)
    network = Network(latency=0.2, jitter=0.0)
    server = ConnectionLimit(1, 0.5, round_trip=0.2)
    report = simulate([client], server, seconds=5, network=network)
    assert client.outcomes[0][0] == pytest.approx(0.7)
    assert report.median_latency == pytest.approx(report.unloaded_latency)


def waits(server: Server) -> list[float | None]:
    client = Metronome(2.0)
    simulate([client], server, seconds=3.1, network=STILL)
    return [o.wait for _, o in client.outcomes if o.verdict is Verdict.REFUSED]


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (RetryAfter(FixedWindow(3, 3.0)), [2.0, 1.0, 1.0]),
        (RetryAfter(FixedWindow(3, 3.0), always(0.0)), [0.0] * 3),
        (RetryAfter(FixedWindow(3, 3.0), always(3600.0)), [3600.0] * 3),
        (FixedWindow(3, 3.0), [None] * 3),
    ],
)
def test_a_refusal_says_how_long_to_wait(server: Server, said: list[float]) -> None:
    assert waits(server) == said


@pytest.mark.parametrize(
    ("server", "quotas"),
    [
        (TokenBucket(2.0, 3), [(2, 1, 4, 2), (1, 1, 4, 2), (1, 1, 4, 2)]),
        (FixedWindow(2, 10.0), [(1, 10, 2, 10), (0, 10, 2, 10), (0, 10, 2, 10)]),
        (SlidingWindow(2, 10.0), [(1, 10, 2, 10), (0, 10, 2, 10), (0, 10, 2, 10)]),
    ],
)
def test_quota_headers_say_what_is_left(
    server: TokenBucket | FixedWindow | SlidingWindow,
    quotas: list[tuple[int, float, int, float]],
) -> None:
    telling = QuotaHeaders(server)
    told = [telling.arrive(now).quota for now in (0.0, 0.25, 0.5)]
    assert told == [Quota(*quota) for quota in quotas]


def test_older_quota_headers_do_not_tell_the_window() -> None:
    quota = QuotaHeaders(FixedWindow(2, 10.0), policy=False).arrive(0.0).quota
    assert quota == Quota(1, 10, 2, None)


def test_several_clients_share_one_limit() -> None:
    clients = [Metronome(3.0), Metronome(3.0), Metronome(1.0)]
    report = simulate(clients, TokenBucket(4.0, 5), seconds=1000)
    assert report.efficiency == pytest.approx(1.0, abs=0.01)
    assert len(report.clients) == 3
    assert sum(client.served for client in report.clients) == report.served
    assert sum(client.refused for client in report.clients) == report.refused
    assert sum(client.allowed for client in report.clients) == pytest.approx(
        report.allowed
    )


def minutes(seed: int) -> Results:
    slot = Slot("host", BOUNDS, spacing=0.0, concurrency=8)
    return simulate([slot], RetryAfter(TokenBucket(4.0, 20)), seconds=300, seed=seed)


def test_a_seed_decides_everything() -> None:
    first = minutes(seed=1)
    assert first.refused > 0
    assert minutes(seed=1) == first
    assert minutes(seed=2) != first


def test_a_trace_is_bounded_and_covers_the_run() -> None:
    class Fidget(Metronome):
        def settle(
            self, permit: Permit, outcome: Outcome, now: float, chance: float
        ) -> Change:
            super().settle(permit, outcome, now, chance)
            return Change(now, now, 0.0, cut=False)

    trace = simulate([Fidget(10.0)], TokenBucket(20.0, 1), seconds=3600).trace
    times = [time for time, _ in trace]
    assert 500 < len(trace) <= 2000
    assert times == sorted(times)
    assert times[0] < 1
    assert times[-1] > 3590


@pytest.mark.parametrize("name", NAMES)
def test_every_law_of_the_benchmark_finds_much_of_a_limit(name: str) -> None:
    server = RetryAfter(TokenBucket(4.0, 20))
    report = simulate([law(name, server, 8)], server, seconds=1200)
    assert 0.7 < report.efficiency <= 1.0
    assert math.isfinite(report.refusals_per_100)
