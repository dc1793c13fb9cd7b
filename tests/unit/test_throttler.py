"""A Scrapy with a throttler of its own, by a stand-in for what it promises."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Request
from scrapy.settings import Settings

from scrapy_politeness.components.addon import Addon
from scrapy_politeness.http import scrapy_internals, throttler
from scrapy_politeness.http.scrapy_internals import Engine

if TYPE_CHECKING:
    from collections.abc import Iterable


class StandIn:
    """Never lets anything through that does not say ``dont_throttle``."""

    def __init__(self, crawler: Any) -> None:
        self.crawler = crawler

    async def acquire(self, request: Request, *, unscheduled: bool = False) -> None:
        if not request.meta.get("dont_throttle"):
            await asyncio.Event().wait()

    def download_handler_blocked(self, request: Request) -> bool:
        return True

    def get_scopes(self, request: Request) -> str | Iterable[str]:
        return request.url.split("/")[2]


class ByCountry(StandIn):
    def get_scopes(self, request: Request) -> str | Iterable[str]:
        return ["de", "all"] if ".de/" in request.url else "others"


@pytest.fixture
def _has_throttler(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("scrapy.throttler")
    module.Throttler = StandIn  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "scrapy.throttler", module)
    for place in (throttler, scrapy_internals):
        monkeypatch.setattr(place, "HAS_THROTTLER", True)


@pytest.mark.usefixtures("_has_throttler")
@pytest.mark.parametrize("meta", [{}, {"dont_throttle": False}])
def test_it_lets_through_what_the_gate_will_hold_back(meta: dict[str, Any]) -> None:
    settings = Settings()
    Addon().update_settings(settings)
    polite = settings["THROTTLER"](None)
    request = Request("https://example.org/", meta=dict(meta))
    # It ends at once, without waiting for anything.
    with pytest.raises(StopIteration):
        polite.acquire(request).send(None)
    assert not polite.download_handler_blocked(request)
    assert request.meta == meta


@pytest.mark.usefixtures("_has_throttler")
def test_a_throttler_that_the_user_chose_stays() -> None:
    settings = Settings({"THROTTLER": ByCountry})
    Addon().update_settings(settings)
    assert settings["THROTTLER"] is ByCountry


@pytest.mark.usefixtures("_has_throttler")
@pytest.mark.parametrize(
    ("own", "url", "meta", "name"),
    [
        (StandIn, "https://example.org/a", {}, ("example.org", True)),
        (StandIn, "https://example.org./a", {}, ("example.org", True)),
        (ByCountry, "https://example.org/a", {}, ("others", False)),
        (ByCountry, "https://example.de/a", {}, ('["all", "de"]', False)),
        (StandIn, "https://a.de/", {"throttling_scopes": "b"}, ("b", False)),
        (StandIn, "https://a.de/", {"throttling_scopes": ["c"]}, ("c", False)),
        (
            StandIn,
            "https://a.de/",
            {"throttling_scopes": {"d", "c"}, "download_slot": "old"},
            ('["c", "d"]', False),
        ),
        (
            StandIn,
            "https://a.de/",
            {"download_slot": "b.de", "_throttler_stamped_download_slot": "b.de"},
            ("a.de", True),
        ),
        (StandIn, "https://a.de/", {"download_slot": "mine"}, ("mine", False)),
    ],
)
def test_its_scopes_are_our_slots(
    own: type[StandIn], url: str, meta: dict[str, Any], name: tuple[str, bool]
) -> None:
    downloader = SimpleNamespace()
    crawler = SimpleNamespace(
        throttler=own(None), engine=SimpleNamespace(downloader=downloader)
    )
    request = Request(url, meta=meta)
    assert Engine(crawler).slot_name(request) == name  # type: ignore[arg-type]


def test_its_settings_are_understood() -> None:
    from scrapy_politeness.config.policy import Policy

    policy = Policy.read(
        Settings(
            {
                "THROTTLING_SCOPE_CONCURRENCY": 3,
                "THROTTLING_SCOPES": {"a.de": {"delay": 2, "jitter": 0.1}},
                "DOWNLOAD_SLOTS": {"b.de": {"delay": 3}},
            }
        )
    )
    assert policy.concurrency == 3
    assert policy.download_slots == {"a.de": {"delay": 2}, "b.de": {"delay": 3}}
