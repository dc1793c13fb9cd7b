"""Leases on virtual time, and the scripts that grant them on a real Redis."""

from __future__ import annotations

import asyncio
import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scrapy.settings import Settings

from scrapy_politeness.config.policy import Policy
from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.governor.host_model import HostModel
from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.leases import HORIZON, Lease, Leases, grace
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.core.snapshot import freeze, thaw
from scrapy_politeness.sharing.redis.connection import (
    Call,
    Connection,
    UnavailableError,
)
from scrapy_politeness.sharing.redis.keys import Keys
from scrapy_politeness.sharing.redis.replies import Granted
from scrapy_politeness.sharing.redis.server_clock import ServerClock
from scrapy_politeness.simulator import RetryAfter, TokenBucket, simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.redis_server import RedisServer

BOUNDS = Bounds(start_rate=10.0, max_rate=100.0)


def a_joined_slot() -> Slot:
    slot = Slot("example.org", BOUNDS, spacing=0.0, concurrency=8)
    slot.join()
    return slot


def granted(slot: Slot, *times: float, ask_at: float = 0.0) -> Slot:
    assert slot.permits.leases is not None
    slot.permits.leases.grant([Lease(at, 0.0) for at in times], ask_at)
    return slot


class TestLeases:
    def test_nothing_goes_without_a_lease(self) -> None:
        assert not a_joined_slot().has_permit(100.0)

    def test_a_request_goes_when_its_lease_says(self) -> None:
        slot = granted(a_joined_slot(), 5.0)
        assert not slot.has_permit(4.99)
        assert slot.has_permit(5.0)
        assert slot.take(5.0).paced
        assert not slot.has_permit(5.0)

    def test_a_lease_lapses(self) -> None:
        slot = granted(a_joined_slot(), 5.0, 6.0)
        assert slot.has_permit(5.0 + grace(0.0))
        assert not slot.has_permit(5.0 + 2 * grace(0.0))
        assert slot.has_permit(6.0)

    def test_one_that_followed_a_time_of_rest_was_not_paced(self) -> None:
        slot = a_joined_slot()
        assert slot.permits.leases is not None
        slot.permits.leases.grant([Lease(5.0, 60.0)], 0.0)
        assert not slot.take(5.0).paced

    def test_as_many_are_handed_out_as_there_are_leases(self) -> None:
        slot = granted(a_joined_slot(), 5.0, 5.1)
        assert slot.claimable_at == pytest.approx(5.0, abs=0.01)
        slot.claim(5.0)
        assert slot.claimable_at == pytest.approx(5.1, abs=0.01)
        slot.claim(5.1)
        assert slot.claimable_at == math.inf

    def test_a_single_one_is_asked_for_when_it_can_be_used(self) -> None:
        leases = Leases()
        leases.grant([], 10.0, interval=5.0)
        assert not leases.wants_more(9.9)
        assert leases.wants_more(10.0)

    def test_where_there_is_time_a_lease_lapses_later(self) -> None:
        leases = Leases()
        leases.grant([Lease(10.0, 0.0)], 15.0, interval=5.0)
        assert leases.has_permit(10.09)
        assert not leases.has_permit(10.2)

    def test_more_are_asked_for_before_the_last_is_used(self) -> None:
        leases = Leases()
        assert leases.wants_more(0.0)
        leases.grant([Lease(1.0, 0.0), Lease(1.0 + HORIZON, 0.0)], 0.5)
        assert not leases.wants_more(1.0)
        assert leases.wants_more(1.0 + HORIZON * 0.6)

    def test_a_refusal_stops_everything_until_it_was_reported(self) -> None:
        slot = granted(a_joined_slot(), 5.0, 5.1, 5.2)
        permit = slot.take(5.0)
        slot.hand_in(permit, Outcome(Verdict.REFUSED), 5.05)
        assert not slot.has_permit(5.1)
        assert slot.claimable_at == math.inf
        assert slot.permits.leases is not None
        assert not slot.permits.leases.wants_more(10.0)

    def test_a_parted_process_goes_on_with_a_share_and_never_faster(self) -> None:
        slot = granted(a_joined_slot(), 5.0)
        assert slot.permits.leases is not None
        slot.permits.leases.members = 4
        slot.part(5.0, chance=0.0)
        now, sent = 5.0, 0
        while now < 65.0:
            now = max(now, slot.ready_at)
            permit = slot.take(now)
            slot.settle(permit, Outcome(Verdict.SERVED), now + 0.01, 0.5)
            sent += 1
        assert sent == pytest.approx(60 * BOUNDS.start_rate / 4, rel=0.02)

    def test_a_parted_process_slows_down_when_refused(self) -> None:
        slot = granted(a_joined_slot(), 5.0)
        slot.part(5.0, chance=0.0)
        permit = slot.take(slot.ready_at)
        refused = Outcome(Verdict.REFUSED, "429", wait=7.0)
        change = slot.settle(permit, refused, 6.0, 0.0)
        assert change.new_rate == 5.0
        assert slot.ready_at >= 13.0

    def test_what_was_found_alone_is_kept_for_the_others(self) -> None:
        slot = granted(a_joined_slot(), 0.0)
        slot.part(0.0, chance=0.0)
        simulate([slot], RetryAfter(TokenBucket(4.0, 5)), seconds=120.0)
        assert slot.permits.leases is not None
        slot.join()
        assert slot.learner.found_alone == pytest.approx(4.0, rel=0.1)

    def test_nobody_has_waited_in_vain_for_those_who_were_away(self) -> None:
        slot = granted(a_joined_slot(), 5.0)
        slot.permits.vain_since = 6.0
        slot.part(7.0, chance=0.0)
        slot.join()
        assert slot.permits.vain_since == math.inf

    def test_what_was_learned_together_is_there_again_after_the_return(self) -> None:
        slot = granted(a_joined_slot(), 5.0)
        model = slot.learner.new_model()
        slot.adopt(model)
        slot.part(5.0, chance=0.0)
        assert slot.learner.model is not model
        assert slot.permits.leases is not None
        slot.join()
        assert slot.learner.model is model

    def test_a_process_that_was_alone_at_first_is_free_to_climb_later(self) -> None:
        slot = a_joined_slot()
        slot.part(0.0, chance=0.0)
        slot.settle(slot.take(1.0), Outcome(Verdict.SERVED), 1.1, 0.5)
        assert slot.permits.leases is not None
        slot.join()
        assert slot.learner.model is None
        assert slot.terms.fastest == 1 / BOUNDS.max_rate

    def test_what_all_learn_outweighs_in_time_what_was_recalled(self) -> None:
        slot = a_joined_slot()
        slot.recall(Learned(50.0, None, None), 0.0)
        for nth in range(30):
            granted(slot, float(nth))
            permit = slot.take(float(nth))
            slot.hand_in(permit, Outcome(Verdict.SERVED), nth + 0.1)
        assert slot.learned is not None

    def test_a_rate_of_ones_own_is_not_for_all(self) -> None:
        slot = a_joined_slot()
        slot.adopt(slot.learner.new_model())
        own = replace(BOUNDS, start_rate=2.0, max_rate=2.0)
        slot.reconfigure(own, spacing=0.0, floor=0.0)
        assert slot.terms.fastest == 0.5
        assert slot.learner.model is not None
        assert slot.learner.model.governor.rate == BOUNDS.start_rate
        assert slot.learner.new_model().governor.rate == BOUNDS.start_rate

    def test_a_crawl_delay_is_kept_although_a_lease_may_be_used_late(self) -> None:
        slot = a_joined_slot()
        slot.obey_robots(5.0, 0.0)
        assert slot.terms.gap - grace(slot.terms.gap) >= 5.0


