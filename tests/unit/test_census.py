"""What the add-on counts, and for how many slots."""

from __future__ import annotations

import pytest

from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.http.names import printable
from scrapy_politeness.observe.tally import MOST_TALLIED, Tallies

SERVED, REFUSED = Outcome(Verdict.SERVED), Outcome(Verdict.REFUSED)


def test_counts_of_many_hosts_are_kept_for_a_bounded_number() -> None:
    tallies = Tallies(lambda slot: 0)
    for number in range(20_000):
        tallies.settled(f"host{number}.example", SERVED)
        if number % 20 == 0:
            tallies.settled("busy.example", SERVED)
        if number == 7:
            tallies.settled("strict.example", REFUSED)
        assert len(tallies) <= 2 * MOST_TALLIED
    assert tallies.of("busy.example").served == 1000
    assert tallies.of("strict.example").refused == 1
    assert tallies.total.served == 21_000
    assert tallies.others + len(tallies) == 20_002


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("wiki.example.org", "wiki.example.org"),
        ("bücher.example", "bücher.example"),
        ("", "(no host)"),
        ("a\nWARNING: forged\x1b[31m\x00", r"a\nWARNING: forged\x1b[31m\x00"),
        ("\u202eelpmaxe", r"\u202eelpmaxe"),
        ("\ud800", r"\ud800"),
        ("x" * 300, "x" * 252 + "…"),
    ],
)
def test_names_are_shown_on_one_line(name: str, shown: str) -> None:
    assert printable(name) == shown
