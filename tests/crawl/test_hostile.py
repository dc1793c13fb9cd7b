"""One crawl against servers that mean harm: it ends, stays small, and says why.

``python -m tests.benchmarks.hostile`` does the same in full size.
"""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlsplit

from tests.support.crawl import Crawl, crawl
from tests.support.faulty import WRAPS_ERRORS
from tests.support.siege import ATTACKS, PEAK, SMALL, Attack, Besieged, Siege, host_of
from tests.support.site import Site

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
    "REDIRECT_MAX_TIMES": 4,
    "CONCURRENT_REQUESTS": 100,
}

GOOD = "127.0.5.1"


# Those whose robots.txt begins with rules, and goes on for ever.
WITH_RULES = [a for a in ATTACKS if a.ends == frozenset({200, "IgnoreRequest"})]


def test_a_crawl_under_attack_ends_is_polite_and_explains_itself() -> None:
    with Siege(ATTACKS, SMALL) as siege, Site(40, hosts=[GOOD]) as good:
        requests = siege.requests() + [{"url": url} for url in good.page_urls()]
        found = crawl(Besieged, requests=requests, settings=SETTINGS, timeout=120)
        assert found.stats["finish_reason"] == "finished"
        assert found.stats[PEAK] < 200
        assert "scrapy_politeness/" not in found.log
        for attack in ATTACKS:
            expect_an_end(attack, found, len(siege.requests_of(attack)))
            expect_politeness(siege.sites[attack])
        expect_rules(siege, found)
        # Whoever does no harm is crawled as ever.
        assert good.pages_served().total() == 40
        assert "Summary for 127.0.5.1" not in found.log


def ends(attack: Attack, found: Crawl) -> Counter[str | int]:
    """What the requests of an attack came to."""

    def is_of(url: str) -> bool:
        host = urlsplit(url).hostname or ""
        is_one_of_many = host.endswith(".example")
        return is_one_of_many if attack.many_hosts else host == host_of(attack)

    items = [item for item in found.items if is_of(item["url"])]
    return Counter(item.get("status") or item["error"] for item in items)


def expect_an_end(attack: Attack, found: Crawl, requests: int) -> None:
    came_to = ends(attack, found)
    if WRAPS_ERRORS:
        assert set(came_to) <= attack.ends, attack.name
    assert came_to.total() == requests, attack.name
    missing = [
        text
        for text in attack.explained
        if text.format(host_of(attack)) not in found.log
    ]
    assert missing == [], attack.name


def expect_politeness(site: Site) -> None:
    for host in {arrival.host for arrival in site.arrivals}:
        gaps = site.gaps(host)
        assert sum(gaps) >= len(gaps) / RATE - site.jitter


def expect_rules(siege: Siege, found: Crawl) -> None:
    """What stands at the beginning of a large robots.txt is obeyed."""
    assert len(WITH_RULES) == 3
    for attack in WITH_RULES:
        assert ends(attack, found)["IgnoreRequest"] == 1
        site = siege.sites[attack]
        assert sum(site.gaps()) >= 0.3 * len(site.gaps()) - site.jitter