def test_refusals_count_after_a_clock_was_set_back() -> None:
    model = HostModel(BOUNDS)
    for verdict, now in ((Verdict.SERVED, 9000.0), (Verdict.REFUSED, 9001.0)):
        permit = Permit(now, True, rate=10.0)
        model.observe(permit, Outcome(verdict), now, 0.5)
    changes = [
        model.observe(
            Permit(now, True, rate=10.0), Outcome(Verdict.REFUSED), now + 0.1, 0.5
        )
        for now in (5000.0, 5001.0)
    ]
    assert all(change.cut for change in changes)
    assert changes[1].pause > 0


@pytest.mark.parametrize("text", ["20/s", "1/10s", "40/m", "1000/day"])
def test_limits_are_kept_although_a_lease_may_be_used_late(text: str) -> None:
    settings = {"POLITENESS_REDIS_URL": "redis://x", "POLITENESS_GLOBAL_LIMIT": text}
    limit = Policy.read(Settings(settings)).global_limit
    assert limit is not None
    interval = limit.interval
    # The first of a window goes late, all others in time.
    assert limit.count * interval - grace(interval) >= limit.period


def history(seed: list[tuple[str, float]]) -> Iterator[tuple[Permit, Outcome, float]]:
    now = 1000.0
    for verdict, gap in seed:
        now += gap
        yield Permit(now, True, rate=10.0), Outcome(Verdict[verdict]), now + 0.05


