"""How the concurrency of a slot is shared out, by the script that does it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from redis.exceptions import ResponseError

import scrapy_politeness

if TYPE_CHECKING:
    from tests.support.redis_server import RedisServer

FOLDER = Path(scrapy_politeness.__file__).parent / "sharing" / "redis"
SCRIPT = "".join((FOLDER / f"{name}.lua").read_text() for name in ("prelude", "places"))
KEY = "politeness:1:{slot:host}:places"


class Shared:
    def __init__(self, redis: RedisServer, *, total: int, turn: float = 60.0) -> None:
        self._client = redis.client()
        self._total = total
        self._turn = int(1e6 * turn)

    def ask(self, process: str, wanted: int, used: int, life: float = 60.0) -> int:
        times = (int(1e6 * life), self._turn)
        arguments = (process, wanted, used, self._total, *times)
        answer: Any = self._client.eval(SCRIPT, 1, KEY, *arguments)
        return int(answer[0])

    def write(self, value: str) -> None:
        self._client.hset(KEY, "x", value)


def test_no_more_are_granted_than_there_are(redis_server: RedisServer) -> None:
    random = Random(1)
    shared = Shared(redis_server, total=5)
    granted = dict.fromkeys("abcd", 0)
    for _ in range(300):
        process = random.choice("abcd")
        used = random.randint(0, granted[process])
        granted[process] = shared.ask(process, random.randint(used, 5), used)
        assert sum(granted.values()) <= 5


def test_a_server_that_is_full_grants_nothing(redis_server: RedisServer) -> None:
    """Nor does it when it can free what has lapsed."""
    shared = Shared(redis_server, total=5)
    shared.write("3:3:1:1")
    redis_server.client().config_set("maxmemory", 1)
    with pytest.raises(ResponseError, match="maxmemory"):
        shared.ask("b", 5, 0)


def test_all_are_used_and_shared_fairly(redis_server: RedisServer) -> None:
    shared = Shared(redis_server, total=5)
    assert shared.ask("a", 5, 0) == 5
    assert shared.ask("b", 5, 0) == 0
    # As soon as one has ended, another process may have its place.
    assert shared.ask("a", 5, 3) == 3
    assert shared.ask("b", 5, 0) == 2
    assert shared.ask("a", 0, 0) == 0
    assert shared.ask("b", 5, 2) == 5


def test_who_has_none_gets_a_turn(redis_server: RedisServer) -> None:
    shared = Shared(redis_server, total=1, turn=0.0)
    assert shared.ask("a", 1, 0) == 1
    assert shared.ask("b", 1, 0) == 0
    # What is in flight keeps its place, but no other request follows it there.
    assert shared.ask("a", 1, 1) == 0
    assert shared.ask("b", 1, 0) == 0
    assert shared.ask("a", 1, 0) == 0
    assert shared.ask("b", 1, 0) == 1


def test_a_process_that_never_rests_leaves_others_their_share(
    redis_server: RedisServer,
) -> None:
    shared = Shared(redis_server, total=4)
    assert shared.ask("a", 4, 0) == 4
    assert shared.ask("b", 4, 0) == 0
    assert shared.ask("a", 4, 4) == 2
    assert shared.ask("b", 4, 0) == 0
    assert shared.ask("a", 4, 2) == 2
    assert shared.ask("b", 4, 0) == 2


def test_what_is_not_renewed_lapses_and_nonsense_counts_for_nothing(
    redis_server: RedisServer,
) -> None:
    shared = Shared(redis_server, total=5)
    shared.ask("killed", 5, 5, life=0.0)
    for nonsense in ("", "9:9:9", "-1:0:0:9", "99:1:1:9e15", "5:5:5:nan", "\x00"):
        shared.write(nonsense)
        assert shared.ask("a", 5, 0) == 5
