"""Settings: a wrong one stops the crawl, in one line that says so."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from scrapy.settings import Settings

from scrapy_politeness.config.policy import Policy
from scrapy_politeness.config.settings import PolicyError
from scrapy_politeness.config.table import SETTINGS
from scrapy_politeness.core.pace import Limit
from tests.fuzz.texts import any_text, names, numbers
from tests.fuzz.watch import watched

_periods = st.sampled_from(["s", "ms", "2s", "1.5 min", "day", "h", "", "x", "0s"])
_notations = st.tuples(numbers, st.sampled_from(["/", " / ", "//", ""]), _periods).map(
    "".join
)
# Whatever these are, looking at the file system or the network is not for a fuzzer.
_LEFT_OUT = {
    "POLITENESS_ENABLED",
    "POLITENESS_STATE",
    "POLITENESS_REPORT",
    "POLITENESS_PROMETHEUS_PORT",
    "POLITENESS_PROGRESS",
}
_leaves = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), numbers, names),
    *(_notations, st.binary(max_size=8), st.just(10**400)),
)
_keys = st.one_of(
    names,
    st.sampled_from(
        [
            *("limit", "burst", "spacing", "start_rate", "min_rate", "max_rate"),
            *("concurrency", "adaptive", "api.example", "*.example", "delay"),
        ]
    ),
)
_anything = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3)
    ),
    max_leaves=6,
)
_tables = st.dictionaries(
    _keys, st.dictionaries(_keys, _leaves, max_size=3), max_size=2
)


@given(any_text(_notations))
def notation_is_a_limit_or_an_error(text: str) -> None:
    with watched():
        try:
            limit = Limit.parse(text)
        except ValueError:
            return
    assert limit.count >= 1
    assert 0 < limit.period < math.inf
    assert 0 < limit.interval < math.inf
    assert limit.interval * limit.count >= limit.period * (1 - 1e-9)
    assert limit.floor <= limit.interval


@given(
    st.sampled_from([*sorted(set(SETTINGS) - _LEFT_OUT), "DOWNLOAD_SLOTS"]),
    _anything | _tables,
)
def settings_hold_or_stop_the_crawl(name: str, value: Any) -> None:
    try:
        settings = Settings({name: value})
    except (TypeError, ValueError):
        return  # Scrapy itself does not take it
    with watched():
        try:
            policy = Policy.read(settings)
        except PolicyError as error:
            message = str(error)
        else:
            message = ""
    if message:
        assert message.isprintable()
        assert name in message
        return
    for key in ("api.example", "x.example", "other"):
        slot = policy.for_slot(key)
        if slot is None:
            assert policy.is_off(key)
            continue
        bounds = slot.bounds
        assert 0 < bounds.min_rate <= bounds.start_rate <= bounds.max_rate < math.inf
        assert 0 <= slot.spacing < math.inf
        assert slot.concurrency >= 1
        assert 0 < bounds.backoff_base <= bounds.backoff_max < math.inf