HISTORIES = st.lists(
    st.tuples(
        st.sampled_from(["SERVED"] * 8 + ["REFUSED", "TIMED_OUT", "FAILED"]),
        st.floats(0.01, 2.0),
    ),
    max_size=200,
)


def teach(model: HostModel, seed: list[tuple[str, float]]) -> list[float]:
    return [
        model.observe(permit, outcome, now, 0.5).new_rate
        for permit, outcome, now in history(seed)
    ]


class TestSnapshot:
    @given(HISTORIES, HISTORIES)
    @settings(deadline=None, max_examples=50)
    def test_a_governor_goes_on_elsewhere_nearly_as_here(
        self, before: list[tuple[str, float]], after: list[tuple[str, float]]
    ) -> None:
        here = HostModel(BOUNDS)
        teach(here, before)
        there = thaw(HostModel(BOUNDS), json.loads(json.dumps(freeze(here))))
        # Evidence is written down to a tenth, which seldom decides between two rates.
        pairs = zip(teach(there, after), teach(here, after), strict=True)
        assert all(0.4 < one / other < 2.5 for one, other in pairs)

    @given(HISTORIES, st.randoms(use_true_random=False), HISTORIES)
    @settings(
        deadline=None,
        max_examples=200,
        suppress_health_check=[HealthCheck.too_slow],
    )
    def test_damage_is_found_or_harmless(
        self, before: list[tuple[str, float]], random: Any, after: list[Any]
    ) -> None:
        model = HostModel(BOUNDS)
        teach(model, before)
        data = freeze(model)
        damage(data, random)
        try:
            thawed = thaw(HostModel(BOUNDS), json.loads(json.dumps(data)))
            rates = teach(thawed, after)
        except (ValueError, ArithmeticError):
            return
        assert all(BOUNDS.min_rate <= rate <= BOUNDS.max_rate for rate in rates)


STRANGE: list[Any] = [None, True, -1, 0, 1e300, math.nan, -math.inf, "x", [], {}, [1]]


def damage(data: Any, random: Any) -> None:
    """Put something strange somewhere."""
    while True:
        key = random.choice(list(data) if isinstance(data, dict) else range(len(data)))
        if isinstance(data[key], dict | list) and data[key] and random.random() < 0.8:
            data = data[key]
            continue
        data[key] = random.choice(STRANGE)
        return


@pytest.mark.parametrize(
    "name",
    ["example.org", "a{b}c", "}{", "x" * 5000, "ünïcode", "a\r\nSET b", "\ud800", ""],
)
def test_a_host_may_call_itself_anything(name: str) -> None:
    for one_node in (True, False):
        keys = Keys(one_node=one_node).of(f"slot:{name}")
        for key in keys:
            assert len(key) < 300
            assert key.isascii()
            assert key.isprintable()
            assert key.count("{") == key.count("}") == 1
        assert len({key[: key.index("}")] for key in keys}) == 1


def test_names_that_differ_have_keys_that_differ() -> None:
    names = ["a", "A", "a%41", "aa", "x" * 300, "x" * 301]
    assert len({Keys(one_node=False).of(name) for name in names}) == len(names)


class TestServerClock:
    def test_the_quickest_answer_tells_best(self) -> None:
        clock = ServerClock()
        clock.learn(10.0, 10.002, 5_000_001_000)
        clock.learn(11.0, 11.4, 5_001_000_000)
        assert clock.at(10.001) == pytest.approx(5000.001, abs=1e-6)

    def test_a_wait_counts_from_a_moment_between_sending_and_receiving(self) -> None:
        clock = ServerClock()
        clock.learn(10.0, 10.002, 5_000_001_000)
        assert clock.local(6_000_000_000, 1.0, 20.0, 20.5) == 21.5
        assert clock.local(4_000_000_000, 1.0, 20.0, 20.5) == 21.0

    def test_a_server_that_was_set_to_another_time_is_believed(self) -> None:
        clock = ServerClock()
        clock.learn(10.0, 10.002, 5_000_001_000)
        clock.learn(11.0, 11.4, 9_000_000_000)
        assert clock.at(11.2) == pytest.approx(9000.0)


