"""Visit-time: the arithmetic, on virtual time."""

from __future__ import annotations

import pytest

from scrapy_politeness.core.hours import Hours

HOUR = 3600
DAY = 24 * HOUR
MIDNIGHT = 20_000 * DAY

MORNING = Hours(6 * HOUR, 8 * HOUR + 45 * 60)
NIGHT = Hours(22 * HOUR, 4 * HOUR)
FROM_MIDNIGHT = Hours(0, 3 * HOUR)
UNTIL_MIDNIGHT = Hours(20 * HOUR, 0)
ALWAYS = Hours(6 * HOUR, 6 * HOUR)


@pytest.mark.parametrize(
    ("hours", "time", "seconds"),
    [
        (MORNING, 0, 6 * HOUR),
        (MORNING, 6 * HOUR - 0.25, 0.25),
        (MORNING, 6 * HOUR, 0),
        (MORNING, 7 * HOUR, 0),
        (MORNING, 8.75 * HOUR - 1, 0),
        (MORNING, 8.75 * HOUR, 21.25 * HOUR),
        (MORNING, DAY - 1, 6 * HOUR + 1),
        (NIGHT, 21 * HOUR, HOUR),
        (NIGHT, 22 * HOUR, 0),
        (NIGHT, DAY - 1, 0),
        (NIGHT, 0, 0),
        (NIGHT, 4 * HOUR - 1, 0),
        (NIGHT, 4 * HOUR, 18 * HOUR),
        (FROM_MIDNIGHT, DAY - 1, 1),
        (FROM_MIDNIGHT, 0, 0),
        (FROM_MIDNIGHT, 3 * HOUR, 21 * HOUR),
        (UNTIL_MIDNIGHT, 0, 20 * HOUR),
        (UNTIL_MIDNIGHT, DAY - 1, 0),
        (ALWAYS, 0, 0),
        (ALWAYS, 6 * HOUR, 0),
        (ALWAYS, DAY - 1, 0),
    ],
)
def test_seconds_until_the_hours_begin(
    hours: Hours, time: float, seconds: float
) -> None:
    assert hours.begin_in(MIDNIGHT + time) == seconds


@pytest.mark.parametrize("hours", [MORNING, NIGHT, FROM_MIDNIGHT, UNTIL_MIDNIGHT])
def test_after_the_wait_they_have_begun(hours: Hours) -> None:
    for tenth in range(0, 10 * DAY, 1801):
        wall_now = MIDNIGHT + tenth / 10
        wait = hours.begin_in(wall_now)
        assert 0 <= wait < DAY
        # What a float cannot hold of a fraction of a second does not matter.
        assert hours.begin_in(wall_now + wait) < 0.001


def test_hours_are_told_as_on_a_clock() -> None:
    assert str(MORNING) == "from 06:00 to 08:45 UTC"
    assert str(UNTIL_MIDNIGHT) == "from 20:00 to 00:00 UTC"
