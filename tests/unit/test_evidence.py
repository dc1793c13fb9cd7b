"""What the report says about a host's limit, and why."""

from __future__ import annotations

import pytest

from scrapy_politeness.observe.evidence import Evidence, Responses, explain


def responses(*parts: tuple[float, int, int]) -> Responses:
    """For each part: requests per second, how many were served and refused."""
    found = Responses()
    for rate, served, refused in parts:
        for number in range(served + refused + 40):
            found.sent(1 / rate)
            # Until the average has followed.
            if number >= 40:
                found.settled(refused=number >= 40 + served)
    return found


def test_responses_are_counted_by_the_rate_at_which_requests_were_sent() -> None:
    found = responses((0.03, 2, 0), (1.5, 10, 0), (7.0, 30, 1), (14.0, 5, 5))
    assert found.evidence() == [
        Evidence(0.02, 0.05, 2, 0),
        Evidence(1.0, 2.0, 10, 0),
        Evidence(5.0, 10.0, 30, 1),
        Evidence(10.0, 20.0, 5, 5),
    ]


def test_nothing_is_known_from_the_first_request_alone() -> None:
    found = Responses()
    found.settled(refused=True)
    assert found.evidence() == []


@pytest.mark.parametrize("rate", [1e-9, 1e-4, 0.3, 5.0, 9.999, 1e4, 1e12])
def test_every_rate_has_its_place(rate: float) -> None:
    [known] = responses((rate, 1, 0)).evidence()
    assert known.low < known.high
    assert known.low <= min(max(rate, 1e-4), 1e4) * 1.001
    assert min(max(rate, 1e-4), 1e4) <= known.high * 1.001


@pytest.mark.parametrize(
    ("parts", "figures", "text"),
    [
        ([], {}, ""),
        (
            [(1.5, 30, 0), (7.0, 70, 0)],
            {},
            "no limit found: all 100 served, at up to 10/s",
        ),
        (
            [(1.5, 30, 0), (7.0, 69, 1), (12.0, 8, 4)],
            {"ceiling": 9.7},
            "allows about 9.7/s: refused 0 of 30 at 1 to 2/s; 1 of 70 at 5 to 10/s; "
            "4 of 12 at 10 to 20/s",
        ),
        (
            [(7.0, 99, 1)],
            {"bad_luck": 0.01},
            "about 1 % fail whatever the rate; no limit found: refused 1 of 100 at "
            "5 to 10/s",
        ),
        (
            [(7.0, 98, 2)],
            {"ceiling": 9.7, "bad_luck": 0.02},
            "allows about 9.7/s, and about 2 % fail whatever the rate: refused 2 of "
            "100 at 5 to 10/s",
        ),
        ([(3.0, 9, 1)], {}, "no limit known yet: refused 1 of 10 at 2 to 5/s"),
    ],
)
def test_a_belief_comes_with_its_reason(
    parts: list[tuple[float, int, int]], figures: dict[str, float], text: str
) -> None:
    assert explain(figures, responses(*parts).evidence()) == text
