"""Which part of a host a quota is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.quota import Quota
from scrapy_politeness.scheduling.splits import Splits

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    _Page: TypeAlias = tuple[str, Outcome]

HOST = "example.org"
SILENT = Outcome(Verdict.SERVED)
REDIRECT = Outcome(Verdict.SERVED, is_page=False)
REFUSED = Outcome(Verdict.REFUSED, "429")


def spent(name: str = "") -> Outcome:
    return Outcome(Verdict.SERVED, quota=Quota(0, 60, name=name))


def pages(segment: str, count: int, outcome: Outcome = SILENT) -> list[_Page]:
    return [(f"/{segment}/{n}", outcome) for n in range(count)]


def slot_after(answers: Iterable[_Page], last: str, name: str = "") -> str | None:
    """Return the slot that a page gets which states a quota after all these."""
    splits = Splits(10, None, is_applied=True)
    for n, (page, outcome) in enumerate(answers):
        url = f"http://{HOST}{page}"
        splits.answered(HOST, url, Permit(n, paced=True), outcome, n)
    quota = spent(name).quota
    assert quota is not None
    return splits.quota_slot(HOST, f"http://{HOST}{last}", quota)


WIKI = pages("wiki", 12)


@pytest.mark.parametrize(
    ("answers", "last"),
    [
        (WIKI, "/login"),
        (WIKI, "/login?next=/wiki"),
        (WIKI + pages("login", 9, spent()), "/login"),
        (WIKI + pages("login", 9, REDIRECT), "/login"),
        (WIKI + pages("login", 9, REFUSED), "/login"),
        (WIKI + pages("join", 1, spent()) + pages("mail", 1, spent()), "/login"),
    ],
)
def test_a_quota_that_no_other_part_states_is_that_parts(
    answers: list[_Page], last: str
) -> None:
    assert slot_after(answers, last) == f"{HOST} login"


def test_a_parameter_may_have_a_quota_too() -> None:
    assert slot_after(WIKI, "/wiki/9?search=x") == f"{HOST} ?search="


@pytest.mark.parametrize(
    "answers",
    [
        [],  # nothing is known
        WIKI[:6],
        pages("wiki", 40, spent()),  # all state it
        pages("wiki", 40, REDIRECT),  # what is in front of the host says nothing
        pages("wiki", 6) + pages("wiki", 40, REFUSED),
        [*WIKI, ("/login", SILENT)],  # the part does not always state it
        # It is the host's, and some pages come from a cache.
        [(f"/{n}", spent() if n % 4 else SILENT) for n in range(40)],
    ],
)
def test_a_quota_that_may_be_the_hosts_stays_the_hosts(answers: list[_Page]) -> None:
    assert slot_after(answers, "/login") is None


def test_quotas_of_other_names_are_other_quotas() -> None:
    core = pages("repos", 12, spent("core"))
    assert slot_after(core, "/search", "search") == f"{HOST} search"
    assert slot_after(core, "/search", "core") is None


def test_a_host_cannot_have_any_number_of_slots() -> None:
    splits = Splits(10, None, is_applied=True)
    slots = set()
    for n in range(100):
        for page, outcome in (*WIKI, (f"/s{n}", spent(f"quota {n}"))):
            url = f"http://{HOST}{page}"
            if outcome.quota is not None:
                slots.add(splits.quota_slot(HOST, url, outcome.quota))
            splits.answered(HOST, url, Permit(n, paced=True), outcome, n)
    assert len(slots - {None}) == 10


@given(
    st.lists(st.tuples(st.text("abc", max_size=2), st.none() | st.sampled_from("xy")))
)
def test_a_part_that_was_silent_never_has_a_quota(
    answers: list[tuple[str, str | None]],
) -> None:
    splits = Splits(10, None, is_applied=True)
    silent = set()
    for nth, (segment, name) in enumerate(answers):
        url = f"http://{HOST}/{segment}"
        outcome = SILENT if name is None else spent(name)
        if outcome.quota is not None:
            slot = splits.quota_slot(HOST, url, outcome.quota)
            assert slot is None or slot not in silent
        elif nth > 5:  # fewer are not looked at
            silent.add(f"{HOST} {segment}".lower())
        splits.answered(HOST, url, Permit(nth, paced=True), outcome, nth)
