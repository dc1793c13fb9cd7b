"""A host with another limit for some of its paths, on virtual time."""

from __future__ import annotations

import math
import tracemalloc
from itertools import pairwise
from random import Random
from statistics import median
from typing import TYPE_CHECKING

import pytest

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.history import History
from scrapy_politeness.core.outcome import TOO_MANY_REQUESTS, Outcome, Verdict
from scrapy_politeness.core.parts import SEGMENT, Part
from scrapy_politeness.core.quota import Quota
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.simulator.servers import (
    FixedWindow,
    Reply,
    Server,
    SlidingWindow,
    TokenBucket,
)
from tests.support.parted_host import PartedHost

if TYPE_CHECKING:
    from collections.abc import Iterator

SEARCH = Part(SEGMENT, "search")


class _Unlucky(Server):
    """Refuses a random share of all requests."""

    def __init__(self, share: float) -> None:
        super().__init__(math.inf)
        self._share = share
        self._random = Random(1)

    def arrive(self, now: float, page: int = 0) -> Reply:
        return Reply(now, served=self._random.random() >= self._share)


def mixed(seed: int, searches: int, others: int) -> list[str]:
    paths = [f"/search/{n}" for n in range(searches)]
    paths += [f"/wiki/{n}" for n in range(others)]
    Random(seed).shuffle(paths)
    return paths


def test_both_parts_get_what_their_limits_allow() -> None:
    refused, found_after = [], []
    shares: dict[str, list[float]] = {"wiki": [], "search": []}
    for seed in range(5):
        limits = {"/search": SlidingWindow(1, 1), "/wiki": SlidingWindow(10, 1)}
        host = PartedHost(limits, seed=seed)
        host.crawl(mixed(seed, 182, 1818))
        [(split_at, name)] = host.splits
        assert name == "host search"
        assert len(host.refused) < 20
        # With one slot for both, it takes 3,000 s and more.
        assert host.served[-1][0] < 500
        refused.append(len(host.refused))
        found_after.append(split_at)
        for part, limit in (("wiki", 10.0), ("search", 1.0)):
            late = [at for at, path in host.served if part in path and at > 120]
            shares[part].append(len(late) / (late[-1] - 120) / limit)
    assert median(refused) <= 12
    assert median(found_after) < 120
    assert median(shares["wiki"]) > 0.85
    assert median(shares["search"]) > 0.85


def test_a_part_may_have_a_lower_limit_than_rates_that_are_learned() -> None:
    limits = {"/search": SlidingWindow(1, 20), "/wiki": SlidingWindow(10, 1)}
    host = PartedHost(limits, seed=1)
    host.crawl(mixed(1, 60, 1500))
    [(split_at, _)] = host.splits
    assert sum(at > split_at for at, path in host.refused if "search" in path) <= 2
    late = [at for at, path in host.served if "search" in path and at > split_at]
    assert len(late) / (late[-1] - split_at) > 0.85 / 20


def test_a_limit_that_was_found_is_tried_again_ever_less_often() -> None:
    """Limits change. This one does not."""
    slot = Slot("host search", Bounds(), spacing=0.0, concurrency=8)
    server, now = SlidingWindow(1, 1), 0.0
    slot.keep_to(1.0, 0.1, now)
    refused = []
    while now < 4 * 3600:
        now = max(now, slot.ready_at)
        permit = slot.take(now)
        is_served = server.arrive(now).served
        if not is_served:
            refused.append(now)
        verdict = Verdict.SERVED if is_served else Verdict.REFUSED
        slot.settle(permit, Outcome(verdict, TOO_MANY_REQUESTS), now + 0.01, 0.5)
    tried = [at for before, at in pairwise([0.0, *refused]) if at - before > 500]
    assert 600 < tried[0] < 900
    assert 2 <= len(tried) <= 8
    assert len(refused) < 30
    assert 0.85 < slot.rate < 1.0


def with_bad_luck(share: float, seed: int) -> Iterator[Outcome]:
    """Of a host without a limit."""
    random = Random(seed)
    while True:
        is_served = random.random() >= share
        yield Outcome(Verdict.SERVED if is_served else Verdict.REFUSED, "503")


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("share", [0.0, 0.01])
def test_a_limit_that_no_longer_holds_is_forgotten(share: float, seed: int) -> None:
    slot = Slot("host search", Bounds(), spacing=0.0, concurrency=8)
    slot.keep_to(1.0, 0.1, 0.0)
    outcomes = with_bad_luck(share, seed)
    now = 0.0
    rates: dict[int, float] = {}
    while now < 1300:
        now = max(now, slot.ready_at)
        slot.settle(slot.take(now), next(outcomes), now + 0.01, 0.5)
        hundred = int(now // 100)
        rates[hundred] = max(slot.rate, rates.get(hundred, 0.0))
    assert rates[5] < 1.0
    assert rates[12] == 10.0


def test_bad_luck_does_not_lower_a_limit_that_holds() -> None:
    slot = Slot("host search", Bounds(), spacing=0.0, concurrency=8)
    slot.keep_to(1.0, 0.1, 0.0)
    outcomes = with_bad_luck(0.01, seed=0)
    now, served = 0.0, 0
    while now < 600:
        now = max(now, slot.ready_at)
        outcome = next(outcomes)
        slot.settle(slot.take(now), outcome, now + 0.01, 0.5)
        served += outcome.verdict is Verdict.SERVED
    assert served > 0.8 * 600


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "limit", [SlidingWindow(5, 1), FixedWindow(3, 1), TokenBucket(2, 20)]
)
def test_a_limit_of_the_whole_host_splits_nothing(limit: Server, seed: int) -> None:
    host = PartedHost({"/": limit}, seed=seed)
    host.crawl(mixed(seed, 50, 450))
    assert host.refused
    assert not host.splits


