"""RateLimit headers: what they say, and what the governor makes of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.quota import Quota
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.http.quota_headers import read_quota
from scrapy_politeness.simulator import (
    FixedWindow,
    QuotaHeaders,
    SlidingWindow,
    Steps,
    TokenBucket,
    simulate,
)

if TYPE_CHECKING:
    from scrapy_politeness.simulator.servers import CountingServer

NOW = 784111777.0
DATE = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.parametrize(
    ("headers", "quota"),
    [
        (
            {
                "RateLimit": '"default";r=50;t=30',
                "RateLimit-Policy": '"default";q=100;w=60',
            },
            Quota(50, 30, 100, 60),
        ),
        ({"RateLimit": '"default";r=50;t=30'}, Quota(50, 30)),
        (
            {"RateLimit": "default;r=5", "RateLimit-Policy": "default;q=10;w=60"},
            Quota(5, 60, 10, 60),
        ),
        (
            {
                "RateLimit": '"burst";r=9;t=1, "daily";r=100;t=3600',
                "RateLimit-Policy": '"burst";q=10;w=1,"daily";q=1000;w=86400',
            },
            Quota(100, 3600, 1000, 86400),
        ),
        ({"RateLimit": "limit=100, remaining=50, reset=30"}, Quota(50, 30)),
        (
            {
                "RateLimit-Limit": "100, 100;w=60",
                "RateLimit-Remaining": "50",
                "RateLimit-Reset": "30",
            },
            Quota(50, 30, 100, 60),
        ),
        (
            {"X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "12.5"},
            Quota(7, 12.5),
        ),
        (
            {
                "X-RateLimit-Limit": "60",
                "X-RateLimit-Remaining": "7",
                "X-RateLimit-Reset": str(int(NOW) + 90),
            },
            Quota(7, 90),
        ),
        (
            {
                "X-Rate-Limit-Remaining": "7",
                "X-Rate-Limit-Reset": str(int(NOW + 4000) * 1000),
                "Date": "Sun, 06 Nov 1994 09:49:37 GMT",
            },
            Quota(7, 400),
        ),
        (
            {
                "RateLimit": '"bytes";r=5;t=1, "default";r=50;t=30',
                "RateLimit-Policy": '"bytes";q=9;w=1;qu="content-bytes";pk=:YQ==:, '
                '"default";q=100;w=60;qu="requests"',
            },
            Quota(50, 30, 100, 60),
        ),
        (
            {
                "RateLimit": '"bytes";r=5;t=1',
                "RateLimit-Policy": '"bytes";q=9;w=1;qu="content-bytes"',
                "X-RateLimit-Remaining": "7",
                "X-RateLimit-Reset": "12.5",
            },
            Quota(7, 12.5),
        ),
        (
            {
                "RateLimit-Limit": "100",
                "RateLimit-Policy": "100;w=60, 5000;w=3600",
                "RateLimit-Remaining": "50",
                "RateLimit-Reset": "30",
            },
            Quota(50, 30, 100, 60),
        ),
        (
            {
                "X-RateLimit-Limit": "5",
                "X-RateLimit-Remaining": "4",
                "X-RateLimit-Reset": "784111780.470",
                "X-RateLimit-Reset-After": "2.470",
            },
            Quota(4, 2.47),
        ),
        (
            {
                "X-RateLimit-Remaining": "7",
                "X-RateLimit-Reset": "1994-11-06T08:50:07Z",
            },
            Quota(7, 30),
        ),
        (
            {
                "X-RateLimit-Remaining": "7",
                "X-RateLimit-Reset": "Sun, 06 Nov 1994 08:50:07 GMT",
            },
            Quota(7, 30),
        ),
        ({"X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "6m0s"}, Quota(7, 360)),
        (
            {
                "X-RateLimit-Limit-Requests": "60",
                "X-RateLimit-Remaining-Requests": "59",
                "X-RateLimit-Reset-Requests": "1m2.5s",
                "X-RateLimit-Remaining-Tokens": "0",
                "X-RateLimit-Reset-Tokens": "6h",
            },
            Quota(59, 62.5),
        ),
        (
            {"X-Rate-Limit-Limit": "50", "X-Rate-Limit-Interval": "1s"},
            Quota(50, 1, 50, 1),
        ),
        ({"X-Rate-Limit-Limit": "50", "X-Rate-Limit-Interval": "0s"}, None),
        (
            {
                "X-RateLimit-Limit-Minute": "60",
                "X-RateLimit-Remaining-Minute": "20",
                "X-RateLimit-Limit-Day": "7200",
                "X-RateLimit-Remaining-Day": "7000",
                "Date": DATE,
            },
            Quota(7000, 86400 - (8 * 3600 + 49 * 60 + 37), 7200, 86400),
        ),
        ({"X-RateLimit-Remaining": "7"}, None),
        ({"X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "6m0"}, None),
        (
            {"X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "9" * 9 + "h"},
            None,
        ),
        ({"X-RateLimit-Remaining": "-7", "X-RateLimit-Reset": "5"}, None),
        ({"X-RateLimit-Remaining": "many", "X-RateLimit-Reset": "soon"}, None),
        ({"RateLimit": '"default";r=nan;t=inf'}, None),
        ({"RateLimit": '"default";r=' + "9" * 400 + ";t=1"}, None),
        ({"RateLimit": '"' * 100_000}, None),
        ({"RateLimit": ";;;,,,===" * 10_000}, None),
        (
            {"X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "1m" * 500 + "1.1.1m"},
            None,
        ),
        ({"RateLimit": ""}, None),
        # What nobody here can count hides nothing that can be counted.
        (
            {
                "RateLimit": '"default";r=900;t=30',
                "RateLimit-Policy": '"default";q=1000;w=60;qu="content-bytes"',
                "X-RateLimit-Remaining": "7",
                "X-RateLimit-Reset": "30",
            },
            Quota(7, 30),
        ),
        ({}, None),
    ],
)
def test_headers(headers: dict[str, str], quota: Quota | None) -> None:
    assert read_quota(headers.get, wall_now=NOW) == quota


@pytest.mark.parametrize("text", [" ", "a ", "a;", "a; ", "limit ", '"a', "1m"])
def test_no_header_takes_long_to_read(text: str) -> None:
    hostile = f"a{text[0]}{text[-1] * 60_000}!", text * 30_000
    for value in hostile:
        began_at = time.process_time()
        for name in ("RateLimit", "RateLimit-Limit", "X-RateLimit-Reset"):
            headers = {"RateLimit-Policy": value, "X-RateLimit-Remaining": "7"}
            read_quota({**headers, name: value}.get, wall_now=NOW)
        assert time.process_time() - began_at < 0.05


@pytest.mark.parametrize("verdict", [Verdict.SERVED, Verdict.FAILED])
def test_nothing_is_sent_when_nothing_is_left_but_not_for_a_year(
    verdict: Verdict,
) -> None:
    slot = Slot("example.org", Bounds(), spacing=0.0, concurrency=1)
    for reset, held in ((60.0, 60.0), (1e7, 3600.0)):
        outcome = Outcome(verdict, quota=Quota(0, reset))
        slot.settle(slot.take(0.0), outcome, 0.0, 0.0)
        assert slot.paused_until == held


STEPS = Steps((0.0, 4.0), (1200.0, 2.0), (2400.0, 6.0))


@pytest.mark.parametrize(
    "server",
    [
        TokenBucket(20.0, 10),
        TokenBucket(4.0, 20),
        TokenBucket(1.0, 5),
        TokenBucket(0.2, 3),
        TokenBucket(STEPS, 5),
        FixedWindow(120, 60.0, phase=20.0),
        FixedWindow(200, 10.0, phase=3.0),
        SlidingWindow(120, 60.0),
        SlidingWindow(120, 60.0, counts_refused=True),
    ],
)
def test_a_host_that_tells_its_limit_is_used_fully_and_never_refuses(
    server: CountingServer,
) -> None:
    bounds = Bounds(start_rate=1.0, max_rate=100.0)
    slot = Slot("example.org", bounds, spacing=0.0, concurrency=16)
    report = simulate([slot], QuotaHeaders(server))
    assert report.efficiency >= 0.98
    assert report.refusals_per_100 <= 0.1


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"RateLimit": '"daily";r=5;t=9, "burst";r=1;t=1'}, "daily,burst"),
        ({"RateLimit": "limit=100, remaining=50, reset=30"}, ""),
        ({"RateLimit-Remaining": "1", "RateLimit-Reset": "9"}, ""),
        (
            {
                "X-RateLimit-Limit": "30",
                "X-RateLimit-Remaining": "1",
                "X-RateLimit-Reset": "9",
            },
            "30",
        ),
        (
            {
                "X-RateLimit-Limit": "30",
                "X-RateLimit-Remaining": "1",
                "X-RateLimit-Reset": "9",
                "X-RateLimit-Resource": "search",
            },
            "search",
        ),
        (
            {
                "X-RateLimit-Remaining": "1",
                "X-RateLimit-Reset-After": "9",
                "X-RateLimit-Bucket": 1000 * "a",
            },
            100 * "a",
        ),
        (
            {
                "X-RateLimit-Remaining-Minute": "1",
                "X-RateLimit-Limit-Minute": "5",
                "X-RateLimit-Remaining-Day": "99",
                "X-RateLimit-Limit-Day": "100",
            },
            "5,100",
        ),
    ],
)
def test_the_names_of_quotas(headers: dict[str, str], name: str) -> None:
    quota = read_quota(headers.get, wall_now=NOW)
    assert quota is not None
    assert quota.name == name
