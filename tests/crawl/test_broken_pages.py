"""One page fails, its host is fine: what the site sees of that."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawl import crawl, start_crawl
from tests.support.settings import NO_ROBOTS
from tests.support.site import Answer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.crawl import Crawl
    from tests.support.site import Site

HOST = "127.0.0.1"

BROKEN = "/page/30"

# Slow machines send late, never early.
LATE = 0.4
SLOW = 1.2

FIFO = {
    "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
    "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
}


def broken(path: str, nth: int) -> Answer | None:
    return Answer(503) if path == BROKEN else None


def steady(rate: int, base: float, **more: Any) -> dict[str, Any]:
    """A rate that refusals do not change, so that what is seen is their silence."""
    return {
        "POLITENESS_LIMITS": {HOST: {"limit": f"{rate}/s", "adaptive": False}},
        "POLITENESS_BACKOFF_BASE": base,
        "RETRY_ENABLED": False,
        **NO_ROBOTS,
        **more,
    }


def parent(path: str) -> str:
    """The page with the link to that one."""
    return f"/page/{(int(path.removeprefix('/page/')) - 1) // 10}"


def tries(server: Site) -> list[float]:
    return [a.at for a in server.arrivals if a.path == BROKEN]


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def assert_only_broken_is_missing(server: Site, result: Crawl) -> None:
    others = {url for url in server.page_urls() if not url.endswith(BROKEN)}
    served = server.pages_served()
    assert len(served) == len(others)
    assert set(served.values()) == {1}
    assert {i["url"] for i in result.items if i.get("status") == 200} == others
    failed = [i for i in result.items if "error" in i]
    assert [(i["error"], i["status"]) for i in failed] == [("HttpError", 503)]
    assert failed[0]["url"].endswith(BROKEN)
    assert result.stats["politeness/given_up"] == 1
    assert result.log.count("passing the failure on") == 1
    assert "Traceback" not in result.log


@pytest.mark.parametrize(
    ("spider", "order", "on_disk"),
    [
        ("pages", {}, False),
        ("pages", {}, True),
        ("walk", {}, True),
        ("walk", FIFO, False),
    ],
    ids=["start-memory", "start-disk", "LIFO-disk", "FIFO-memory"],
)
def test_a_broken_page_does_not_hold_up_the_others(
    site: Callable[..., Site],
    tmp_path: Path,
    spider: str,
    order: dict[str, str],
    on_disk: bool,
) -> None:
    server = site(60, answer=broken)
    job = {"JOBDIR": str(tmp_path)} if on_disk else {}
    settings = steady(20, 0.2, **order, **job)
    result = crawl(spider, urls=server.page_urls(), settings=settings)
    assert_only_broken_is_missing(server, result)
    others = [a.at for a in server.arrivals if a.path != BROKEN]
    # The first time, it might still have been the host that was meant.
    assert others[-1] - others[0] < SLOW * (60 + 6) / 20 + 0.2 + LATE + server.lost
    # Behind the others, or twelve times the base later; then in growing gaps.
    first, second, *_ = tries(server)
    assert second > min(others[-1], first + 2.4) - server.jitter
    _, *growing = gaps(tries(server))
    assert len(growing) >= 3
    for gap, least in zip(growing[:3], [0.2, 0.4, 0.8], strict=True):
        assert gap > least - server.jitter
    # Where nothing else is to be done, it is not waited for.
    assert tries(server)[-1] - others[-1] < 0.2 + 0.4 + 0.8 + LATE + server.lost


def test_a_broken_page_of_the_highest_priority_does_not_block_its_host(
    site: Callable[..., Site],
) -> None:
    server = site(60, answer=broken)
    requests = [
        {"url": url, "priority": 5 if url.endswith(BROKEN) else 0}
        for url in server.page_urls()
    ]
    result = crawl(requests=requests, settings=steady(30, 0.5))
    assert_only_broken_is_missing(server, result)
    others = [a.at for a in server.arrivals if a.path != BROKEN]
    # It comes back at once, since others have to wait for what is more important; then
    # no more.
    assert sum(at < others[5] for at in tries(server)) <= 2
    assert (
        others[-1] - others[0] < SLOW * 60 / 30 + 0.5 + 1.0 + 0.5 + LATE + server.lost
    )


@pytest.mark.parametrize(
    ("spider", "order"),
    [("pages", {}), ("walk", {}), ("walk", FIFO)],
    ids=["start", "LIFO", "FIFO"],
)
def test_what_was_refused_goes_behind_the_others(
    site: Callable[..., Site], spider: str, order: dict[str, str]
) -> None:
    server = site(
        60,
        answer=lambda path, nth: (
            Answer(429, {"Retry-After": "0"}) if path == BROKEN and nth == 1 else None
        ),
    )
    settings = steady(30, 5, **order)
    result = crawl(spider, urls=server.page_urls(), settings=settings)
    assert len(result.items) == 60
    assert len(server.arrivals) == 61
    paths = [arrival.path for arrival in server.arrivals]
    refused, served = (nth for nth, path in enumerate(paths) if path == BROKEN)
    # Some versions of Scrapy parse pages late: their links are not in line yet.
    behind = {parent(path) for path in paths[served + 1 :]}
    assert not behind & set(paths[:refused])
    assert not behind or spider == "walk"


def test_in_a_long_crawl_it_does_not_wait_until_all_others_are_done(
    site: Callable[..., Site],
) -> None:
    server = site(
        150,
        answer=lambda path, nth: Answer(503) if path == BROKEN and nth == 1 else None,
    )
    crawl("walk", urls=server.page_urls(), settings=steady(20, 0.2))
    [behind] = gaps(tries(server))
    # Twelve times the base, and the silence; less where a busy machine has not queued
    # the others yet.
    assert behind < 2.4 + 0.3 + LATE + server.lost
    first, again = (
        n for n, arrival in enumerate(server.arrivals) if arrival.path == BROKEN
    )
    assert again - first > 5
    assert server.arrivals[-1].path != BROKEN


def test_a_lone_request_goes_as_soon_as_its_slot_may_send(
    site: Callable[..., Site],
) -> None:
    refusal = Answer(503, {"Retry-After": "1"})
    server = site(31, answer=lambda path, nth: refusal if nth == 1 else None)
    result = crawl(urls=[server.url + BROKEN], settings=steady(30, 1))
    [gap] = gaps(tries(server))
    assert 1.0 - server.jitter < gap < 1.1 + LATE + server.lost
    assert len(result.items) == 1


def test_a_page_that_waits_is_not_forgotten_by_a_kill(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = site(40, answer=broken)
    job: dict[str, Any] = {
        "urls": server.page_urls(),
        "settings": steady(30, 1, JOBDIR=str(tmp_path)),
    }
    with start_crawl(**job) as running:
        # With its second refusal it is known, after all others have been served.
        running.wait_for_log("next try in 1 s")
        server.wait_for_arrivals(41)
        time.sleep(0.1)  # until it is on disk
        running.kill()
    result = crawl(**{**job, "urls": []})
    assert server.pages_served().total() == 39
    assert [i["error"] for i in result.items if "error" in i] == ["HttpError"]
    _, *growing = gaps(tries(server))
    # As if nothing had happened in between, but for the start of a process.
    assert len(growing) == 3
    late = LATE + server.lost
    for gap, least, most in zip(growing, [1, 2, 4], [5, late, late], strict=True):
        assert least - server.jitter < gap < least + most


def test_ctrl_c_closes_at_once_while_a_page_is_held(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = site(40, answer=broken)
    settings = steady(30, 2, JOBDIR=str(tmp_path))
    with start_crawl(urls=server.page_urls(), settings=settings) as running:
        server.wait_for_arrivals(42)
        running.wait_for_log("next try in 4 s")
        running.interrupt()
        result = running.wait(timeout=10)
    assert result.stats["finish_reason"] == "shutdown"
    assert len(server.arrivals) == 42
    assert result.stats["politeness/rescheduled"] == 3


@pytest.mark.parametrize(
    ("answer", "is_given_up"),
    [
        (Answer(503), True),
        # It may be that the rest has to wait for tomorrow.
        (Answer(429), False),
        (Answer(503, {"Retry-After": "0"}), False),
    ],
)
def test_the_last_page_of_a_crawl_is_broken(
    site: Callable[..., Site], answer: Answer, is_given_up: bool
) -> None:
    server = site(31, answer=lambda path, nth: answer if path == BROKEN else None)
    settings = steady(30, 0.1, POLITENESS_MAX_RESCHEDULES=9, POLITENESS_BACKOFF_MAX=0.5)
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(tries(server)) == (7 if is_given_up else 10)
    assert ("passing the failure on" in result.log) is is_given_up


def test_several_broken_pages_end_together(site: Callable[..., Site]) -> None:
    numbers = range(0, 60, 12)
    server = site(
        60,
        answer=lambda path, nth: (
            Answer(503) if int(path.rpartition("/")[2]) in numbers else None
        ),
    )
    result = crawl(urls=server.page_urls(), settings=steady(40, 0.2))
    assert server.pages_served().total() == 55
    assert result.stats["politeness/given_up"] == 5
    asked = Counter(a.path for a in server.arrivals if a.status == 503)
    # How often depends on how many fail by bad luck, as it seems. The first time was
    # before the others; then nothing is waited for but the gaps, which double.
    again = max(asked.values()) - 1
    gaps = 0.2 * (2 ** (again - 1) - 1)
    last = max(a.at for a in server.arrivals if a.status == 200)
    latest = gaps + again * 5 / 40 + LATE + server.lost
    assert server.arrivals[-1].at - last < latest


def test_a_page_that_fails_is_asked_for_again_when_it_says(
    site: Callable[..., Site],
) -> None:
    # Its own gaps would be shorter, and those of its host are none.
    def busy(path: str, nth: int) -> Answer | None:
        return Answer(503, {"Retry-After": "1"}) if path == BROKEN and nth < 6 else None

    server = site(60, answer=busy)
    result = crawl(urls=server.page_urls(), settings=steady(20, 0.1))
    assert len(result.items) == 60
    assert set(server.pages_served().values()) == {1}
    for gap in gaps(tries(server))[1:]:
        assert gap > 1.0 - server.jitter
