"""The example project's parts, without a crawl."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.http import TextResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from irowiki.ledger import Ledger

SOURCE = Path(__file__).parents[2] / "example_project"


@pytest.fixture(autouse=True)
def _example_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SOURCE))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    from irowiki.ledger import Ledger

    ledger = Ledger(tmp_path / "job" / "ledger.sqlite")
    yield ledger
    ledger.close()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"one\n", b"one\n"),
        (b"one\ntwo\n", b"one\ntwo\n"),
        (b"one\ntw", b"one\n"),
        (b"one", b""),
        (b"one\n" + b"x" * 200_000, b"one\n"),
        (b"x" * 200_000, b""),
        (b"x" * 200_000 + b"\ny", b"x" * 200_000 + b"\n"),
    ],
    ids=range(8),
)
def test_half_line_of_a_killed_crawl_is_cut_off(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    from irowiki.feeds import cut_half_line

    feed = tmp_path / "feed.jsonl"
    feed.write_bytes(before)

    cut_half_line(feed)

    assert feed.read_bytes() == after


SHA1 = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("title", "path"),
    [
        ("File:Puffling.png", "files/01/0123456789-Puffling.png"),
        ("Datei:Äpfel & Öl.svg", "files/01/0123456789-Äpfel & Öl.svg"),
        ("File:50% off?.png", "files/01/0123456789-50%25 off%3F.png"),
        ("File:../../etc/passwd", "files/01/0123456789-%2E.%2F..%2Fetc%2Fpasswd"),
        ("File:a\\b:c\x00.png", "files/01/0123456789-a%5Cb%3Ac%00.png"),
        ("File:" + "月" * 100 + ".png", "files/01/0123456789-" + "月" * 65 + ".png"),
    ],
)
def test_files_have_names_that_every_disk_can_hold(title: str, path: str) -> None:
    from irowiki.pipelines import file_path

    assert file_path(title, SHA1) == path


@pytest.mark.parametrize(
    ("api", "name"),
    [
        ("https://irowiki.org/w/api.php", "irowiki.org-w"),
        ("https://example.org/api.php", "example.org"),
        ("http://127.0.0.1:8080/a/b/api.php", "127.0.0.1-8080-a-b"),
        ("https://example.org/../api.php", "example.org"),
    ],
)
def test_each_wiki_has_a_folder(api: str, name: str) -> None:
    from irowiki.mediawiki import wiki_name

    assert wiki_name(api) == name


def answer(body: Any, asked_for: Any = None) -> Any:
    from irowiki.mediawiki import read_answer

    text = body if isinstance(body, str) else json.dumps(body)
    response = TextResponse("http://wiki.test/api.php", body=text, encoding="utf-8")
    return read_answer(response, asked_for)


@pytest.mark.parametrize(
    ("body", "message", "may_pass"),
    [
        ("<html>", "not JSON", True),
        ("[]", "not a JSON object", True),
        ({}, "neither complete nor continued", False),
        ({"error": {"code": "badvalue", "info": "No."}}, "badvalue: No.", False),
        (
            {"error": {"code": "internal_api_error_DBQueryError", "info": "Oh."}},
            "internal_api_error_DBQueryError: Oh.",
            True,
        ),
        ({"continue": {"apcontinue": "A"}}, "it does not advance", False),
    ],
)
def test_errors_are_not_taken_for_the_end_of_a_list(
    body: Any, message: str, may_pass: bool
) -> None:
    from irowiki.mediawiki import ApiError

    with pytest.raises(ApiError, match=message) as raised:
        answer(body, asked_for={"apcontinue": "A"})

    assert raised.value.may_pass is may_pass


def test_continued_answer_may_lack_what_is_not_new() -> None:
    rest = {"rvcontinue": "20240101000000|7", "continue": "||info|categories"}

    found = answer({"continue": rest})

    assert found.rest == rest
    assert found.pages == []


def test_ledger_tells_what_is_missing(ledger: Ledger) -> None:
    from irowiki.ledger import Tally, Work

    for number in range(5):
        assert ledger.begin(Work("page", str(number)))
        assert not ledger.begin(Work("page", str(number)))
    ledger.done(Work("page", "0"), parts=3)
    ledger.done(Work("page", "1"), parts=4)
    ledger.gone(Work("page", "2"))
    ledger.failed(Work("page", "3"), "HTTP 500")

    assert ledger.tally("page") == Tally(done=2, open=1, failed=1, gone=1, parts=7)
    assert ledger.gaps(9) == ["page 3 (HTTP 500)", "page 4 (not finished)"]
    assert not ledger.is_complete


def test_what_is_unfinished_is_tried_only_so_often(ledger: Ledger) -> None:
    from irowiki.ledger import Work

    lost, failing = Work("page", "1"), Work("file", "File:A.png")
    ledger.begin(lost)
    rounds = []
    for _ in range(3):
        ledger.failed(failing, "HTTP 404")
        rounds.append(sorted(ledger.take_unfinished(most_tries=2)))
    ledger.forget_tries()  # as the next run does

    assert rounds == [[failing, lost], [failing, lost], []]
    assert ledger.take_unfinished(most_tries=2)


def minutes(values: list[int]) -> Iterator[tuple[float, int]]:
    return ((60.0 * (number + 1), value) for number, value in enumerate(values))


@pytest.mark.parametrize("pauses", [False, True])
@pytest.mark.parametrize("long_histories", [False, True])
def test_estimate_is_right_within_a_factor_of_two(
    pauses: bool, long_histories: bool
) -> None:
    """A crawl of 10,000 pages that starts at 1/s, rises to 5/s in its first minute,
    and may be made to wait now and then, or has pages that take many requests."""
    from irowiki.progress import Estimate

    dice = Random(7)
    costs = [
        dice.choice([1] * 99 + [60]) if long_histories else 1 for _ in range(10_000)
    ]
    ends, now = [], 0.0
    for number, cost in enumerate(costs):
        rate = 1.0 if number < 10 else 2.0 if number < 20 else 5.0
        now += cost / rate
        if pauses and number % 700 == 699:
            now += 40.0
        ends.append(now)

    estimate = Estimate(0.0, 0)
    done = 0
    for minute in range(1, int(now // 60)):
        while ends[done] <= 60.0 * minute:
            done += 1
        guess = estimate.seconds_left(60.0 * minute, done, len(costs) - done)
        left = now - 60.0 * minute
        if minute >= 5 and left > 120:
            assert guess is not None
            assert left / 2 <= guess <= 2 * left


def test_estimate_follows_a_wiki_that_has_become_slow() -> None:
    from irowiki.progress import Estimate

    estimate = Estimate(0.0, 0)
    pages = [300 * (n + 1) for n in range(60)] + [18_000 + 30 * n for n in range(1, 7)]
    guesses = [
        estimate.seconds_left(now, done, 20_000 - done) for now, done in minutes(pages)
    ]

    assert guesses[59] == pytest.approx(400)
    assert guesses[65] == pytest.approx((20_000 - pages[65]) / 0.5)


def test_nothing_is_estimated_while_the_wiki_is_silent() -> None:
    from irowiki.progress import Estimate

    estimate = Estimate(0.0, 100)

    assert estimate.seconds_left(60.0, 100, 1000) is None
    assert estimate.seconds_left(120.0, 160, 940) == pytest.approx(1880)


def test_while_the_lists_are_read_the_wikis_own_counts_count(ledger: Ledger) -> None:
    from irowiki.ledger import Work
    from irowiki.summary import Counts

    ledger.note("statistics", json.dumps({"articles": 900, "images": 100}))
    ledger.done(Work("site"))
    ledger.begin(Work("namespace", "0"))
    for number in range(10):
        ledger.begin(Work("page", str(number)))
    before = Counts.read(ledger).left
    ledger.done(Work("namespace", "0"))

    assert before == 1000
    assert Counts.read(ledger).left == 10


def test_demo_faults_are_the_same_in_every_run() -> None:
    from irowiki.demo_wiki.faults import Fault, FaultPlan, Faults

    plan = FaultPlan(
        faults={3: Fault("429"), 5: Fault("slow", requests=2)},
        errors=0.1,
        broken={"pageids=7": 2},
        latency=0.06,
    )
    targets = [f"/api.php?pageids={number}" for number in range(7, 307)]
    faults = Faults(plan)
    first = [faults.next(target) for target in targets]
    again = Faults(plan)
    assert [again.next(target) for target in targets] == first
    by_plan = [None if kind == "503" else kind for kind in first]
    assert by_plan[:7] == ["broken", None, "429", None, "slow", "slow", None]
    assert 15 < first.count("503") < 45
    assert [faults.next(targets[0]) for _ in range(2)] == ["broken", None]
    latencies = sorted(faults.latency(target) for target in targets)
    assert latencies == sorted(again.latency(target) for target in targets)
    assert 0.05 < latencies[150] < 0.07
    assert 0.15 < latencies[-1] <= 0.5


def test_a_wiki_without_faults_has_none() -> None:
    from irowiki.demo_wiki.faults import NO_FAULTS, Faults

    faults = Faults(NO_FAULTS)
    targets = [f"/api.php?pageids={number}" for number in range(100)]
    assert {faults.next(target) for target in targets} == {None}
    assert {faults.latency(target) for target in targets} == {0.0}
