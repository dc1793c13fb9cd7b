"""Names of hosts and slots, in all places where they are shown or stored."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from scrapy import Request

from scrapy_politeness.core.health import Health, Status
from scrapy_politeness.http.scrapy_internals import proxy_of
from scrapy_politeness.observe.census import Census, SlotView
from scrapy_politeness.observe.live import draw
from scrapy_politeness.observe.metrics import CensusCollector
from scrapy_politeness.observe.page import render
from scrapy_politeness.observe.reporter import report_of
from scrapy_politeness.observe.tally import Histogram, Tallies
from scrapy_politeness.observe.timeline import Sampler
from scrapy_politeness.sharing.redis.keys import Keys
from tests.fuzz import crawls
from tests.fuzz.texts import names
from tests.fuzz.watch import watched

_STATUS = Status(Health.PAUSED, 1.0, 2.0, 3.0, 1, 8)
_KEY = re.compile(r"politeness:1:(\{[a-z0-9._:%-]+\}|\{all\}:[a-z0-9._:%-]+):[a-z]+")
# The colours that the display itself has.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[dict[str, str | None]] = []
        self.strange: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self.scripts.append(dict(attrs))
        known = {"content", "datetime", "data-value", "data-down", "title", "x1", "x2"}
        self.strange += [n for n, _ in attrs if n.startswith("on") and n not in known]


def _census(slots: list[str]) -> tuple[Census, Tallies]:
    tallies = Tallies(lambda slot: 1)
    for slot in slots:
        tallies.of(slot).sent += 1
        tallies.of(slot).waited += 1.5
    views = tuple(SlotView(key, _STATUS, 1, t.copy()) for key, t in tallies)
    return Census(10.0, views, tallies.other, 0, tallies.total, 1, 1, 1), tallies


@given(st.lists(names, min_size=1, max_size=4), st.integers(20, 200))
def names_are_only_names(slots: list[str], columns: int) -> None:
    census, tallies = _census(slots)
    parts = crawls.parts()
    with watched():
        parts.events.closed(census)
        lines = [str(view) for view in census.slots]
        lines += _drawn(census, columns)
    lines += [key for key in parts.stats.get_stats() if isinstance(key, str)]
    for line in lines:
        assert line.isprintable(), line
    for key in list(parts.stats.get_stats()):
        if "/slots/" in key:
            del parts.stats.get_stats()[key]
    _check_metrics(census, len(set(slots)))
    _check_page(census, tallies, slots[0])
    for slot in slots:
        for one_node in (True, False):
            assert all(
                _KEY.fullmatch(key)
                for key in Keys(one_node=one_node).of(f"slot:{slot}")
            )


def _drawn(census: Census, columns: int) -> list[str]:
    console = Console(width=columns, force_terminal=True, legacy_windows=False)
    with console.capture() as capture:
        console.print(draw("x", census, columns, 40))
    return [_COLOUR.sub("", line) for line in capture.get().split("\n")]


def _check_metrics(census: Census, number: int) -> None:
    collector = CensusCollector()
    collector.update(census, Histogram())
    registry = CollectorRegistry()
    registry.register(collector)
    text = generate_latest(registry).decode()
    assert all(line.isprintable() for line in text.split("\n"))
    families = {f.name: f for f in text_string_to_metric_families(text)}
    assert len(families["scrapy_politeness_requests"].samples) == number + 1


def _check_page(census: Census, tallies: Tallies, name: str) -> None:
    report = report_of(census, tallies, Sampler(0.0), name, name)
    parser = _Elements()
    parser.feed(render(report))
    parser.close()
    assert [s.get("id") for s in parser.scripts] == ["politeness-report", None]
    assert parser.strange == []


_slots = st.one_of(names, st.none(), st.integers(), st.binary(max_size=9), st.floats())
_urls = st.one_of(
    names.map("http://{}/".format),
    names.map("http://user:secret@h.example/{}".format),
    st.sampled_from(
        ["http://[", "http://[::1", "http:///x", "x:", "data:,x", "http://a:b:c/"]
    ),
)


@given(_urls, _slots, _slots, _slots)
@example("http://line\0break/", None, 1, None)
def requests_have_a_slot(url: str, own: Any, download_slot: Any, proxy: Any) -> None:
    try:
        request = Request(url)
    except ValueError:
        return  # Scrapy does not take it
    meta = {"politeness_slot": own, "download_slot": download_slot, "proxy": proxy}
    request.meta.update({name: value for name, value in meta.items() if value})
    registry = crawls.parts().registry
    with watched():
        assert "secret" not in proxy_of(request)
        try:
            key = registry.queue_key(request)
        except TypeError as error:
            message = str(error)
        else:
            message = ""
        assert message.isprintable()
        if not message and not registry.is_free(key):
            route = registry.queue_route(key)
            assert route is not None
            assert route.slot.rate <= crawls.MAX_RATE


_proxies = st.tuples(
    st.sampled_from(["http://", "https://", "socks5://", "", "//"]),
    st.text(max_size=20),
    st.sampled_from(["@proxy.example:3128", "@10.0.0.1", "@[::1]:80"]),
    st.sampled_from(["", "/", "/path?key=hush", "?key=hush", "#hush"]),
)


@given(_proxies)
@example(("http://", "", "@10.0.0.1", "/path?key=hush"))
def proxies_keep_their_secrets(parts: tuple[str, str, str, str]) -> None:
    scheme, text, host, tail = parts
    request = SimpleNamespace(meta={"proxy": f"{scheme}user:hush{text}{host}{tail}"})
    assert proxy_of(request) == host[1:]  # type: ignore[arg-type]
