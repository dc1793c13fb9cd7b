"""Walls: any response under any rules, and how a body is read."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from scrapy.http import Response

from scrapy_politeness.config.refusals import KEYS, refusal_rules
from scrapy_politeness.core.outcome import Verdict
from scrapy_politeness.http.body import MOST_BYTES, text_of
from scrapy_politeness.http.classify import classify_response
from tests.fuzz.texts import any_text, names, numbers
from tests.fuzz.watch import watched

_words = st.sampled_from(
    [
        *(
            "challenge",
            "captcha",
            "CrawlerForbidden",
            "rate limit exceeded",
            "exceeded ",
        ),
        *("secondary rate limit", "exceeded a ", "too many requests", "hit the a-a-"),
        *("/captcha", "//x/login", "http://[", "http://[::1", "?", "\\", "a "),
    ]
)
_names = st.sampled_from(
    [
        *("cf-mitigated", "x-amzn-waf-action", "x-vercel-mitigated", "crawler-error"),
        *("Location", "Retry-After", "X-RateLimit-Remaining", "X-Block"),
    ]
)
_charsets = (
    *(b"", b"utf-8", b"utf-16", b"punycode", b"idna", b"zlib", b"hex", b"rot13"),
    *(b"utf-7", b"unicode_escape", b"raw_unicode_escape", b"undefined", b"\xff"),
)
_types = st.sampled_from(
    [
        *(b"", b"text/html", b"application/json", b"image/png"),
        *(b"text/html; charset=" + name for name in _charsets),
    ]
)
_encodings = st.sampled_from(
    [b"", b"gzip", b"deflate", b"br", b"zstd", b"gzip, br", b"gzip,gzip", b",", b"x"]
)
_texts = any_text(_words)
_bytes = _texts.map(lambda text: text.encode("utf-8", "replace"))
_bodies = st.one_of(
    _bytes,
    _bytes.map(gzip.compress),
    _bytes.map(zlib.compress),
    st.binary(max_size=200),
    st.integers(1, 1 << 24).map(lambda size: gzip.compress(bytes(size))),
)
_headers = st.dictionaries(
    _names,
    st.lists(_texts.map(lambda text: text.encode("latin-1", "replace")), max_size=2),
)
_statuses = st.sampled_from([200, 202, 302, 402, 403, 403, 405, 429, 503, 999])

_values = st.one_of(
    *(names, numbers, _words, st.integers(), st.floats(), st.none(), st.booleans()),
    st.lists(st.integers(200, 599) | names, max_size=3),
    st.sampled_from(
        ["too fast", "not welcome", "page", "example.org", "*.example.org"]
    ),
    st.sampled_from([".*", "[", "(?i)x", "(a", "x{1,99999999999}", "X-Block: .", ":"]),
)
_rules = st.dictionaries(st.sampled_from(sorted(KEYS)) | names, _values, max_size=4)
# Those that a user would write, whose patterns take no more than linear time.
_sound_rules = st.fixed_dictionaries(
    {"means": st.sampled_from(["too fast", "not welcome", "page"])},
    optional={
        "status": st.sampled_from([403, [200, 302]]),
        "header": st.sampled_from(["X-Block", "Location: captcha", "cf-mitigated: x"]),
        "url": st.sampled_from(["page", "^https"]),
        "redirect": st.sampled_from(["captcha", "^http://"]),
        "body": st.sampled_from(["unusual traffic", "secondary|limit", "^a"]),
        "host": st.sampled_from(["example.org", "*.example.org"]),
    },
).filter(lambda rule: bool(rule.keys() - {"means", "host"}))
_CAPTCHA = {"redirect": "captcha", "means": "too fast"}


@given(
    _statuses,
    _headers,
    _types,
    _encodings,
    _bodies,
    st.lists(_sound_rules, max_size=3),
)
@example(403, {}, b"", b"", b"exceeded a " + b"a " * 16_000, [])
@example(403, {}, b"text/html; charset=punycode", b"", b"a" * MOST_BYTES, [])
@example(302, {"Location": [b"http://[::1"]}, b"", b"", b"", [_CAPTCHA])
def walls_are_known_or_not(
    status: int,
    headers: dict[str, list[bytes]],
    content_type: bytes,
    encoding: bytes,
    body: bytes,
    rules: list[dict[str, Any]],
) -> None:
    said = {**headers, "Content-Type": content_type, "Content-Encoding": encoding}
    url = "http://www.example.org/page"
    response = Response(url, status=status, headers=said, body=body)
    known = refusal_rules(rules)
    with watched():
        assert len(text_of(response)) <= MOST_BYTES
        outcome = classify_response(response, frozenset({429}), 0.0, known)
    assert outcome.reason.isprintable()
    assert outcome.wait is None or outcome.wait >= 0
    if not rules and not headers and status in (200, 202, 405):
        assert outcome.verdict is Verdict.SERVED


@given(st.lists(_rules, max_size=3))
def rules_hold_or_are_errors(rules: list[dict[str, Any]]) -> None:
    with watched():
        try:
            known = refusal_rules(rules)
        except ValueError as error:
            known, message = (), str(error)
        else:
            message = ""
    assert message.isprintable()
    for rule in known:
        assert any((rule.status, rule.header, rule.url, rule.redirect, rule.body))
        assert rule.wait is None or rule.wait >= 0
