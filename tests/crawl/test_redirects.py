"""What leads from one host to another is limited, and filtered, by where it leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawl import crawl
from tests.support.settings import fixed
from tests.support.site import Answer
from tests.support.spiders import MetaCopier, Pages

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.site import Site

BRISK = fixed(20, POLITENESS_MIN_RATE=4, POLITENESS_BACKOFF_BASE=0.3)


def test_a_redirect_to_another_host_is_limited_by_that_host(
    site: Callable[..., Site],
) -> None:
    target = site(5, hosts=["127.0.0.2"])
    location = target.url_for("127.0.0.2")
    source = site(
        5, answer=lambda path, nth: Answer(302, {"Location": location + path})
    )
    limits = {"127.0.0.2": {"limit": "2/s"}}
    settings = {**BRISK, "POLITENESS_LIMITS": limits}
    result = crawl(urls=source.page_urls(), settings=settings)
    assert len(result.items) == 5
    assert min(target.gaps()[1:]) > 0.5 - target.jitter


@pytest.mark.parametrize(
    "off",
    [
        {"POLITENESS_EXEMPT": ["127.0.0.1"]},
        {"POLITENESS_LIMITS": {"127.0.0.1": {"max_rate": 0}}},
    ],
)
@pytest.mark.parametrize("by_redirect", [True, False])
def test_what_comes_from_a_host_without_limits_is_limited_by_its_own(
    site: Callable[..., Site], off: dict[str, Any], by_redirect: bool
) -> None:
    target = site(5, hosts=["127.0.0.2"])
    location = target.url_for("127.0.0.2")

    def redirect(path: str, nth: int) -> Answer | None:
        return Answer(302, {"Location": location + path}) if by_redirect else None

    free = site(5, answer=redirect)
    settings = {**fixed(4), **off}
    if by_redirect:
        crawl(urls=free.page_urls(), settings=settings)
    else:
        urls = [free.page_urls()[0], *target.page_urls("127.0.0.2")]
        crawl(MetaCopier, urls=urls, settings=settings)
    assert len(target.arrivals) == 5
    assert min(target.gaps()) > 0.25 - target.jitter


def refuse_then_redirect(location: str) -> Callable[[str, int], Answer | None]:
    def judge(path: str, nth: int) -> Answer | None:
        if path != "/page/1":
            return None
        refusal = Answer(429, {"Retry-After": "0"})
        return refusal if nth == 1 else Answer(302, {"Location": location})

    return judge


def test_a_redirect_after_a_refusal_is_still_checked_for_duplicates(
    site: Callable[..., Site],
) -> None:
    server = site(2, answer=refuse_then_redirect("/page/0"))
    result = crawl(urls=server.page_urls(), settings=BRISK)
    assert server.pages_served() == {"/page/0": 1}
    assert result.stats["dupefilter/filtered"] == 1


class AtHome(Pages):
    name = "at_home"
    allowed_domains = ("127.0.0.1",)


def test_a_redirect_after_a_refusal_does_not_lead_offsite(
    site: Callable[..., Site],
) -> None:
    abroad = site(1, hosts=["127.0.0.2"])
    server = site(2, answer=refuse_then_redirect(abroad.url + "/page/0"))
    result = crawl(AtHome, urls=server.page_urls(), settings=BRISK)
    assert abroad.arrivals == []
    assert result.stats["offsite/filtered"] == 1
