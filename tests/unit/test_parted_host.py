"""A host with another limit for some of its paths, on virtual time."""

from __future__ import annotations

import math
from random import Random

import pytest

from scrapy_politeness.core.governor.control_law import Bounds
from scrapy_politeness.core.history import History
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.parts import SEGMENT, Part
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.simulator.servers import (
    FixedWindow,
    Reply,
    Server,
    SlidingWindow,
    TokenBucket,
)
from tests.support.parted_host import PartedHost

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


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_both_parts_get_what_their_limits_allow(seed: int) -> None:
    limits = {"/search": SlidingWindow(1, 1), "/wiki": SlidingWindow(10, 1)}
    host = PartedHost(limits, seed=seed)
    host.crawl(mixed(seed, 182, 1818))
    [(split_at, name)] = host.splits
    assert name == "host search"
    assert split_at < 150
    assert len(host.refused) < 20
    rest = [at for at, path in host.served if "wiki" in path and at > 150]
    assert len(rest) / (rest[-1] - 150) > 8
    # With one slot for both, it takes 3,000 s and more.
    assert host.served[-1][0] < 1000


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


def test_a_history_keeps_the_last_answers() -> None:
    history = History()
    for n in range(2500):
        history.add((SEARCH,), float(n), Outcome(Verdict.SERVED), n + 0.5)
    kept = history.of(SEARCH)
    assert 500 <= len(kept) <= 1000
    assert kept[-1][0].sent_at == 2499
    assert history.of(SEARCH, without=True) == []


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
