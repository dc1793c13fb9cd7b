"""Two days of crawling on virtual time: nothing wears out, and nothing piles up."""

from __future__ import annotations

from itertools import pairwise

import pytest

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.simulator import (
    FixedWindow,
    QuotaHeaders,
    RetryAfter,
    SlidingWindow,
    Steps,
    TokenBucket,
)
from tests.support.two_days import DAY, HOUR, Dated, Host, Outages, TwoDays

# Slow hosts, and so few requests: what could wear out does so by the hour.
BOUNDS = Bounds(start_rate=0.1, min_rate=0.005, max_rate=0.15)
FASTEST = 1 / BOUNDS.max_rate

# What the event loop is late by may be taken off the next interval.
FORGIVEN = 0.005


def hosts() -> dict[str, Host]:
    changing = Steps((0.0, 0.1), (6 * HOUR, 0.05), (15 * HOUR, 0.12), every=DAY)
    servers = {
        "unlimited": TokenBucket(100.0, 100),
        "limit changes": RetryAfter(TokenBucket(changing, 5)),
        "limit changes, silent": TokenBucket(changing, 5),
        "refuses at night": Outages(
            TokenBucket(0.1, 5), 2 * HOUR, 6 * HOUR, silent=False
        ),
        "away at night": Outages(TokenBucket(0.1, 5), 2 * HOUR, 6 * HOUR, silent=True),
        "daily quota": RetryAfter(FixedWindow(5_000, DAY, phase=8 * HOUR)),
        "daily quota, told": QuotaHeaders(FixedWindow(5_000, DAY, phase=8 * HOUR)),
        "dates": Dated(SlidingWindow(60, 600.0), has_date=True),
        "dates, wrong clock": Dated(SlidingWindow(60, 600.0), has_date=False),
    }
    return {
        name: Host(Slot(name, BOUNDS, spacing=0.0, concurrency=4), server)
        for name, server in servers.items()
    }


# Of what the host would have served, on each of the days.
SHARES = {
    "limit changes": 0.9,
    "limit changes, silent": 0.9,
    "refuses at night": 0.95,
    "away at night": 0.95,
    "daily quota": 0.95,
    "daily quota, told": 0.95,
    "dates": 0.95,
    # Each wait may be an hour too long.
    "dates, wrong clock": 0.3,
}


def test_two_days() -> None:
    """On a machine that has been up for 68 years."""
    crawled = hosts()
    TwoDays(list(crawled.values()), clock=2.0**31).run(2 * DAY)
    for name, host in crawled.items():
        assert_keeps_bounds(name, host)
        assert max(host.sizes) < 32_000, name
        first, second = (
            host.count(host.refused_at, start, start + DAY) for start in (0, DAY)
        )
        assert second <= 1.2 * first + 10, (name, first, second)
    assert len(crawled["unlimited"].sent_at) > 0.999 * 2 * DAY / FASTEST
    for name, least in SHARES.items():
        shares = [crawled[name].share(start, start + DAY) for start in (0, DAY)]
        assert min(shares) > least, (name, shares)


def assert_keeps_bounds(name: str, host: Host) -> None:
    closest = min(b - a for a, b in pairwise(host.sent_at))
    assert closest > FASTEST - FORGIVEN - 1e-6, name
    # Nor does what is forgiven add up.
    assert len(host.sent_at) <= 2 * DAY / FASTEST + 1, name


def test_who_wakes_up_after_hours_goes_on_as_before() -> None:
    host = hosts()["limit changes"]
    bedtime, morning = 16 * HOUR, 19 * HOUR
    TwoDays([host], clock=2.0**31, asleep=(bedtime, morning)).run(DAY)
    assert_keeps_bounds("asleep", host)
    assert host.count(host.sent_at, bedtime, morning) == 0
    assert host.share(morning, DAY) > 0.9
    assert host.count(host.refused_at, morning, DAY) < 40


@pytest.mark.parametrize("clock", [2.0**31, 2.0**36])
def test_it_does_not_matter_what_the_clock_says(clock: float) -> None:
    young, old = hosts()["dates"], hosts()["dates"]
    TwoDays([young], clock=0.0).run(6 * HOUR)
    TwoDays([old], clock=clock).run(6 * HOUR)
    # Rounding makes the two differ, and then each finds the limit in its own way.
    assert len(old.served_at) == pytest.approx(len(young.served_at), rel=0.02)
    assert len(old.refused_at) == pytest.approx(len(young.refused_at), abs=30)
