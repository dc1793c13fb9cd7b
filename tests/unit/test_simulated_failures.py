"""Hosts that fail whatever the rate is, and what could still be had of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scrapy_politeness.core.failing_page import Persistence
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.quota import Quota
from scrapy_politeness.simulator import (
    Balancer,
    BrokenPages,
    Downtime,
    FewConnections,
    Latencies,
    QueueingServer,
    QuotaOnPages,
    RandomFailures,
    Results,
    RetryAfter,
    Server,
    TokenBucket,
    error,
    lognormal,
    mixed,
    refused,
    runs,
    simulate,
    unanswered,
)
from tests.benchmarks.governors import Run
from tests.benchmarks.rows import Target
from tests.benchmarks.tables import ROWS, Worst
from tests.unit.test_simulator import STILL, Metronome

if TYPE_CHECKING:
    from scrapy_politeness.simulator.failures import Failure


def outcomes(
    server: Server, *, rate: float = 10.0, seconds: float = 1000.0, seed: int = 0
) -> list[tuple[float, Outcome]]:
    client = Metronome(rate)
    simulate([client], server, seconds=seconds, seed=seed, network=STILL, timeout=5.0)
    return client.outcomes


def crawl(
    server: Server, pages: int, *, rate: float = 10.0, seconds: float = 3600.0
) -> Results:
    law = Metronome(rate)
    return simulate([law], server, seconds=seconds, network=STILL, pages=pages)


@pytest.mark.parametrize(
    ("failure", "verdict", "reason", "wait"),
    [
        (refused(), Verdict.REFUSED, "503", None),
        (refused("429", 60.0), Verdict.REFUSED, "429", 60.0),
        (unanswered, Verdict.TIMED_OUT, "timeout", None),
        (error(), Verdict.UNREACHABLE, "ConnectionLost", None),
        (error("502"), Verdict.UNREACHABLE, "502", None),
    ],
)
def test_a_share_of_the_requests_fails(
    failure: Failure, verdict: Verdict, reason: str, wait: float | None
) -> None:
    seen = outcomes(RandomFailures(Server(10.0), 0.05, failure, seed=1))
    failed = [outcome for _, outcome in seen if outcome.verdict is not Verdict.SERVED]
    assert len(failed) / len(seen) == pytest.approx(0.05, abs=0.01)
    assert set(failed) == {Outcome(verdict, reason, wait)}


@pytest.mark.parametrize("rate", [1.0, 10.0])
def test_noise_does_not_depend_on_the_rate(rate: float) -> None:
    seen = outcomes(RandomFailures(Server(10.0), 0.1, refused(), seed=2), rate=rate)
    failed = sum(outcome.verdict is Verdict.REFUSED for _, outcome in seen)
    assert failed / len(seen) == pytest.approx(0.1, abs=0.02)


def test_a_seed_decides_which_requests_fail() -> None:
    def times(seed: int) -> list[float]:
        noise = RandomFailures(Server(10.0), 0.05, refused(), seed=seed)
        return [at for at, it in outcomes(noise) if it.verdict is Verdict.REFUSED]

    assert times(1) == times(1)
    assert times(1) != times(2)


def test_noise_may_end() -> None:
    server = RandomFailures(Server(10.0), 0.5, refused(), start=100.0, end=200.0)
    failed = [at for at, it in outcomes(server) if it.verdict is Verdict.REFUSED]
    assert 100.0 <= min(failed) < 102.0
    assert 198.0 < max(failed) < 200.0
    assert server.allowed(0.0, 300.0) == pytest.approx(2500.0)
    assert server.changes(1000.0) == [200.0]


@pytest.mark.parametrize(
    ("failure", "verdict"),
    [
        (refused(), Verdict.REFUSED),
        (unanswered, Verdict.TIMED_OUT),
        (error(), Verdict.UNREACHABLE),
    ],
)
def test_in_an_outage_everything_fails(failure: Failure, verdict: Verdict) -> None:
    server = Downtime(Server(10.0), 100.0, 200.0, failure)
    client = Metronome(10.0)
    report = simulate([client], server, seconds=300.0, network=STILL, timeout=5.0)
    assert len(client.times(verdict)) == pytest.approx(1000, abs=2)
    assert report.efficiency == pytest.approx(1.0, abs=0.01)
    assert [recovery.at for recovery in report.recoveries] == [200.0]
    assert report.recoveries[0].after == pytest.approx(10.0, abs=1.1)


def test_a_host_that_is_down_from_the_start_allows_nothing_until_it_is_back() -> None:
    server = Downtime(Server(10.0), 0.0, 60.0, refused(retry_after=60.0))
    report = simulate([Metronome(10.0)], server, seconds=120.0, network=STILL)
    assert report.reached_at is None
    assert server.allowed(0.0, 60.0) == 0.0
    assert report.allowed == pytest.approx(600.0)


def test_an_outage_fills_no_queue() -> None:
    server = Downtime(QueueingServer(2.0), 0.0, 60.0, error())
    served = [at for at, it in outcomes(server) if it.verdict is Verdict.SERVED]
    assert served[0] == pytest.approx(60.5)


@pytest.mark.parametrize(
    ("server", "allowed"),
    [
        (RandomFailures(Server(10.0), 0.05, refused()), 9.5),
        (RandomFailures(TokenBucket(8.0, 1), 0.05, refused()), 7.6),
        (
            RandomFailures(RandomFailures(Server(10.0), 0.5, refused()), 0.5, error()),
            2.5,
        ),
        (Latencies(Server(10.0), [0.1, 0.5]), 10.0),
        (Balancer([TokenBucket(5.0, 1) for _ in range(4)]), 20.0),
        # Eight at once carry 5.2 requests a second, of which one in twenty times out.
        (FewConnections(Server(10.0), 8, 0.05, 0.05, 30.0), 0.95 * 5.17),
        (FewConnections(Server(10.0), 8, 0.05, 0.001, 30.0), 10.0),
    ],
)
def test_what_is_allowed_could_really_be_had(server: Server, allowed: float) -> None:
    assert server.allowed(20.0, 30.0) == pytest.approx(10 * allowed, rel=0.001)


def test_few_slots_carry_little_where_many_requests_time_out() -> None:
    noise = RandomFailures(Server(10.0), 0.05, unanswered, seed=1)
    server = FewConnections(noise, 8, 0.0, 0.05, 30.0)
    client = Metronome(100.0, room=8)
    report = simulate([client], server, seconds=3600.0, network=STILL, timeout=30.0)
    assert report.efficiency == pytest.approx(1.0, abs=0.1)


def test_refusals_by_the_limit_are_told_from_bad_luck() -> None:
    server = RandomFailures(TokenBucket(8.0, 10), 0.05, refused(), seed=1)
    report = simulate([Metronome(10.0)], server, seconds=1000.0, network=STILL)
    assert report.unlucky == pytest.approx(400, abs=60)
    assert report.refused - report.unlucky == pytest.approx(2000, abs=50)
    assert report.over_limit_per_100 == pytest.approx(2000 / 76, rel=0.05)
    assert report.efficiency == pytest.approx(1.0, abs=0.01)


def test_a_retry_after_of_the_limit_is_kept_beside_bad_luck() -> None:
    server = RandomFailures(RetryAfter(TokenBucket(0.5, 1)), 0.5, refused(), seed=1)
    seen = {(it.reason, it.wait) for _, it in outcomes(server, rate=1.0)}
    assert seen == {("", None), ("503", None), ("429", 1.0)}


def latencies(server: Server, pages: int) -> list[float]:
    return [server.arrive(0.0, page).at for page in range(pages)]


def test_pages_have_latencies_of_their_own() -> None:
    assert latencies(Latencies(Server(1.0), runs(0.05, 0.5, length=2)), 6) == [
        *(0.05, 0.05, 0.5, 0.5),
        *(0.05, 0.05),
    ]
    assert latencies(Latencies(Server(1.0), [0.15], first=0.003), 3) == [
        *(0.003, 0.15, 0.15)
    ]


def test_latencies_by_chance_belong_to_the_page() -> None:
    for table in (mixed, lambda *kinds, seed: lognormal(0.1, 1.5, seed)):
        one, again, other = (
            latencies(Latencies(Server(1.0), table(0.05, 0.5, seed=seed)), 500)
            for seed in (1, 1, 2)
        )
        assert one == again
        assert one != other
    assert set(mixed(0.05, 0.5)) == {0.05, 0.5}
    times = sorted(lognormal(0.1, 1.5))
    assert times[len(times) // 2] == pytest.approx(0.1, rel=0.1)
    assert times[-len(times) // 40] > 1.0


def test_a_balancer_asks_its_servers_in_turn() -> None:
    server = Balancer([TokenBucket(1.0, 1), TokenBucket(1.0, 2)])
    assert [server.arrive(0.0).served for _ in range(6)] == [
        *(True, True, False),
        *(True, False, False),
    ]
    assert server.burst == 3


def test_a_balancer_that_chooses_by_chance_has_unlucky_servers() -> None:
    in_turn = Balancer([TokenBucket(5.0, 1) for _ in range(4)])
    by_chance = Balancer([TokenBucket(5.0, 1) for _ in range(4)], seed=1)
    counts = [
        sum(it.verdict is Verdict.REFUSED for _, it in outcomes(server, rate=19.0))
        for server in (in_turn, by_chance)
    ]
    assert counts[0] == 0
    assert counts[1] > 1000


def test_only_some_pages_speak_of_a_quota() -> None:
    server = QuotaOnPages(Server(10.0), {3}, Quota(4, 60.0))
    quotas = [it.quota for _, it in outcomes(server, seconds=1.0)]
    assert quotas[3] == Quota(4, 60.0)
    assert not any(quotas[:3] + quotas[4:])


def test_a_crawl_is_over_when_it_has_its_pages() -> None:
    report = crawl(Server(10.0), 200)
    assert report.pages is not None
    assert (report.served, report.pages.served) == (200, 200)
    assert report.seconds == pytest.approx(19.9)
    assert report.pages.served_99_at == pytest.approx(19.7)
    assert report.pages.last_served_at == pytest.approx(19.9)
    assert report.pages.share == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("failure", [refused(), unanswered, error()])
def test_a_page_that_failed_is_asked_for_again(failure: Failure) -> None:
    report = crawl(RandomFailures(Server(10.0), 0.05, failure, seed=1), 500)
    assert report.pages is not None
    assert (report.pages.served, report.pages.given_up) == (500, ())
    missed = report.refused + report.timed_out + report.failed
    assert missed == pytest.approx(25, abs=12)


def test_a_broken_page_is_tried_a_few_times_and_holds_up_nobody() -> None:
    report = crawl(BrokenPages(Server(10.0), {100}, refused()), 2000)
    assert report.pages is not None
    assert report.pages.served == 1999
    assert [page.page for page in report.pages.given_up] == [100]
    assert 4 <= report.pages.given_up[0].tries <= 8
    assert report.pages.last_served_at == pytest.approx(200.0, abs=2.0)
    # Nobody waits for the gaps any more when all else is done.
    assert report.seconds == pytest.approx(200.0, abs=2.0)


def test_a_broken_page_of_a_long_crawl_gets_ten_minutes() -> None:
    report = crawl(BrokenPages(Server(2.0), {100}, refused()), 3000, rate=2.0)
    assert report.pages is not None
    (page,) = report.pages.given_up
    assert page.seconds > 600.0
    assert page.tries == 9


def test_pages_that_fail_at_the_end_are_given_up_soon() -> None:
    report = crawl(BrokenPages(Server(10.0), {50, 99}, refused()), 100)
    assert report.pages is not None
    assert report.pages.served == 98
    assert all(page.tries >= 4 for page in report.pages.given_up)
    assert report.seconds < 120.0


def test_a_page_that_is_known_to_fail_says_nothing_about_the_host() -> None:
    client = Metronome(10.0)
    report = simulate(
        [client],
        BrokenPages(Server(10.0), {5}, refused()),
        network=STILL,
        pages=1000,
        persistence=Persistence(base=1.0, longest=300.0),
    )
    told = [outcome.verdict for _, outcome in client.outcomes]
    assert report.refused == told.count(Verdict.REFUSED) + told.count(Verdict.FAILED)
    assert told.count(Verdict.REFUSED) == 1


def test_an_outage_is_no_failure_of_the_pages() -> None:
    report = crawl(Downtime(Server(10.0), 0.0, 30.0, refused()), 1000)
    assert report.pages is not None
    assert (report.pages.served, report.pages.given_up) == (1000, ())
    assert report.seconds == pytest.approx(130.0, abs=35.0)


@pytest.mark.parametrize("law", ["CUBIC", "oracle"])
def test_every_host_of_the_benchmark_can_be_measured(law: str) -> None:
    for number, row in enumerate(ROWS):
        if not row.hours:
            report = Run(number, law, seed=1, hours=0.01).report()
            assert report.served or report.seconds == pytest.approx(36.0), row.name


def test_a_target_counts_what_its_host_is_there_for() -> None:
    row = next(row for row in ROWS if row.broken == 1 and row.bounds.max_rate == 10)
    number = ROWS.index(row)
    reports = [Run(number, "oracle", seed, hours=1.0).report() for seed in (0, 1)]
    worst = Worst.of(reports)
    assert worst.meets(row, Target(0.95, tries=4))
    assert not worst.meets(row, Target(0.95, tries=9))
    assert not worst.meets(row, Target(1.01))
    assert not worst.meets(replace(row, broken=0), Target(0.95))
