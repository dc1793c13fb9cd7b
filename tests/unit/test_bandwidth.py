"""Bandwidth, on virtual time: a link on which files arrive in small pieces."""

from __future__ import annotations

import math
from random import Random

import pytest

from scrapy_politeness.core.bandwidth import Bandwidth, Transfer

MB = 1_000_000
STEP = 0.02


def crawl(
    sizes: list[int], *, limit: float, speed: float, latency: float = 0.05
) -> list[tuple[float, int]]:
    """Return when how many bytes arrived, with up to eight files at once, each at that
    speed."""
    bandwidth = Bandwidth(limit)
    left = list(reversed(sizes))
    under_way: list[tuple[Transfer, float, list[int]]] = []
    arrived: list[tuple[float, int]] = []
    now = 0.0
    while left or under_way:
        while left and len(under_way) < 8 and bandwidth.ready_at <= now:
            transfer = Transfer([bandwidth], now)
            under_way.append((transfer, now + latency, [left.pop()]))
        for entry in list(under_way):
            transfer, begins_at, rest = entry
            if now < begins_at:
                continue
            size = min(rest[0], int(speed * STEP))
            rest[0] -= size
            transfer.receive(size, now)
            arrived.append((now, size))
            if not rest[0]:
                transfer.end(now)
                under_way.remove(entry)
        now += STEP
    return arrived


def most_in_any(window: float, arrived: list[tuple[float, int]]) -> int:
    first = total = most = 0
    for at, size in arrived:
        total += size
        while arrived[first][0] <= at - window:
            total -= arrived[first][1]
            first += 1
        most = max(most, total)
    return most


@pytest.mark.parametrize("speed", [100 * MB, 10 * MB, 3 * MB])
@pytest.mark.parametrize("seed", range(3))
def test_files_break_it_by_no_more_than_one_file(speed: float, seed: int) -> None:
    random = Random(seed)
    sizes = [random.randrange(1 * MB, 50 * MB) for _ in range(60)]
    arrived = crawl(sizes, limit=2 * MB, speed=speed)
    assert most_in_any(10, arrived) <= 20 * MB + max(sizes)
    # The last one need not be waited for.
    used = (sum(sizes) - sizes[-1]) / (arrived[-1][0] * 2 * MB)
    assert used > 0.9


def test_slow_connections_add_up_to_the_limit() -> None:
    sizes = [5 * MB] * 60
    arrived = crawl(sizes, limit=2 * MB, speed=0.5 * MB)
    assert most_in_any(10, arrived) <= 20 * MB + 5 * MB
    assert sum(sizes) / (arrived[-1][0] * 2 * MB) > 0.85


def test_many_small_pages_are_under_way_at_once() -> None:
    sizes = [20_000] * 2000
    arrived = crawl(sizes, limit=1 * MB, speed=100 * MB, latency=0.1)
    assert most_in_any(10, arrived) <= 10 * MB + 20_000
    assert sum(sizes) / (arrived[-1][0] * MB) > 0.9


def test_what_never_arrives_costs_nothing() -> None:
    bandwidth = Bandwidth(1 * MB)
    for nth in range(10):
        Transfer([bandwidth], nth).end(nth + 0.5)
    assert bandwidth.ready_at == -math.inf


def test_an_answer_counts_wherever_it_belongs() -> None:
    own, overall = Bandwidth(1 * MB), Bandwidth(2 * MB)
    transfer = Transfer([own, overall], 0.0)
    transfer.receive(10 * MB, 1.0)
    transfer.end(1.0)
    assert own.ready_at > overall.ready_at > 1.0