Grant = dict[str, Any]

FIELDS = ("now", *Granted._fields[1:])


@pytest.fixture(scope="module")
def shared_redis() -> Iterator[RedisServer]:
    from tests.support.redis_server import RedisServer

    with RedisServer() as server:
        yield server


@pytest.fixture
def ask(shared_redis: RedisServer) -> Callable[..., Grant]:
    """Ask for leases, as one process or another."""
    shared_redis.client().flushall()

    def grant(
        wanted: int = 1,
        *terms: Terms,
        process: str = "a",
        horizon: float = HORIZON,
        lead: float = 0.0,
        stay: float = 0.0,
        needs: int = 100,
        pause: float = 0.0,
        resets: int = 0,
    ) -> Grant:
        keys = Keys(one_node=True)
        names = [keys.of(f"slot:{n}") for n in range(len(terms))]
        arguments: list[str | int] = [process, wanted, needs, micros(horizon)]
        arguments += [micros(lead), micros(stay), 0]
        arguments += [micros(3600), micros(pause), resets, 0, micros(120), ""]
        for own in terms:
            arguments += own.arguments()
        flat = [names[0].summary, *(key for name in names for key in name[:2])]
        [answer] = run(shared_redis.url, Call("grant", flat, arguments))
        return dict(zip(FIELDS, answer, strict=True))

    return grant


def run(url: str, *calls: Call) -> list[Any]:
    async def session() -> list[Any]:
        connection = Connection(url)
        try:
            return await connection.run(calls)
        finally:
            await connection.close()

    # The tests' own thread has its event loop already.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, session()).result()


def micros(seconds: float) -> int:
    return round(1e6 * seconds)


@dataclass
class Terms:
    spacing: float
    gap: float = 0.0
    burst: int = 1
    step: float = 0.0
    crawl_delay: float = 0.0
    seat: int = -1
    seats: int = 1
    uncounted: float | None = None
    is_known: bool = False

    def arguments(self) -> list[str | int]:
        return [
            *(micros(self.spacing), micros(self.gap), self.burst, micros(self.step)),
            *(micros(self.crawl_delay), self.seat, self.seats),
            "" if self.uncounted is None else micros(self.uncounted),
            int(self.is_known),
        ]


EVEN = Terms(0.05)


