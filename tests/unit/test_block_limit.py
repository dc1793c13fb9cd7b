"""The rate above which a host shuts us out."""

from __future__ import annotations

import math

import pytest

from scrapy_politeness.core.block_limit import BlockLimit
from tests.benchmarks.blocks import ROWS, Row, measure


def test_a_block_at_the_believed_limit_keeps_the_rate_below_for_long() -> None:
    limit = BlockLimit()
    limit.began(1.0, 1.1, 0.0)
    limit.ended(60.0)
    assert 0.9 < limit.rate < 1
    limit.pass_time(5000.0)
    assert limit.rate < 1
    limit.pass_time(7000.0)
    assert limit.rate == math.inf


@pytest.mark.parametrize(
    ("rate", "believed"), [(10.0, None), (None, 10.0), (1.0, 10.0), (10.0, 1.0)]
)
def test_a_block_at_any_other_rate_says_nothing(
    rate: float | None, believed: float | None
) -> None:
    limit = BlockLimit()
    limit.began(rate, believed, 0.0)
    assert limit.rate == math.inf


def test_blocks_that_go_on_have_nothing_to_do_with_the_rate() -> None:
    limit = BlockLimit()
    for at in range(0, 4000, 1000):
        limit.began(1.0, 1.0, at)
        limit.ended(at + 60.0)
        assert limit.rate == pytest.approx(0.93)
    limit.began(1.0, 1.0, 4000)
    assert limit.rate == math.inf


def test_blocks_after_as_many_pages_show_the_limit() -> None:
    limit = BlockLimit()
    for began_at, pages in ((10.0, 15), (80.0, 14)):
        for _ in range(pages):
            limit.served()
        limit.began(None, None, began_at)
        limit.ended(began_at + 60.0)
    assert limit.rate == pytest.approx(15 / 60, rel=0.1)


def test_blocks_after_more_or_fewer_pages_show_nothing() -> None:
    limit = BlockLimit()
    for began_at, pages in ((10.0, 15), (80.0, 40), (200.0, 3), (300.0, 3)):
        for _ in range(pages):
            limit.served()
        limit.began(None, None, began_at)
        limit.ended(began_at + 60.0)
    assert limit.rate == math.inf


@pytest.mark.parametrize("seed", [0, 15])
@pytest.mark.parametrize(
    "row", [row for row in ROWS if "minute" in row.name], ids=lambda row: row.name
)
def test_a_host_that_shuts_us_out_for_a_minute_does_so_rarely(
    row: Row, seed: int
) -> None:
    score = measure(row, seed)
    assert score.lost == 0
    assert score.blocks <= 3
    assert score.back < 60
