"""Keys in a real Redis server that hold something else than our scripts have put
there."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import redis
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy import Request

from scrapy_politeness.sharing.redis.connection import micros, source
from scrapy_politeness.sharing.redis.keys import Keys
from scrapy_politeness.sharing.redis.replies import Granted, Saved
from scrapy_politeness.storage.marks import Placement, Where
from scrapy_politeness.storage.redis_backlog import SharedBacklog
from scrapy_politeness.storage.redis_requests import SharedQueue
from tests.fuzz import crawls
from tests.fuzz.texts import ODD_NUMBERS, names
from tests.fuzz.watch import watched
from tests.support.ready import Quiet
from tests.support.redis_server import RedisServer

if TYPE_CHECKING:
    from redis.commands.core import Script

_HORIZON, _LONGEST, _INTERVAL = micros(0.2), micros(3600), micros(0.1)
_GRANT = (
    *("me", 3, 9, _HORIZON, 0, 0, 0, _LONGEST, 0, 0, 0, _LONGEST, ""),
    *(_INTERVAL, 0, 1, 0, 0, -1, 1, "", 0),
)
_KEYS = Keys(one_node=False).of("slot:fuzzed.example")


@cache
def _server() -> redis.Redis:
    return crawls.EXITS.enter_context(RedisServer()).client()


@cache
def _script(name: str) -> Script:
    return _server().register_script(source(name))


_values = st.one_of(
    *(st.sampled_from(ODD_NUMBERS), st.integers().map(str), st.floats().map(str)),
    *(st.binary(max_size=9), st.just("1e15"), st.just("8999999999999999.5")),
)
_fields = st.dictionaries(
    st.sampled_from([*"tluqdecrnkvgis", "pme"]), _values, max_size=4
)
_members = st.dictionaries(
    st.binary(max_size=6) | st.sampled_from([b"0:me", b"1:you", b"2:", b"9999999:x"]),
    st.floats(allow_nan=False),
    max_size=3,
)
# In the places of what a budget has, whatever Redis may hold.
_things = st.one_of(st.none(), _values, _fields, _members.map(lambda m: ("zset", m)))


def _put(key: str, thing: Any) -> None:
    server = _server()
    if isinstance(thing, tuple):
        if thing[1]:
            server.zadd(key, thing[1])
    elif isinstance(thing, dict):
        if thing:
            server.hset(key, mapping=thing)
    elif thing is not None:
        server.set(key, thing)


def _run(name: str, keys: list[str], arguments: tuple[Any, ...]) -> Any:
    """As ``Link`` does: what has a wrong type is removed."""
    try:
        return _script(name)(keys, arguments)
    except redis.ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        _server().delete(*keys)
        return _script(name)(keys, arguments)


@given(_things, _things, _things)
@example({"v": "1.5"}, None, None)
def keys_may_hold_anything(record: Any, members: Any, summary: Any) -> None:
    _server().flushdb()
    for key, thing in zip(_KEYS, (record, members, summary), strict=True):
        _put(key, thing)
    keys = [_KEYS.summary, _KEYS.record, _KEYS.members]
    granted = [
        Granted.read(
            _run("grant", keys, _GRANT),
            wanted=3,
            budgets=1,
            horizon=_HORIZON,
            longest=_LONGEST,
        )
        for _ in range(2)
    ]
    waits = [wait for answer in granted for wait in answer.waits]
    # What was granted first is not granted again, whatever stood there before.
    assert len(waits) <= 3
    revision = granted[-1].revision
    arguments = (revision, _INTERVAL, 1, "{}", 60, "", 60, 0, _LONGEST, 0)
    assert Saved.read(_run("save", list(_KEYS), arguments)).is_saved
    _run("leave", [_KEYS.record, _KEYS.members], ("me",))


_slots = st.one_of(names.map(lambda n: n.encode("utf-8", "surrogatepass")), st.binary())
_QUEUE = "fuzz:requests"


@given(
    _things,
    st.dictionaries(_slots, st.floats(allow_nan=False), max_size=4),
    st.none()
    | _values
    | st.dictionaries(st.binary(max_size=30), st.just(1.0), max_size=2),
    names,
    _things,
    st.sampled_from(Where),
)
@example("1e400", {b"\xff": 1.0, b"a": float("inf")}, "x", "a", None, Where.USUAL)
@example("1", {}, None, "a", ("zset", {b"\x91\x01": 1.0, b"\xc1": -1e9}), Where.HELD)
def shared_queues_may_hold_anything(
    queue: Any,
    slots: dict[bytes, float],
    requests: Any,
    name: str,
    ends: Any,
    where: Where,
) -> None:
    server = _server()
    server.flushdb()
    slot = name.lower()
    shared = SharedQueue(server, _QUEUE)
    _put(_QUEUE, {"size": queue, "place": queue} if isinstance(queue, str) else queue)
    if slots:
        server.zadd(f"{{{_QUEUE}}}:slots", slots)
    waiting = ("zset", requests) if isinstance(requests, dict) else requests
    with suppress(redis.ResponseError):
        _put(f"{{{_QUEUE}}}:of:host", waiting)
    _put(f"{{{_QUEUE}}}:ends", ends)
    found: list[str] = []
    backlog = SharedBacklog(shared, Quiet(), _Plain, set, found.append)
    with watched():
        backlog.look()
        with suppress(redis.ResponseError):  # told to whoever pushes
            request = Request("http://a.example/")
            backlog.push(slot, request, Placement(where), time.monotonic())
        for other in ("host", slot, *found):
            backlog.pop(other)
        assert len(backlog) >= 0
        assert all(isinstance(other, str) for other in found)


class _Plain:
    """A serializer for requests of which nothing matters; that of scrapy-redis trusts
    what it loads."""

    @staticmethod
    def dumps(obj: Any, /) -> bytes:
        return b"http://a.example/"

    @staticmethod
    def loads(data: Any, /) -> Any:
        return {"url": data.decode()}
