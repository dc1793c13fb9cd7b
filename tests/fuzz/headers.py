"""Response headers: Retry-After, Date, RateLimit in all forms, MediaWiki's errors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hypothesis import example, given
from hypothesis import strategies as st

from scrapy_politeness.http.quota_headers import read_quota
from scrapy_politeness.http.retry_after import retry_after
from tests.fuzz import crawls
from tests.fuzz.texts import any_text, numbers
from tests.fuzz.watch import watched

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES = (
    *("RateLimit", "RateLimit-Policy", "Date", "Retry-After", "MediaWiki-API-Error"),
    *("X-RateLimit-Resource", "X-RateLimit-Bucket"),
    *(
        f"{prefix}{what}"
        for prefix in ("RateLimit-", "X-RateLimit-", "X-Rate-Limit-")
        for what in ("Limit", "Remaining", "Reset", "Reset-After", "Interval")
    ),
    *(
        f"X-RateLimit-{what}-{unit}"
        for unit in ("Second", "Minute", "Day", "Requests")
        for what in ("Limit", "Remaining", "Reset")
    ),
)

_keys = st.sampled_from(
    ["r", "t", "q", "w", "limit", "remaining", "reset", "pk", "qu", "*"]
)
_words = st.sampled_from(
    ['"default"', '"a;b,c"', "default", '"', "10", ";", ",", "=", " "]
)
_parameters = st.tuples(st.sampled_from([";", "; ", ",", " "]), _keys, numbers).map(
    lambda parts: f"{parts[0]}{parts[1]}={parts[2]}"
)
_fields = st.tuples(_words, st.lists(_parameters, max_size=4).map("".join)).map("".join)
_dates = st.one_of(
    st.datetimes().map(lambda when: when.strftime("%a, %d %b %Y %H:%M:%S GMT")),
    st.sampled_from(
        [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Fri, 31 Dec 9999 23:59:59 -2359",
            "Mon, 01 Jan 0001 00:00:00 +2359",
            "Tue, 15 Nov 2044 12:45:26 +99999999999999",
            "0 Jan 0 0:0",
            "1994-11-06T08:49:37Z",
            "0001-01-01T00:00:00+23:59",
            "9999-12-31T23:59:59-23:59",
            "6m0s",
            "1h2m3.5s",
            "999999999h",
            "...s",
        ]
    ),
)
_errors = st.sampled_from(["maxlag", "ratelimited", "readonly", "MAXLAG", "badtoken"])

values = any_text(_fields, _dates, _errors, numbers)
headers = st.dictionaries(st.sampled_from(_NAMES), values, max_size=6)
_waits = st.lists(any_text(numbers, _dates), max_size=3)
_now = st.floats(0, 4e9)


@given(_waits, st.none() | any_text(_dates), _now)
@example(["9" * 400], None, 0.0)
def retry_after_is_a_time(waits: list[str], date: str | None, now: float) -> None:
    with watched():
        wait = retry_after(waits, date=date, wall_now=now)
    assert wait is None or 0 <= wait < math.inf


@given(headers, _now)
def quota_is_one(said: Mapping[str, str], now: float) -> None:
    with watched():
        quota = read_quota(said.get, wall_now=now)
    if quota is None:
        return
    assert 0 <= quota.remaining < math.inf
    assert 0 <= quota.reset < math.inf
    for told in (quota.limit, quota.window):
        assert told is None or 0 < told < math.inf
    assert quota.sustained is None or 0 < quota.sustained < math.inf
    assert quota.spread >= quota.strictest >= 0
    assert len(quota.name) <= 100


_raw = values.map(lambda text: text.encode("latin-1", "replace")) | st.binary(
    max_size=80
)
_answers = st.tuples(
    st.sampled_from([200, 200, 301, 404, 429, 429, 500, 503, 999]),
    st.dictionaries(st.sampled_from(_NAMES), st.lists(_raw, max_size=2), max_size=5),
)


@given(st.sampled_from(sorted(crawls.MOST)), st.lists(_answers, min_size=1, max_size=8))
def answers_keep_the_crawl_polite(
    host: str, answers: list[tuple[int, dict[str, list[bytes]]]]
) -> None:
    with watched():
        for status, said in answers:
            crawls.answer(host, status, said)
            crawls.check(host)
        crawls.parts().feedback.forget(crawls.scope_of(host))
