"""How the benchmark against other crawlers judges a server's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.rivals.judge import Arrival, judge, read_log

if TYPE_CHECKING:
    from pathlib import Path


def test_a_log_is_read_whatever_wrote_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert read_log(log) == []
    log.write_text("12.5 200 /page/1 -\n13.0 429 /page/2 2\n")
    assert read_log(log) == [
        Arrival(12.5, 200, "/page/1"),
        Arrival(13.0, 429, "/page/2", 2.0),
    ]


def pages(*times: float) -> list[Arrival]:
    return [Arrival(at, 200, f"/page/{number}") for number, at in enumerate(times)]


@pytest.mark.parametrize(
    ("arrivals", "share"),
    [
        ([], 0.0),
        (pages(0, 1, 2, 3), 1.0),
        (pages(0, 2, 4, 6), 0.5),
        (pages(0, 1), 0.5),
        # Faster than possible: it had a burst.
        (pages(0, 0, 0, 0.1), 1.0),
        # The same page twice is one page.
        ([*pages(0, 1, 2), Arrival(3, 200, "/page/0")], 0.75),
        ([Arrival(0, 200, "/robots.txt"), *pages(10, 11, 12, 13)], 1.0),
    ],
)
def test_share_of_the_fastest_crawl(arrivals: list[Arrival], share: float) -> None:
    score = judge(arrivals, wanted=4, fastest=3.0, cpu=0.0)
    assert score.share == pytest.approx(share)


def test_refusals_and_what_comes_in_spite_of_retry_after() -> None:
    refusal = Arrival(10.0, 429, "/page/1", 2.0)
    late = [Arrival(at, 429, "/page/2", 2.0) for at in (10.05, 11.0, 12.9, 15.0)]
    score = judge([*pages(9.0), refusal, *late], wanted=4, fastest=3.0, cpu=0.0)
    # The first was on its way, and each refusal prolongs the silence.
    assert score.impatient == 2
    assert score.refused == 5
    assert score.refused_per_100 == pytest.approx(500 / 6)
    assert score.gap == pytest.approx(0.05)
