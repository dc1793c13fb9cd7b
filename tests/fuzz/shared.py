"""What others may have put into Redis, and what a server may answer."""

from __future__ import annotations

import json
import logging
import time
from contextlib import suppress
from functools import cache
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from scrapy.settings import Settings

from scrapy_politeness.config.policy import Policy
from scrapy_politeness.core.governor.belief import Belief
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.quota import Quota
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.core.snapshot import freeze, thaw
from scrapy_politeness.sharing.redis.connection import UnavailableError, micros
from scrapy_politeness.sharing.redis.keys import Keys
from scrapy_politeness.sharing.redis.learning import Observation, SharedLearning
from scrapy_politeness.sharing.redis.replies import Granted, Saved
from scrapy_politeness.sharing.redis.server_clock import ServerClock
from tests.fuzz import crawls, documents
from tests.fuzz.documents import HOSTILE
from tests.fuzz.texts import names
from tests.fuzz.watch import watched

_verdicts = st.sampled_from(Verdict)
_outcomes = st.builds(
    Outcome,
    _verdicts,
    st.just("why"),
    st.none() | st.floats(0, 3600),
    st.none() | st.builds(Quota, st.floats(0, 1e15), st.floats(0, 1e12)),
)


@cache
def _policy() -> Policy:
    return Policy.read(Settings(crawls.SETTINGS))


def _slot(name: str) -> Slot:
    own = _policy().for_slot(name)
    assert own is not None
    slot = Slot(name, own.bounds, spacing=own.spacing, concurrency=8)
    slot.join()
    return slot


@cache
def _sound() -> Any:
    """Lessons after a life with all phases."""
    slot, now = _slot("x"), time.time() - 600
    model = slot.learner.new_model()
    for n in range(400):
        refused = n % 70 == 69
        verdict = Verdict.REFUSED if refused else Verdict.SERVED
        now += 3.0 if refused else 0.3
        permit = Permit(now - 0.1, True, 1, 3.0)
        model.observe(permit, Outcome(verdict), now, 0.5)
    return freeze(model)


model = documents.like(_sound)
_summaries = st.one_of(
    model,
    st.dictionaries(
        st.sampled_from(["at", "ceiling", "spread", "concurrency", "x"]),
        st.sampled_from(HOSTILE),
        max_size=5,
    )
    .map(json.dumps)
    .map(str.encode),
)


def check(slot: Slot) -> None:
    status = slot.status(time.monotonic())
    most = crawls.MAX_RATE * (1 + 1e-9)
    assert crawls.MIN_RATE * (1 - 1e-9) <= status.rate <= most
    assert slot.terms.fastest >= 1 / most
    assert 1 <= status.concurrency <= 8
    learned = slot.learned
    assert learned is None or json.dumps(learned.to_dict())


@given(
    st.sampled_from(["plain.example", "line\nbreak"]),
    _summaries,
    model,
    st.lists(_outcomes, min_size=1, max_size=12),
    st.integers(0, 3),
)
@example("line\nbreak", b"[" * 60_000, b"[" * 60_000, [Outcome(Verdict.SERVED)], 1)
@example("a", b'{"at":' + b"9" * 309 + b"}", b"{}", [Outcome(Verdict.SERVED)], 0)
def shared_learning_may_be_anything(
    name: str, summary: bytes, text: bytes, outcomes: list[Outcome], revision: int
) -> None:
    log = logging.LoggerAdapter(logging.getLogger("scrapy_politeness.fuzz"), {})
    keys = Keys(one_node=False).of(name)
    learning = SharedLearning(lambda _: keys, ServerClock(), _policy(), log)
    slot = _slot(name)
    with watched():
        learning.hear(slot, 0, summary)
        check(slot)
        learning.hear(slot, revision, text)
        check(slot)
        slot.learner.found_alone = 0.7
        learning.hear(slot, revision + 1, text)
        for outcome in outcomes:
            now = time.monotonic()
            permit = Permit(now - 0.2, True, 1, 2.0)
            learning.add(slot, Observation(permit, outcome, now, 0.5, otherwise=0.0))
            for saved in (
                Saved(1, revision, False, text, 0),
                Saved(1, revision + 2, True, b"", 0),
            ):
                for _, copy, call in learning.calls(time.monotonic(), is_last=True):
                    assert all(isinstance(value, str | int) for value in call.arguments)
                    check(slot)
                    learning.answered(slot, copy, saved, now)
                check(slot)


@cache
def _sound_belief() -> Any:
    belief = Belief(2.0, 1.0, 0.0)
    for n in range(200):
        (belief.refused if n % 40 == 39 else belief.served)(n / 2)
    belief.leak(100.0)
    return freeze(belief)


@given(documents.like(_sound_belief), st.floats(0.1, 10.0), st.floats(0, 1e9))
def beliefs_may_be_anything(text: bytes, rate: float, now: float) -> None:
    """What is damaged is found at once, or by arithmetic that has no result."""
    with watched(), suppress(ValueError, ArithmeticError, RecursionError):
        belief = thaw(Belief(1.0, 1.0, 0.0), json.loads(text))
        for n in range(20):
            belief.served(now + n)
        belief.refused(now + 20, 0.1)
        belief.leak(now + 21)
        belief.focus(rate)
        belief.measured(rate / 2, rate, 1.0)
        assert belief.best_rate > 0
        assert 0 <= belief.cause(now + 22) <= 1
        assert belief.unlucky >= 0
        low, high = belief.quantiles(0.1, 0.9)
        assert 0 < low <= high
        thaw(Belief(1.0, 1.0, 0.0), json.loads(json.dumps(freeze(belief))))


_HORIZON, _LONGEST = micros(0.2), micros(3600)
_items = st.one_of(
    *(st.integers(), st.integers(0, 10**6), st.binary(max_size=9), st.none()),
    *(st.floats(), st.booleans(), names, st.lists(st.integers(0, 10**7), max_size=4)),
)
_counts = st.integers(0, 2**53)
_few = st.lists(_counts, min_size=1, max_size=2)
_replies = st.one_of(
    _items,
    st.lists(_items, min_size=3, max_size=10),
    st.tuples(
        *(_counts, _counts, _counts, st.binary(max_size=9), _counts, _counts),
        *(st.lists(st.integers(-5, 300_000), max_size=5), _few, _few, _few, _few),
        *(_counts, _counts, _counts),
    ).map(list),
    st.tuples(_counts, _counts, _items, st.binary(max_size=9), _counts).map(list),
)


@given(_replies)
def replies_may_be_anything(answer: Any) -> None:
    with watched(), suppress(UnavailableError):
        granted = Granted.read(
            answer, wanted=3, budgets=1, horizon=_HORIZON, longest=_LONGEST
        )
        assert len(granted.waits) <= 3
        assert all(0 <= wait <= _HORIZON for wait in granted.waits)
        assert 0 <= granted.pause <= _LONGEST
        assert 0 <= granted.nexts[0] <= _LONGEST
    with watched(), suppress(UnavailableError):
        saved = Saved.read(answer)
        assert saved.revision >= 0
        assert isinstance(saved.model, bytes)
