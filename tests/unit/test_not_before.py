"""When a request with a time of its own may be sent."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_politeness.storage.marks import Placement, Where
from scrapy_politeness.storage.not_before import forget_time, held_until
from tests.support.ready import page, urls

if TYPE_CHECKING:
    from tests.unit.test_priority_queue import Make

from tests.unit.test_priority_queue import make_queue

__all__ = ["make_queue"]

NOW = 1_800_000_000.0
THEN = datetime.fromtimestamp(NOW, timezone.utc)
KEY = "politeness_not_before"


@pytest.mark.parametrize(
    ("meta", "seconds"),
    [
        ({KEY: 5}, 5.0),
        ({KEY: 0.25}, 0.25),
        ({KEY: 0}, None),
        ({KEY: -5}, None),
        ({KEY: None}, None),
        ({KEY: THEN + timedelta(minutes=10)}, 600.0),
        ({KEY: (THEN + timedelta(hours=1)).astimezone(timezone(timedelta(hours=9)))},
            3600.0),
        ({KEY: THEN - timedelta(days=1)}, None),
        ({KEY: datetime.max.replace(tzinfo=timezone.utc)}, 1e9),
        ({KEY: 1e300}, 1e9),
        ({"delay": 5.0}, 5.0),
        ({"delay": 5.0, KEY: 7}, 7.0),
        ({"delay": "slow"}, None),
        ({"delay": float("nan")}, None),
        ({"delay": True}, None),
    ],
)  # fmt: skip
def test_how_long_it_waits(meta: dict[str, Any], seconds: float | None) -> None:
    expected = None if seconds is None else Placement(Where.HELD, seconds)
    assert held_until(page("h/1", meta=meta), NOW) == expected


@pytest.mark.parametrize(
    "value",
    [
        *("5", True, float("inf"), float("nan"), 10**400, timedelta(1), [], object()),
        datetime(2027, 1, 1),
    ],
)
def test_what_is_no_time(value: object) -> None:
    with pytest.raises(ValueError, match="time zone"):
        held_until(page("h/1", meta={KEY: value}), NOW)


def test_once_it_has_come_the_time_is_forgotten() -> None:
    request = page("h/1", meta={KEY: 5, "delay": 1, "mine": 2})
    forget_time(request)
    assert request.meta == {"mine": 2}
    request = page("h/1", meta={"delay": "somebody else's"})
    forget_time(request)
    assert request.meta == {"delay": "somebody else's"}


def test_it_waits_in_the_queue_and_the_others_do_not(make_queue: Make) -> None:
    queue = make_queue()
    queue.push(page("h/later", meta={KEY: 3600}))
    queue.push(page("h/now", meta={KEY: -1}))
    queue.push(page("g/now"))
    assert len(queue) == 3
    assert sorted(urls(queue)) == ["g/now", "h/now"]
    assert len(queue) == 1
    assert queue.pop() is None
