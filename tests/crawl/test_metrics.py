"""Metrics, as Prometheus reads them."""

from __future__ import annotations

import random
import re
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from scrapy_politeness.observe.census import Census, SlotView
from scrapy_politeness.observe.metrics import MOST_LABELS, CensusCollector
from scrapy_politeness.observe.tally import Histogram, Tallies
from tests.support.crawl import REACTORS, Reactor, crawl, start_crawl
from tests.support.hostile import HOSTILE_NAMES, is_harmless
from tests.support.settings import NO_ROBOTS, fixed
from tests.support.site import Answer
from tests.support.spiders import Broad

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.crawl import RunningCrawl
    from tests.support.site import Site

ANY_PORT: dict[str, Any] = {"POLITENESS_PROMETHEUS_PORT": 0}

Samples = dict[tuple[str, ...], float]


def parsed(text: str) -> Samples:
    """Return the values by name and labels, as the official parser has them."""
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("scrapy_politeness_")
            key = (name, *(value for _, value in sorted(sample.labels.items())))
            assert key not in samples, "a series comes twice"
            samples[key] = sample.value
    return samples


def address_of(running: RunningCrawl) -> str:
    running.wait_for_log("/metrics")
    found = re.search(r"Serving metrics at (http://\S+/metrics)", running.log_so_far())
    assert found
    return found[1]


def fetch(address: str) -> Samples:
    with urlopen(address, timeout=10) as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        return parsed(response.read().decode())


def fetch_until(address: str, seen: Callable[[Samples], bool]) -> Samples:
    deadline = time.monotonic() + 20
    while not seen(samples := fetch(address)):
        assert time.monotonic() < deadline, samples
        time.sleep(0.1)
    return samples


@pytest.mark.everywhere
@pytest.mark.parametrize("reactor", REACTORS)
def test_metrics_of_a_crawl_can_be_fetched_while_it_runs(
    site: Callable[..., Site], reactor: Reactor
) -> None:
    pages = site(40, hosts=("127.0.0.1", "127.0.0.2"))
    urls = [*pages.page_urls("127.0.0.1"), *pages.page_urls("127.0.0.2")[:5]]
    settings = fixed(12, **ANY_PORT)
    with start_crawl(urls=urls, settings=settings, reactor=reactor) as running:
        address = address_of(running)
        samples = fetch_until(
            address, lambda s: s.get(("requests_total", "127.0.0.1"), 0) > 8
        )
        arrived = Counter(arrival.host for arrival in pages.arrivals)
        done = running.wait()
    for host in arrived:
        assert samples["requests_total", host] <= arrived[host]
        assert samples["answers_total", "served", host] > 0
        assert samples["rate", host] == pytest.approx(12)
        assert samples["health", "healthy", host] == 1
    assert samples["waiting", "127.0.0.1"] > 0
    assert samples["requests_total", "other"] == 0
    assert samples["wait_seconds_count",] == sum(
        samples["requests_total", label] for label in (*arrived, "other")
    )
    assert (
        samples["wait_seconds_bucket", "+Inf"] > samples["wait_seconds_bucket", "0.05"]
    )
    assert samples["waited_seconds_total", "127.0.0.1"] > 0
    assert done.returncode == 0
    with pytest.raises(OSError, match="refused"):
        fetch(address)


def test_refusals_and_pauses_are_there(site: Callable[..., Site]) -> None:
    def refuse_once(path: str, nth: int) -> Answer | None:
        refused = path == "/page/2" and nth == 1
        return Answer(429, {"Retry-After": "5"}) if refused else None

    pages = site(6, answer=refuse_once)
    with start_crawl(urls=pages.page_urls(), settings=fixed(10, **ANY_PORT)) as running:
        samples = fetch_until(
            address_of(running), lambda s: ("health", "paused", "127.0.0.1") in s
        )
    assert 0 < samples["pause_seconds", "127.0.0.1"] <= 5
    assert samples["answers_total", "refused", "127.0.0.1"] == 1
    assert samples["rescheduled_total", "127.0.0.1"] == 1


def test_many_hosts_do_not_make_many_series(site: Callable[..., Site]) -> None:
    hosts = 300
    settings = {**NO_ROBOTS, **ANY_PORT}
    options: dict[str, Any] = {"hosts": hosts, "proxy": site(1, latency=0.1).url}
    with start_crawl(Broad, settings=settings, **options) as running:
        samples = fetch_until(
            address_of(running), lambda s: s.get(("requests_total", "other"), 0) > 20
        )
    labels = [key for key in samples if key[0] == "requests_total"]
    assert len(labels) <= MOST_LABELS + 1


def test_a_port_that_is_taken_stops_the_crawl_at_start(
    site: Callable[..., Site],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        pages = site(1)
        settings = {"POLITENESS_PROMETHEUS_PORT": port}
        done = crawl(urls=pages.page_urls(), settings=settings)
    assert done.returncode == 1
    assert f"POLITENESS_PROMETHEUS_PORT={port}: must be a free port" in done.log
    assert pages.arrivals == []


def census_of(tallies: Tallies) -> Census:
    return Census(
        at=0.0,
        slots=tuple(SlotView(key, None, 0, tally.copy()) for key, tally in tallies),
        other=tallies.other.copy(),
        others=tallies.others,
        total=tallies.total,
        done=0,
        pending=0,
        in_progress=0,
    )


def exposed(census: Census, collector: CensusCollector) -> str:
    collector.update(census, Histogram())
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


@pytest.mark.parametrize("seed", range(3))
def test_with_10_000_hosts_few_have_labels_and_every_request_is_counted_once(
    seed: int,
) -> None:
    chance = random.Random(seed)
    tallies = Tallies(lambda slot: 0, most=64)
    collector = CensusCollector()
    last: Samples = {}
    counted = 0.0
    for step in range(100):
        for number in range(100 * step, 100 * step + 100):
            tallies.of(f"host{number}").sent += 1
            # Hosts that were dropped long ago return now and then.
            other = int(chance.paretovariate(0.5)) % (number + 1)
            tallies.of(f"host{other}").sent += 1
        samples = parsed(exposed(census_of(tallies), collector))
        sent = {key: n for key, n in samples.items() if key[0] == "requests_total"}
        assert last.keys() <= sent.keys()
        for key, now in sent.items():
            before = last.get(key, 0.0)
            # As Prometheus sees it: a counter that falls was reset.
            counted += now - before if now >= before else now
        last = sent
    assert len(last) <= MOST_LABELS + 1
    assert counted == 20_000


def test_hostile_and_equal_names_make_sound_series() -> None:
    tallies = Tallies(lambda slot: 0)
    names = [*HOSTILE_NAMES, "other", "\x1b", "\\x1b", "\ud800", "y" * 300, "y" * 301]
    for name in names:
        tallies.of(name).sent += 1
    text = exposed(census_of(tallies), CensusCollector())
    assert is_harmless(text)
    sent = {k: n for k, n in parsed(text).items() if k[0] == "requests_total"}
    assert len(sent) == len(names) + 1
    assert sum(sent.values()) == len(names)


def test_the_histogram_has_its_bounds_from_above() -> None:
    waits = Histogram()
    for seconds in (0.0, 0.05, 0.051, 7.0, 1e9):
        waits.add(seconds)
    counts = waits.cumulative()
    assert counts[:2] == [2, 3]
    assert counts[-2:] == [4, 5]
