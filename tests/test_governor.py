"""The law against model servers, one simulated hour each from a cold start."""

from __future__ import annotations

import pytest

from scrapy_politeness.core.governor import Bounds
from scrapy_politeness.core.scope import Scope
from scrapy_politeness.simulator import (
    FixedWindow,
    Report,
    RetryAfter,
    SlidingWindow,
    Steps,
    TokenBucket,
    simulate,
)
from scrapy_politeness.simulator.servers import Server

BOUNDS = Bounds(start_rate=1.0, max_rate=100.0)

STEPS = Steps((0.0, 4.0), (1200.0, 2.0), (2400.0, 6.0))


def run(server: Server, seed: int) -> Report:
    scope = Scope("example.org", BOUNDS, spacing=0.0, concurrency=16)
    return simulate([scope], server, seed=seed)


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize(
    ("server", "efficiency", "refusals_per_100"),
    [
        (lambda: TokenBucket(20.0, 10), 0.97, 0.5),
        (lambda: TokenBucket(4.0, 20), 0.97, 0.5),
        (lambda: TokenBucket(1.0, 5), 0.97, 0.5),
        (lambda: TokenBucket(0.2, 3), 0.97, 1.5),
        (lambda: FixedWindow(120, 60.0, phase=12.0), 0.96, 0.5),
        (lambda: FixedWindow(200, 10.0, phase=2.0), 0.96, 0.5),
        (lambda: SlidingWindow(120, 60.0), 0.96, 0.5),
        (lambda: SlidingWindow(20, 1.0), 0.95, 0.5),
        (lambda: SlidingWindow(120, 60.0, counts_refused=True), 0.94, 0.5),
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
        "sliding, all count",
        "steps",
    ],
)
def test_it_settles_just_under_the_limit(
    server: object, efficiency: float, refusals_per_100: float, seed: int
) -> None:
    assert callable(server)
    report = run(RetryAfter(server()), seed)
    assert report.efficiency >= efficiency
    assert report.refusals_per_100 <= refusals_per_100


@pytest.mark.parametrize("server", [TokenBucket(20.0, 10), FixedWindow(200, 10.0)])
def test_the_limit_is_reached_quickly_from_a_slow_start(server: Server) -> None:
    report = run(server, seed=1)
    assert report.reached_at is not None
    assert report.reached_at <= 40.0
    assert report.refused_until_reached <= 5