@pytest.mark.parametrize("seed", [3, 4, 5])
@pytest.mark.parametrize("limit", [SlidingWindow(2, 1), FixedWindow(20, 10)])
def test_a_site_that_is_crawled_section_by_section_is_not_split(
    limit: Server, seed: int
) -> None:
    random = Random(seed)
    section, paths = 0, []
    for number in range(400):
        section = random.randrange(5) if random.random() < 0.15 else section
        paths.append(f"/section{section}/{number}")
    host = PartedHost({"/": limit}, seed=seed)
    host.crawl(paths)
    assert host.refused
    assert not host.splits


@pytest.mark.parametrize("share", [0.01, 0.03, 0.1])
def test_refusals_of_random_pages_split_nothing(share: float) -> None:
    host = PartedHost({"/": _Unlucky(share)})
    host.crawl(mixed(1, 50, 950))
    assert host.refused
    assert not host.splits


@pytest.mark.parametrize(
    ("server", "limit"),
    [
        (SlidingWindow(1, 1), 1.0),
        (SlidingWindow(1, 10), 0.1),
        (SlidingWindow(3, 5), 0.6),
        (SlidingWindow(20, 60), 1 / 3),
        (Server(1), None),  # no limit at all
    ],
)
def test_irregular_requests_show_the_limit(server: Server, limit: float | None) -> None:
    random, history, now = Random(2), History(), 0.0
    for _ in range(400):
        now += random.expovariate(1.5 * server.rate)
        is_served = server.arrive(now).served and (limit or random.random() > 0.1)
        verdict = Verdict.SERVED if is_served else Verdict.REFUSED
        history.add((SEARCH,), now, Outcome(verdict), now + 0.1)
        history.add((Part(SEGMENT, "wiki"),), now, Outcome(Verdict.SERVED), now + 0.1)
    found = history.limit_of(SEARCH)
    if limit is None:
        assert found is None
    else:
        assert found is not None
        assert math.isclose(found.rate, limit, rel_tol=0.02)


def test_bad_luck_does_not_hide_a_limit() -> None:
    random, history, now, server = Random(2), History(), 0.0, SlidingWindow(1, 1)
    for _ in range(100):
        now += random.expovariate(1.5)
        is_served = server.arrive(now).served and random.random() > 0.05
        verdict = Verdict.SERVED if is_served else Verdict.REFUSED
        history.add((SEARCH,), now, Outcome(verdict), now + 0.1)
    found = history.limit_of(SEARCH)
    assert found is not None
    assert found.rate == 1.0


def test_a_history_keeps_the_last_answers() -> None:
    history = History()
    for n in range(2500):
        verdict = Verdict.REFUSED if n % 25 == 0 else Verdict.SERVED
        history.add((SEARCH,), float(n), Outcome(verdict), n + 0.5)
    kept = history.of(SEARCH)
    assert 250 <= len(kept) <= 500
    assert kept[-1][0].sent_at == 2499
    assert history.of(SEARCH, without=True) == []


def test_a_history_begins_before_the_first_refusal() -> None:
    history = History()
    for n in range(100):
        history.add((SEARCH,), float(n), Outcome(Verdict.SERVED), n + 0.5)
    history.add((SEARCH,), 100.0, Outcome(Verdict.REFUSED), 100.5)
    sent_at = [permit.sent_at for permit, _, _ in history.of(SEARCH)]
    assert sent_at == [float(n) for n in range(60, 101)]


def test_a_history_is_small() -> None:
    """Whatever the names of the parts and the quotas on the pages are."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    history = History()
    for n in range(1000):
        names = [f"{n}{'x' * 60}", *(f"{n}{m}{'y' * 28}" for m in range(8))]
        parts = tuple(Part(SEGMENT, name) for name in names)
        verdict = Verdict.REFUSED if n % 20 == 0 else Verdict.SERVED
        quota = Quota(50.0, float(n), name=f"quota {n}")
        history.add(parts, float(n), Outcome(verdict, quota=quota), n + 0.5)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(history.of(SEARCH, without=True)) <= 500
    assert after - before < 300_000


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Verdict.REFUSED, "429", wait=1e9),
        Outcome(Verdict.SERVED, "redirect", wait=1e9, is_page=False),
    ],
)
def test_a_pause_that_is_learned_again_is_no_longer_than_allowed(
    outcome: Outcome,
) -> None:
    history = History()
    history.add((SEARCH,), 100.0, outcome, 100.5)
    slot = Slot("host", Bounds(longest_pause=600.0), spacing=0.0, concurrency=8)
    slot.relearn(history.of(SEARCH), 5.0, now=101.0)
    assert slot.paused_until == 700.5
