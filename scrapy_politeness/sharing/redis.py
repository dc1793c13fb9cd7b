"""A Redis server, where several processes keep what they share.

Keys begin with ``politeness:``. What belongs to one slot has its name in braces, so
that a Redis Cluster keeps it together. Where there are limits that many slots share,
one script must see them all: then everything has the same tag, and lives on one node.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
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

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

_PREFIX = "politeness:"
_COMMON_TAG = "{all}:"

# Seconds. Whoever does not answer for so long is away.
PATIENCE = 0.5
# One that answered just now, while this process was busy with other things, is not.
_SECOND_LOOK = 0.05

# In a URL's scheme, behind redis or rediss.
CLUSTER = "+cluster"

# A cluster's errors are of a kind of their own.
_FAILURES = (RedisError, RedisClusterException, OSError)

_WRONG_TYPE = "WRONGTYPE"

_MOST_NAME = 200
_ESCAPED = re.compile(rb"[^a-z0-9._:-]")


class Away(Exception):  # noqa: N818 - a state rather than a mistake
    """The server does not answer, or not as it should."""


class Call(NamedTuple):
    """One run of a script, ``grant`` or ``save``."""

    script: str
    keys: Sequence[str]
    arguments: Sequence[str | int]


class KeysOfOne(NamedTuple):
    """Of a budget: its send times, those who share it, and what was learned, in all
    detail and in short."""

    times: str
    members: str
    lore: str
    gist: str


class Keys:
    """``alone`` says that no script has to see the keys of more than one slot."""

    def __init__(self, *, alone: bool) -> None:
        self._alone = alone

    def of(self, name: str) -> KeysOfOne:
        text = escaped(name)
        base = f"{{{text}}}" if self._alone else f"{_COMMON_TAG}{text}"
        return KeysOfOne(*(f"{_PREFIX}{base}:{what}" for what in KeysOfOne._fields))


def escaped(name: str) -> str:
    """A host may call itself anything: no braces, nothing unprintable, not too long."""
    raw = name.encode("utf-8", "surrogatepass")
    text = _ESCAPED.sub(lambda match: b"%%%02x" % match[0][0], raw).decode()
    if len(text) <= _MOST_NAME:
        return text
    return f"%{hashlib.sha256(raw).hexdigest()}"


def slot_name(key: str) -> str:
    return f"slot:{key}"


def micros(seconds: float) -> int:
    return round(1e6 * seconds)


class Link:
    """Runs scripts, many at once in one round trip. Raises Away for all that can go
    wrong on the way, and then starts anew with the next call."""

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        self._url = f"{scheme.removesuffix(CLUSTER)}://{rest}"
        self._kind = RedisCluster if scheme.endswith(CLUSTER) else Redis
        self._client = self._connect()
        prelude = _source("prelude")
        self._scripts = {name: prelude + _source(name) for name in ("grant", "save")}
        self._hashes = {
            name: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            for name, text in self._scripts.items()
        }

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        """Return the answers, in order; those that are errors as exceptions."""
        answers: list[Any] = await self._in_time(self._send(calls))
        if any(isinstance(answer, NoScriptError) for answer in answers):
            # Restarted, or another server took over: all of the scripts are gone.
            await self._in_time(self._load())
            answers = await self._repeat(calls, answers, NoScriptError)
        damaged = [
            call.keys
            for call, answer in zip(calls, answers, strict=True)
            if isinstance(answer, ResponseError) and _WRONG_TYPE in str(answer)
        ]
        if damaged:
            # Somebody else has put something there.
            await self.remove([key for keys in damaged for key in keys])
            answers = await self._repeat(calls, answers, ResponseError)
        for answer in answers:
            if isinstance(answer, RedisError):
                raise Away(str(answer)) from answer
        return answers

    @property
    def where(self) -> str:
        """The server's address, without the credentials in its URL."""
        url = urlsplit(self._url)
        if url.scheme == "unix":
            return url.path
        return f"{url.hostname or 'localhost'}:{url.port or 6379}"

    def _connect(self) -> Redis | RedisCluster:
        return self._kind.from_url(
            self._url,
            socket_connect_timeout=PATIENCE,
            retry=Retry(NoBackoff(), 0),
            decode_responses=False,
            protocol=2,
        )

    async def ping(self) -> None:
        await self._in_time(self._client.ping())

    async def remove(self, keys: Sequence[str]) -> None:
        await self._in_time(self._client.delete(*keys))

    async def close(self) -> None:
        with suppress(Away):
            await self._in_time(self._client.aclose())

    async def _send(self, calls: Sequence[Call]) -> list[Any]:
        async with self._client.pipeline(transaction=False) as pipeline:
            for script, keys, arguments in calls:
                pipeline.execute_command(
                    "EVALSHA", self._hashes[script], len(keys), *keys, *arguments
                )
            return await pipeline.execute(raise_on_error=False)

    async def _load(self) -> None:
        for text in self._scripts.values():
            await self._client.script_load(text)  # on all nodes of a cluster

    async def _repeat(
        self, calls: Sequence[Call], answers: list[Any], why: type[RedisError]
    ) -> list[Any]:
        lost = [n for n, answer in enumerate(answers) if isinstance(answer, why)]
        again = await self._in_time(self._send([calls[n] for n in lost]))
        for n, answer in zip(lost, again, strict=True):
            answers[n] = answer
        return answers

    async def _in_time(self, work: Awaitable[Any]) -> Any:
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait({task}, timeout=PATIENCE)
            if not done:
                done, _ = await asyncio.wait({task}, timeout=_SECOND_LOOK)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            await self._hang_up(task)
            raise Away(f"no answer within {PATIENCE} s")
        try:
            return task.result()
        except _FAILURES as error:
            raise Away(str(error) or type(error).__name__) from error

    async def _hang_up(self, task: asyncio.Future[Any]) -> None:
        """Whatever the answer was, it must not be taken for the next one."""
        task.cancel()
        closing = asyncio.ensure_future(self._client.aclose())
        self._client = self._connect()
        await asyncio.wait({task, closing}, timeout=_SECOND_LOOK)
        for work in (task, closing):
            work.cancel()
            work.add_done_callback(_ignore)


def _source(name: str) -> str:
    return Path(__file__).with_name(f"{name}.lua").read_text("utf-8")


def _ignore(work: asyncio.Future[Any]) -> None:
    if not work.cancelled():
        work.exception()