class TestGrant:
    def test_send_times_are_evenly_spaced(self, ask: Callable[..., Grant]) -> None:
        assert ask(9, EVEN)["waits"] == [0, 50_000, 100_000, 150_000, 200_000]

    def test_the_next_process_goes_on_where_the_last_one_ended(
        self, ask: Callable[..., Grant]
    ) -> None:
        first = ask(2, EVEN)
        second = ask(2, EVEN, process="b")
        at = [second["now"] + wait for wait in second["waits"]]
        reserved = first["now"] + 100_000
        # At once, if that has already passed.
        assert at[0] == max(reserved, second["now"])
        assert at[1] - at[0] == 50_000
        assert second["members"] == [2]

    def test_a_burst_goes_at_once_and_then_evenly(
        self, ask: Callable[..., Grant]
    ) -> None:
        waits = ask(6, Terms(0.05, burst=4))["waits"]
        assert waits == [0, 0, 0, 0, 50_000, 100_000]

    def test_the_least_gap_holds_within_a_burst(
        self, ask: Callable[..., Grant]
    ) -> None:
        assert ask(3, Terms(0.05, 0.02, 4))["waits"] == [0, 20_000, 40_000]

    def test_no_burst_follows_a_pause(self, ask: Callable[..., Grant]) -> None:
        waits = ask(4, Terms(0.05, burst=4), pause=0.1)["waits"]
        assert waits == [100_000, 150_000, 200_000]

    def test_a_pause_holds_for_all(self, ask: Callable[..., Grant]) -> None:
        ask(1, EVEN, pause=30.0)
        other = ask(1, EVEN, process="b")
        assert other["waits"] == []
        assert 29e6 < other["pause"] <= 30e6
        assert other["nexts"][0] == other["pause"]

    def test_all_budgets_are_taken_from_together_or_none(
        self, ask: Callable[..., Grant]
    ) -> None:
        assert len(ask(9, EVEN, Terms(0.1))["waits"]) == 3
        # The second has no more, so nothing is taken from the first.
        while not ask(1, EVEN, Terms(60.0))["waits"]:
            time.sleep(0.05)
        before = ask(0, EVEN)["nexts"]
        assert ask(1, EVEN, Terms(60.0))["waits"] == []
        assert ask(0, EVEN)["nexts"][0] <= before[0]

    def test_a_server_that_lost_its_memory_allows_for_those_who_are_not_back_yet(
        self, ask: Callable[..., Grant]
    ) -> None:
        first = replace(EVEN, seat=0, seats=4, is_known=True)
        assert ask(9, first)["waits"] == []  # others may have leases of before
        assert ask(0, first)["members"] == [4]
        waits = ask(9, first, horizon=4.0)["waits"]
        assert waits[1] - waits[0] == 4 * 50_000

    def test_a_server_that_is_full_serves_nobody(
        self, ask: Callable[..., Grant], shared_redis: RedisServer
    ) -> None:
        """Nor does it when it can free what a process of before had."""
        ask(1, EVEN)
        client: Any = shared_redis.client()
        [members] = [key for key in client.keys("*") if client.type(key) == b"zset"]
        [(member, _)] = client.zrange(members, 0, -1, withscores=True)
        client.zadd(members, {member: 1})
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(UnavailableError, match="maxmemory"):
                ask(1, EVEN, process="b")
        finally:
            client.config_set("maxmemory", 0)

    def test_what_was_sent_otherwise_counts(self, ask: Callable[..., Grant]) -> None:
        [wait] = ask(1, Terms(0.15, uncounted=-0.05))["waits"]
        assert wait == 100_000

    def test_the_least_gap_counts_from_there_too(
        self, ask: Callable[..., Grant]
    ) -> None:
        [wait] = ask(1, Terms(0.01, 0.15, uncounted=-0.05))["waits"]
        assert wait == 100_000

    @pytest.mark.parametrize("value", ["1e300", "nan", "-inf", "x", "", "9" * 17])
    def test_damaged_values_do_not_stop_anybody(
        self, value: str, ask: Callable[..., Grant], shared_redis: RedisServer
    ) -> None:
        client = shared_redis.client()
        keys = Keys(one_node=True).of("slot:0")
        fields = dict.fromkeys([*"tlqdecrnkvgs", "pa"], value)
        client.hset(keys.record, mapping=fields)
        answer = ask(1, EVEN)
        assert answer["nexts"][0] <= 1e6 * (HORIZON + 2 * 0.05)

    def test_a_key_of_another_type_is_replaced(
        self, ask: Callable[..., Grant], shared_redis: RedisServer
    ) -> None:
        keys = Keys(one_node=True).of("slot:0")
        shared_redis.client().set(keys.record, "not ours")
        assert ask(1, EVEN)["waits"] == [0]

    def test_a_pause_of_a_clock_that_was_set_back_is_no_longer_than_allowed(
        self, ask: Callable[..., Grant], shared_redis: RedisServer
    ) -> None:
        keys = Keys(one_node=True).of("slot:0")
        shared_redis.client().hset(keys.record, "u", str(4 * 10**15))
        assert ask(1, EVEN)["pause"] == 3600 * 10**6


def test_of_two_who_report_at_once_the_second_is_told_what_the_first_has_saved(
    shared_redis: RedisServer,
) -> None:
    shared_redis.client().flushall()
    keys = Keys(one_node=False).of("slot:example.org")

    def save(revision: int, text: str) -> Call:
        arguments: list[str | int] = [revision, 50_000, 0, text, 600]
        arguments += ["", 600, 0, micros(3600), 0]
        return Call("save", list(keys), arguments)

    first, second, third = run(
        shared_redis.url, save(0, "mine"), save(0, "yours"), save(1, "yours")
    )
    assert first[1:4] == [1, 1, b""]
    assert second[1:4] == [1, 0, b"mine"]
    assert third[1:4] == [2, 1, b""]
