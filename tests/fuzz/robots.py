"""robots.txt, from the bytes of the answer to what the crawl makes of it."""

from __future__ import annotations

import time
from itertools import count

from hypothesis import example, given
from hypothesis import strategies as st
from scrapy.http import Response

from scrapy_politeness.robots.request import robots_request
from scrapy_politeness.robots.rules import Directives, readable
from tests.fuzz import crawls
from tests.fuzz.texts import any_text, names, numbers
from tests.fuzz.watch import watched

_numbers = count()

_LONGEST = 366 * 86400.0
_DAY = 86400.0

_fields = st.sampled_from(
    [
        *("User-agent", "Crawl-delay", "crawl-DELAY ", "Request-rate", "Visit-time"),
        *("Disallow", "Allow", "Sitemap", "Host", "Clean-param", "\ufeffUser-agent"),
    ]
)
_rates = st.tuples(
    numbers, numbers, st.sampled_from(["", "s", "m", "h", "d", "x"])
).map(lambda parts: f"{parts[0]}/{parts[1]}{parts[2]}")
_hours = st.tuples(numbers, st.sampled_from(["-", " ", "--"]), numbers).map("".join)
_values = any_text(
    _rates, _hours, numbers, names, st.sampled_from(["*", "bot", "0600-0845", "/*?$"])
)
_lines = st.tuples(
    st.sampled_from(["", " ", "\t", "\0", "#"]),
    _fields,
    st.sampled_from([":", ": ", " ", "::", ""]),
    _values,
).map("".join)
_files = st.tuples(
    st.lists(_lines, max_size=12),
    st.sampled_from(["\n", "\r\n", "\r", "\x0b", "\u2028"]),
).map(lambda parts: parts[1].join(parts[0]))

bodies = st.one_of(
    st.tuples(_files, st.sampled_from(["utf-8", "utf-16", "utf-32", "utf-7"])).map(
        lambda pair: pair[0].encode(pair[1], "backslashreplace")
    ),
    _files.map(lambda text: b"User-agent: *\n" + text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=300),
)


@given(bodies, st.sampled_from([200, 301, 404, 503]))
def robots_txt_is_understood_or_not(body: bytes, status: int) -> None:
    host = f"fuzzed-{next(_numbers)}.example"
    robots = crawls.parts().robots
    request = robots_request(f"http://{host}")
    with watched():
        response = Response(request.url, status=status, body=body, request=request)
        robots.learn(f"http://{host}", response)
        terms = robots.terms_for(request)
    if terms is None:
        return
    assert status < 400
    assert 0 <= terms.delay <= _LONGEST
    assert terms.hours is None or 0 <= terms.hours.begin_in(time.time()) <= _DAY
    slot = crawls.parts().registry.slot(host)
    assert slot is not None
    slot.obey_robots(terms.delay, terms.since)
    assert not terms.delay or slot.rate <= 1 / terms.delay


_ASKS = b"User-agent: *\nCrawl-delay: 7\n"
_garbage = st.tuples(
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\n", b"\r\n", b"\0\n", b"<html>\n"]),
    st.sampled_from(
        [b"", b"\xff\xfe\n", b"# \xe9\n", b"Disallow\n", b"Sitemap: x\n\n"]
    ),
)


@given(_garbage, st.binary(max_size=200))
@example((b"\xef\xbb\xbf", b""), b"")
def delays_are_found_among_garbage(before: tuple[bytes, bytes], after: bytes) -> None:
    body = b"".join((*before, _ASKS, b"\nUser-agent: another\n", after))
    assert Directives.read(readable(body), "fuzzer").crawl_delay == 7
