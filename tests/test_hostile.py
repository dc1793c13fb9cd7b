"""One crawl against servers that mean harm: it ends, stays small, and says why.

``python -m tests.benchmarks.hostile`` does the same in full size.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.crawl import Crawl, crawl
from tests.settings import JITTER
from tests.siege import ATTACKS, PEAK, SMALL, Attack, Besieged, Siege, host_of
from tests.site import Arrival, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

RATE = 10

SETTINGS = {
    "POLITENESS_START_RATE": RATE,
    "POLITENESS_MAX_RATE": RATE,
    "POLITENESS_MIN_RATE": 2,
    "POLITENESS_BACKOFF_BASE": 0.2,
    "POLITENESS_BACKOFF_MAX": 0.5,
    "POLITENESS_RETRY_AFTER_MAX": 0.5,
    "POLITENESS_GIVE_UP_AFTER": 3,
    "ROBOTSTXT_OBEY": True,
    "DOWNLOAD_TIMEOUT": 1.5,
    "REDIRECT_MAX_TIMES": 4,
    "CONCURRENT_REQUESTS": 100,
}

GOOD = "127.0.5.1"


class Aftermath:
    def __init__(self, siege: Siege, good: Site, found: Crawl) -> None:
        self.found = found
        self.good = good.arrivals
        self._siege = siege

    def arrivals(self, attack: Attack) -> list[Arrival]:
        return self._siege.sites[attack].arrivals

    def expected(self, attack: Attack) -> int:
        return len(self._siege.requests_of(attack))

    def ends(self, attack: Attack) -> Counter[str | int]:
        """What the requests of an attack came to."""

        def is_of(url: str) -> bool:
            host = urlsplit(url).hostname or ""
            is_one_of_many = host.endswith(".example")
            return is_one_of_many if attack.many_hosts else host == host_of(attack)

        items = [item for item in self.found.items if is_of(item["url"])]
        return Counter(item.get("status") or item["error"] for item in items)


@pytest.fixture(scope="module")
def aftermath() -> Iterator[Aftermath]:
    with Siege(ATTACKS, SMALL) as siege, Site(40, hosts=[GOOD]) as good:
        requests = siege.requests() + [{"url": url} for url in good.page_urls()]
        found = crawl(Besieged, requests=requests, settings=SETTINGS, timeout=120)
        yield Aftermath(siege, good, found)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_ends_and_is_explained(aftermath: Aftermath, attack: Attack) -> None:
    ends = aftermath.ends(attack)
    assert set(ends) <= attack.ends
    assert ends.total() == aftermath.expected(attack)
    for text in attack.explained:
        assert text.format(host_of(attack)) in aftermath.found.log


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_whoever_attacks_is_treated_politely(
    aftermath: Aftermath, attack: Attack
) -> None:
    arrivals = aftermath.arrivals(attack)
    by_host: dict[str, list[float]] = {}
    for arrival in arrivals:
        by_host.setdefault(arrival.host, []).append(arrival.at)
    for times in by_host.values():
        pages = len(times) - 1
        assert times[-1] - times[0] >= pages / RATE - JITTER
    if any(isinstance(end, int) for end in attack.ends) and "robots" in attack.name:
        assert arrivals[0].path == "/robots.txt"


def test_what_stands_at_the_beginning_of_a_large_robots_txt_is_obeyed(
    aftermath: Aftermath,
) -> None:
    obeyed = [a for a in ATTACKS if {200, "IgnoreRequest"} == a.ends]
    assert len(obeyed) == 3
    for attack in obeyed:
        assert aftermath.ends(attack)["IgnoreRequest"] == 1
        times = [arrival.at for arrival in aftermath.arrivals(attack)]
        assert times[-1] - times[0] >= 0.3 * (len(times) - 1) - JITTER


def test_a_host_that_does_no_harm_is_crawled_as_ever(aftermath: Aftermath) -> None:
    assert Counter(arrival.status for arrival in aftermath.good)[200] == 40
    seconds = aftermath.good[-1].at - aftermath.good[0].at
    assert seconds < 3 * 41 / RATE


def test_memory_is_bounded_and_the_crawl_finishes(aftermath: Aftermath) -> None:
    stats = aftermath.found.stats
    assert stats["finish_reason"] == "finished"
    assert stats[PEAK] < 200
    assert "Traceback" not in aftermath.found.log
