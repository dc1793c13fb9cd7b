"""The connection to a Redis server, and the scripts that run there."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    NoScriptError,
    RedisClusterException,
    RedisError,
    ResponseError,
)

from scrapy_politeness.sharing.redis.keys import CHECK_KEY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from redis.asyncio.cluster import ClusterNode

# Seconds. A server that does not answer within this time, and two of the usual round
# trips, is unavailable. To connect takes several round trips.
PATIENCE = 0.5
_CONNECTING = 3.0
# One that answered just now, while this process was busy with other things, is not.
_SECOND_LOOK = 0.05

# In a URL's scheme, behind redis or rediss.
CLUSTER = "+cluster"

SCRIPTS = ("grant", "save", "leave", "check", "places")

# A cluster's errors are of a kind of their own.
_FAILURES = (RedisError, RedisClusterException, OSError)

_WRONG_TYPE = "WRONGTYPE"


class UnavailableError(Exception):
    """The server does not answer, or not as it should."""


class Call(NamedTuple):
    """One run of a script; see ``SCRIPTS``."""

    script: str
    keys: Sequence[str]
    arguments: Sequence[str | int]


def micros(seconds: float) -> int:
    return round(1e6 * seconds)


class Connection:
    """Runs scripts, many in one round trip. Raises UnavailableError for all that can go
    wrong on the way, and begins afresh with the next call: after a failover, the server
    at the other end of an old connection may be one that refuses to write for ever.

    ``round_trip`` is what a round trip usually takes, in seconds."""

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        self._url = f"{scheme.removesuffix(CLUSTER)}://{rest}"
        self._is_cluster = scheme.endswith(CLUSTER)
        self._nodes: list[ClusterNode] = []
        self._client = self._connect()
        self._is_new = True
        self.round_trip = 0.0
        self._scripts = {name: source(name) for name in SCRIPTS}
        self._hashes = {
            name: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            for name, text in self._scripts.items()
        }

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        """Return the answers, in order; those that are errors as exceptions."""
        answers: list[Any] = await self._in_time(self._send(calls))
        if any(isinstance(answer, NoScriptError) for answer in answers):
            # Restarted, or another server took over: all of the scripts are gone.
            await self._in_time(self._load(), _CONNECTING)
            answers = await self._repeat(calls, answers, NoScriptError)
        damaged = [
            call.keys
            for call, answer in zip(calls, answers, strict=True)
            if isinstance(answer, ResponseError) and _WRONG_TYPE in str(answer)
        ]
        if damaged:
            # Something else than this package has written there.
            await self.remove([key for keys in damaged for key in keys])
            answers = await self._repeat(calls, answers, ResponseError)
        for answer in answers:
            if isinstance(answer, RedisError):
                await self._hang_up()
                raise UnavailableError(str(answer)) from answer
        return answers

    async def check(self) -> float:
        """Return the seconds of a round trip to a server that lets scripts write."""
        call = Call("check", [CHECK_KEY], [])
        await self.run([call])
        sent_at = time.monotonic()
        await self.run([call])
        self.round_trip = time.monotonic() - sent_at
        return self.round_trip

    async def open(self, connections: int) -> None:
        """Have that many ready: to connect takes longer than to call."""
        pings = asyncio.gather(*(self._client.ping() for _ in range(connections)))
        await self._in_time(pings, _CONNECTING)

    @property
    def where(self) -> str:
        """The server's address, without the credentials in its URL."""
        url = urlsplit(self._url)
        if url.scheme == "unix":
            return url.path
        return f"{url.hostname or 'localhost'}:{url.port or 6379}"

    def _connect(self, nodes: Sequence[ClusterNode] = ()) -> Redis | RedisCluster:
        """Of a cluster, any of the ``nodes`` may lead to the others, too."""
        options: dict[str, Any] = {
            "socket_connect_timeout": _CONNECTING,
            "retry": Retry(NoBackoff(), 0),
            "decode_responses": False,
            "protocol": 2,
        }
        if not self._is_cluster:
            return Redis.from_url(self._url, **options)
        # One that does not answer takes all the time: the next attempt begins with
        # another one.
        nodes = random.sample(nodes, len(nodes))
        return RedisCluster.from_url(self._url, startup_nodes=nodes, **options)

    async def remove(self, keys: Sequence[str]) -> None:
        await self._in_time(self._client.delete(*keys))

    async def close(self) -> None:
        with suppress(UnavailableError):
            await self._in_time(self._client.aclose())

    async def _send(self, calls: Sequence[Call]) -> list[Any]:
        async with self._client.pipeline(transaction=False) as pipeline:
            for script, keys, arguments in calls:
                pipeline.execute_command(
                    "EVALSHA", self._hashes[script], len(keys), *keys, *arguments
                )
            return await pipeline.execute(raise_on_error=False)

    async def _load(self) -> None:
        # On all nodes of a cluster.
        loads = (self._client.script_load(text) for text in self._scripts.values())
        await asyncio.gather(*loads)

    async def _repeat(
        self, calls: Sequence[Call], answers: list[Any], why: type[RedisError]
    ) -> list[Any]:
        lost = [n for n, answer in enumerate(answers) if isinstance(answer, why)]
        again = await self._in_time(self._send([calls[n] for n in lost]))
        for n, answer in zip(lost, again, strict=True):
            answers[n] = answer
        return answers

    async def _in_time(
        self, work: Awaitable[Any], patience: float | None = None
    ) -> Any:
        task = asyncio.ensure_future(work)
        if patience is None:
            patience = _CONNECTING if self._is_new else PATIENCE + 2 * self.round_trip
        try:
            done, _ = await asyncio.wait({task}, timeout=patience)
            if not done:
                done, _ = await asyncio.wait({task}, timeout=_SECOND_LOOK)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            await self._hang_up(task)
            raise UnavailableError(f"no answer within {patience:.1f} s")
        try:
            result = task.result()
        except _FAILURES as error:
            await self._hang_up()
            raise UnavailableError(str(error) or type(error).__name__) from error
        self._is_new = False
        return result

    async def _hang_up(self, *work: asyncio.Future[Any]) -> None:
        """Whatever the answer was, it must not be taken for the next one."""
        if isinstance(self._client, RedisCluster):
            self._nodes = self._client.get_nodes() or self._nodes
        closing = asyncio.ensure_future(self._client.aclose())
        self._client = self._connect(self._nodes)
        self._is_new = True
        for task in work:
            task.cancel()
        await asyncio.wait({*work, closing}, timeout=_SECOND_LOOK)
        for task in (*work, closing):
            task.cancel()
            task.add_done_callback(_ignore)


def source(script: str) -> str:
    folder = Path(__file__).parent
    parts = [folder / f"{name}.lua" for name in ("prelude", script)]
    return "".join(part.read_text("utf-8") for part in parts)


def _ignore(work: asyncio.Future[Any]) -> None:
    if not work.cancelled():
        work.exception()
