"""Which responses are walls, and what a row of them means."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest
from scrapy.http import Response, TextResponse
from scrapy.settings import Settings

from scrapy_politeness.config.policy import Policy
from scrapy_politeness.config.refusals import refusal_rules
from scrapy_politeness.config.settings import PolicyError
from scrapy_politeness.core.challenges import Challenges
from scrapy_politeness.core.forbidden import ForbiddenRow
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.http.body import MOST_BYTES, text_of
from scrapy_politeness.http.classify import classify_response
from scrapy_politeness.http.scrapy_internals import unpacker

CODES = frozenset({429, 503})
URL = "https://shop.example.org/page?id=1"


def classified(
    status: int = 200,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    rules: list[dict[str, Any]] | None = None,
    url: str = URL,
) -> Outcome:
    response = TextResponse(url, status=status, headers=headers, body=body)
    return classify_response(response, CODES, 0.0, refusal_rules(rules or []))


@pytest.mark.parametrize(
    ("status", "headers", "body", "verdict"),
    [
        (403, {"CF-Mitigated": "challenge"}, b"", Verdict.REFUSED),
        (429, {"cf-mitigated": " Challenge "}, b"", Verdict.REFUSED),
        (200, {"cf-mitigated": "block"}, b"", Verdict.SERVED),
        (202, {"x-amzn-waf-action": "challenge"}, b"", Verdict.REFUSED),
        (405, {"x-amzn-waf-action": "captcha"}, b"", Verdict.REFUSED),
        (200, {"x-amzn-waf-action": "count"}, b"", Verdict.SERVED),
        (429, {"x-vercel-mitigated": "challenge"}, b"", Verdict.REFUSED),
        (403, {"crawler-error": "CrawlerForbidden"}, b"", Verdict.UNWELCOME),
        (402, {"crawler-error": "MissingCrawlerPrice"}, b"", Verdict.FAILED),
        (402, {"crawler-price": "USD 0.01"}, b"", Verdict.FAILED),
        (200, {"x-datadome": "protected"}, b"g-recaptcha", Verdict.SERVED),
        (403, {}, b"You have exceeded a secondary rate limit.", Verdict.REFUSED),
        (403, {}, b"You have triggered an abuse detection mechanism", Verdict.REFUSED),
        (403, {}, b"<h1>Too Many Requests</h1>", Verdict.REFUSED),
        (403, {}, b"API rate limit exceeded for 10.0.0.1", Verdict.REFUSED),
        (403, {}, b"You have reached your hourly rate-limit", Verdict.REFUSED),
        (403, {}, b"Forbidden. See our page about rate limits", Verdict.FAILED),
        (200, {}, b"You have exceeded a secondary rate limit.", Verdict.SERVED),
        (404, {}, b"Too many requests", Verdict.SERVED),
    ],
)
def test_built_in_rules(
    status: int, headers: dict[str, str], body: bytes, verdict: Verdict
) -> None:
    assert classified(status, headers, body).verdict is verdict


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        ({"status": 403}, True),
        ({"status": [401, 403]}, True),
        ({"status": 401}, False),
        ({"status": 403, "host": "shop.example.org"}, True),
        ({"status": 403, "host": ["a.example", "*.example.org"]}, True),
        ({"status": 403, "host": "example.org"}, False),
        ({"header": "x-block"}, True),
        ({"header": "X-Block: IP [0-9]+"}, True),
        ({"header": "X-Block: country"}, False),
        ({"header": "X-Other"}, False),
        ({"url": r"/page\?id="}, True),
        ({"url": "^/page"}, False),
        ({"redirect": "."}, False),
        ({"body": "UNUSUAL +traffic"}, True),
        ({"body": "unusual$"}, False),
        ({"body": "unusual", "status": 200}, False),
    ],
)
def test_all_conditions_of_a_rule_must_hold(
    rule: dict[str, Any], matches: bool
) -> None:
    outcome = classified(
        403,
        {"X-Block": "ip 12", "Location": "/captcha"},
        b"We have seen unusual  traffic",
        [{**rule, "means": "not welcome"}],
    )
    assert (outcome.verdict is Verdict.UNWELCOME) is matches


@pytest.mark.parametrize(
    "location", ["/captcha?x", "https://captcha.example/", "captcha"]
)
def test_a_redirect_is_judged_by_where_it_leads(location: str) -> None:
    rules = [{"redirect": "/captcha", "means": "too fast", "wait": 60}]
    outcome = classified(302, {"Location": location}, rules=rules)
    assert (outcome.verdict, outcome.wait) == (Verdict.REFUSED, 60.0)
    later = {"Location": location, "Retry-After": "5"}
    assert classified(302, later, rules=rules).wait == 5.0
    assert classified(302, {"Location": "/"}, rules=rules).verdict is Verdict.SERVED


def test_a_page_may_be_exempt_from_all_rules_below() -> None:
    rules: list[dict[str, Any]] = [
        {"url": "/page", "means": "page"},
        {"status": 200, "means": "not welcome"},
    ]
    challenge = {"cf-mitigated": "challenge"}
    assert classified(200, challenge, rules=rules).verdict is Verdict.SERVED
    url = "https://shop.example.org/"
    assert classified(200, rules=rules, url=url).verdict is Verdict.UNWELCOME
    # What only the status says stays what it is.
    assert classified(429, rules=rules).verdict is Verdict.REFUSED


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("x", "must be a list of dicts, or JSON"),
        ("[", "must be a list of dicts, or JSON"),
        (5, "must be a list of dicts, or JSON"),
        (["x"], "must be a list of dicts, or JSON"),
        ([{"status": 403}], "rule 1 needs 'means'"),
        ([{"means": "too fast"}], "rule 1 would apply to every page"),
        ([{"means": "slow", "status": 403}], "means='slow' of rule 1 must be \"too f"),
        ([{"means": "too fast", "staus": 1}], "rule 1 has an unknown key 'staus'"),
        ([{"means": "too fast", "status": "x"}], "must be an HTTP status code"),
        ([{"means": "too fast", "status": []}], "must be an HTTP status code"),
        ([{"means": "too fast", "status": True}], "must be an HTTP status code"),
        ([{"means": "too fast", "body": "("}], "must be a regular expression; missing"),
        ([{"means": "too fast", "body": ""}], "must be a regular expression"),
        ([{"means": "too fast", "header": ": x"}], "must be the name of a header"),
        ([{"means": "too fast", "status": 403, "host": "http://x/"}], "host names"),
        ([{"means": "too fast", "status": 403, "wait": -1}], "must be a number, 0 or"),
        ([{"means": "not welcome", "status": 403, "wait": 1}], "wait of rule 1 needs"),
        ([{"means": "too fast", "status": 403, "wait": 7200}], "must not exceed"),
    ],
)
def test_a_wrong_rule_stops_the_crawl(value: Any, rule: str) -> None:
    with pytest.raises(PolicyError, match=r"^POLITENESS_REFUSALS=") as error:
        Policy.read(Settings({"POLITENESS_REFUSALS": value}))
    assert rule in str(error.value)


def test_rules_may_be_json() -> None:
    rules = [{"status": [403, 418], "means": "too fast", "wait": 2.5}]
    settings = Settings({"POLITENESS_REFUSALS": json.dumps(rules)})
    assert Policy.read(settings).refusals == refusal_rules(rules)


def deflated(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(
    ("headers", "body", "text"),
    [
        ({}, b"caf\xc3\xa9", "café"),
        ({"Content-Type": "text/html; charset=latin-1"}, b"caf\xe9", "café"),
        ({"Content-Type": "text/html; charset=none"}, b"caf\xc3\xa9", "café"),
        ({"Content-Type": "text/html; charset=hex"}, b"abc", "abc"),
        ({"Content-Type": "text/html; charset=punycode"}, b"a-b", "a-b"),
        ({"Content-Type": "text/html; charset=unicode_escape"}, rb"\]", r"\]"),
        ({"Content-Type": "text/html; charset=shift_jis"}, b"\x83n", "ハ"),
        ({"Content-Type": "application/problem+json"}, b"{}", "{}"),
        ({"Content-Type": "image/png"}, b"text", ""),
        ({"Content-Encoding": "gzip"}, gzip.compress(b"text", mtime=0), "text"),
        ({"Content-Encoding": "gzip"}, b"text", ""),
        ({"Content-Encoding": "deflate"}, zlib.compress(b"text"), "text"),
        ({"Content-Encoding": "deflate"}, deflated(b"text"), "text"),
        (
            {"Content-Encoding": "deflate, GZIP"},
            gzip.compress(zlib.compress(b"text"), mtime=0),
            "text",
        ),
        ({"Content-Encoding": "br"}, b"text", ""),
        ({"Content-Encoding": "zstd"}, b"text", ""),
        ({"Content-Encoding": "secret"}, b"text", ""),
    ],
)
def test_text_of_a_body(headers: dict[str, str], body: bytes, text: str) -> None:
    assert text_of(Response(URL, headers=headers, body=body)) == text


@pytest.mark.parametrize(
    ("encoding", "package"),
    [("", ""), ("gzip", "gzip"), ("br", "brotli"), ("zstd", "zstd")],
)
def test_only_the_beginning_of_a_body_is_unpacked(encoding: str, package: str) -> None:
    body = b"0" * 20_000_000
    if package:
        module: Any = gzip if package == "gzip" else unpacker(package)
        if module is None:
            pytest.skip("this Scrapy does not unpack it")
        body = module.compress(body)
    response = Response(URL, headers={"Content-Encoding": encoding}, body=body)
    assert text_of(response) == "0" * MOST_BYTES


@pytest.mark.parametrize(
    ("has_served", "every", "stopped_at"), [(False, 10, 40), (True, 10, 3600)]
)
def test_how_long_a_host_may_challenge_us(
    has_served: bool, every: int, stopped_at: int
) -> None:
    challenges = Challenges(3600.0, 10, lambda key: True)
    for now in range(0, stopped_at, every):
        assert challenges.challenged("host", now, has_served=has_served) is None
    row = challenges.challenged("host", stopped_at, has_served=has_served)
    assert row is not None
    assert row.seconds == stopped_at
    challenges.end("host")
    assert challenges.challenged("host", 9999, has_served=has_served) is None


def test_a_row_of_403s_is_a_block_until_waiting_has_not_helped() -> None:
    row = ForbiddenRow(pages_served=10)
    found = [row.forbidden(at, is_repeated=False, is_probe=False) for at in range(1, 6)]
    assert found == [False, False, False, True, True]
    probed = [row.forbidden(at, is_repeated=True, is_probe=True) for at in range(5)]
    assert probed == [True, True, True, True, False]
    assert row.is_final


def test_where_many_pages_are_forbidden_the_row_is_longer() -> None:
    row = ForbiddenRow(pages_served=10)
    for at in range(0, 300, 3):
        assert not row.forbidden(at, is_repeated=False, is_probe=False)
        row.served(at + 1)
        row.served(at + 2)
    found = [
        row.forbidden(300 + n, is_repeated=False, is_probe=False) for n in range(20)
    ]
    assert found.index(True) > 10
