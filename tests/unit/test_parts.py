"""Which part of a host refusals fall on: what is found, and what never is."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from scrapy_politeness.core.history import History
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.parts import PARAMETER, SEGMENT, Found, Part, PartEvidence
from scrapy_politeness.scheduling.splits import Splits, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable

SEARCH = Part(SEGMENT, "search")


def watch(
    pages: list[str], is_refused: Callable[[int, str], bool]
) -> tuple[Found | None, int]:
    """Return what is found, and after how many refusals."""
    evidence = PartEvidence()
    history = History()
    refusals = 0
    for nth, page in enumerate(pages):
        parts = parts_of(f"http://host{page}")
        refused = is_refused(nth, page)
        verdict = Verdict.REFUSED if refused else Verdict.SERVED
        history.add(parts, float(nth), Outcome(verdict), nth + 0.5)
        if not refused:
            evidence.served(parts)
            continue
        refusals += 1
        found = evidence.refused(parts, history)
        if found is not None:
            return found, refusals
    return None, refusals


def mixed(random: Random, share: float, count: int = 2000) -> list[str]:
    return [
        f"/search/{n}" if random.random() < share else f"/wiki/{n}?id={n}"
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("share", "most"), [(0.02, 6), (0.05, 9), (0.1, 8), (0.3, 16), (0.5, 30)]
)
def test_a_part_with_a_limit_of_its_own_is_found(share: float, most: int) -> None:
    random = Random(1)
    pages = mixed(random, share)
    found, refusals = watch(
        pages, lambda nth, page: "search" in page and random.random() < 0.5
    )
    assert found is not None
    assert found.part == SEARCH
    assert found.refused == found.all_refused == refusals <= most
    assert found.asked >= 12


def test_it_is_found_among_failures_by_chance() -> None:
    random = Random(1)
    found, refusals = watch(
        mixed(random, 0.1, 5000),
        lambda nth, page: random.random() < (0.3 if "search" in page else 0.01),
    )
    assert found is not None
    assert found.part == SEARCH
    assert refusals < 40


def test_a_parameter_of_the_query_makes_a_part() -> None:
    pages = [
        f"/w/index.php?title={n}" + ("&action=history" if n % 8 == 0 else "")
        for n in range(1000)
    ]
    found, _ = watch(pages, lambda nth, page: "action" in page and nth % 16 == 0)
    assert found is not None
    assert found.part == Part(PARAMETER, "action")


@pytest.mark.parametrize("seed", range(6))
def test_refusals_of_random_pages_split_nothing(seed: int) -> None:
    random = Random(seed)
    sections = [f"/{name}/" for name in "abcdefghij"]
    pages = [
        random.choices(sections, range(1, 11))[0] + f"{n}?{random.choice('xyz')}=1"
        for n in range(20_000)
    ]
    found, refusals = watch(pages, lambda nth, page: random.random() < 0.05)
    assert refusals > 900
    assert found is None


def test_a_crawl_of_one_section_after_the_other_splits_nothing() -> None:
    """Refused while one section is crawled, and not before."""
    random = Random(1)
    pages = [f"/{section}/{n}" for section in "abcdefgh" for n in range(500)]
    found, _ = watch(pages, lambda nth, page: nth > 2000 and random.random() < 0.1)
    assert found is None


def test_a_limiter_of_the_whole_host_splits_nothing() -> None:
    """Every fiftieth request is one too many, and sections come in small batches."""
    pages = [f"/{'abc'[n // 7 % 3]}/{n}" for n in range(20_000)]
    found, _ = watch(pages, lambda nth, page: nth % 50 == 49)
    assert found is None


def test_what_is_rare_is_not_split_off() -> None:
    pages = [f"/wiki/{n}" if n % 200 else f"/search/{n}" for n in range(2000)]
    found, refusals = watch(pages, lambda nth, page: "search" in page)
    assert (found, refusals) == (None, 10)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://h/", []),
        ("http://h", []),
        ("http://h/a/b?c=1&d=2&c=3", ["a", "c", "d"]),
        ("http://h//a?secret-token", ["a"]),
        ("http://h/a b/", []),
        ("http://h/a?b%0ac=1", ["a"]),
        ("http://[", []),
        ("http://h/?" + "&".join(f"p{n}=1" for n in range(99)), [*"01234567"]),
    ],
)
def test_parts_of_a_page(url: str, parts: list[str]) -> None:
    found = [part.value.removeprefix("p") for part in parts_of(url)]
    assert found == parts


def test_a_part_may_be_forgotten_when_it_is_refused() -> None:
    evidence = PartEvidence()
    for n in range(200):
        evidence.served((Part(SEGMENT, f"s{n}"),))
    parts = Part(SEGMENT, "s0"), Part(PARAMETER, "new")
    assert evidence.refused(parts, History()) is None


def test_without_a_split_there_is_no_slot() -> None:
    splits = Splits(10, None, is_applied=True)
    assert not splits
    assert splits.slot_for("host", "http://host/search/1") is None


def test_a_part_that_is_asked_for_again_is_not_forgotten() -> None:
    evidence = PartEvidence()
    for nth in range(300):
        parts = (Part(SEGMENT, f"page-{nth}"), Part(PARAMETER, "sort"))
        assert evidence.refused(parts, History()) is None
