"""Starts crawls by forking a process that has imported Scrapy already.

The imports take more than a second of CPU time, and most crawls of the tests a few
hundredths: hundreds of crawls would spend minutes on nothing else. What is forked is a
process of its own in every other respect.

::

    test ─ control ─► server: folder and environment, with output and channel
                        │ fork
                        ▼
    test ◄─ channel ── crawl: its pid, and in the end its return code
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pickle
import pkgutil
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_NUMBER = struct.Struct("i")

# A message fits into one packet: an environment may be long.
_MOST = 1 << 20


class ForkedProcess:
    """As much of ``subprocess.Popen`` as the tests use."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.returncode: int | None = None
        self.pid = self._receive()

    def _receive(self) -> int:
        data = self._channel.recv(_NUMBER.size)
        if not data:
            raise ChildProcessError("The server of crawls has gone")
        number: int = _NUMBER.unpack(data)[0]
        return number

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._channel.settimeout(timeout)
            try:
                self.returncode = self._receive()
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("crawl", timeout or 0.0) from None
            self._channel.close()
        return self.returncode

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The test's end."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forking", str(theirs.fileno())],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._stop)

    def start(
        self,
        folder: str,
        env: Mapping[str, str],
        output: int,
        errors: int,
        command: Sequence[str],
    ) -> ForkedProcess:
        """Run the job that is written down in the folder; or a ``command`` of Scrapy
        there, if that is given."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            message = pickle.dumps((folder, dict(env), command))
            files = [output, errors, theirs.fileno()]
            socket.send_fds(self._control, [message], files)
        return ForkedProcess(ours)

    def _stop(self) -> None:
        self._control.close()
        self._process.wait()


def _import_what_crawls_need() -> None:
    import pytest  # noqa: F401
    import scrapy.cmdline
    import scrapy.commands
    import scrapy.resolver
    import scrapy.squeues
    from scrapy.settings import default_settings
    from scrapy.utils.misc import load_object

    import scrapy_politeness.commands.politeness  # noqa: F401
    import tests.support.crawl  # noqa: F401

    for kind in ("DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "EXTENSIONS"):
        components: dict[str, int] = getattr(default_settings, f"{kind}_BASE")
        for path in components:
            if "telnet" not in path:  # off in all tests
                load_object(path)
    for name in ("SCHEDULER", "DUPEFILTER_CLASS", "STATS_CLASS", "LOG_FORMATTER"):
        load_object(getattr(default_settings, name))
    # Scrapy looks at the whole stack when it is imported, to say what is deprecated:
    # most of the time that a short crawl needs.
    for path in default_settings.DOWNLOAD_HANDLERS_BASE.values():
        load_object(path)
    for module in pkgutil.iter_modules(scrapy.commands.__path__):
        importlib.import_module(f"scrapy.commands.{module.name}")
    # Each crawl installs its own.
    assert "twisted.internet.reactor" not in sys.modules


class _Server:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def serve(self) -> Callable[[], int] | None:
        """Fork until the tests are over; in a child, return what it is to do."""
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._ended(key.fd, *key.data)
                    continue
                message, fds, _, _ = socket.recv_fds(self._control, _MOST, 3)
                if not message:
                    self._close()
                    return None
                *streams, channel_fd = fds
                if not self._fork(socket.socket(fileno=channel_fd)):
                    self._close()
                    folder, env, command = pickle.loads(message)
                    _become(folder, env, streams)
                    return partial(_run_command, command) if command else _run_job
                for stream in streams:
                    os.close(stream)

    def _fork(self, channel: socket.socket) -> int:
        pid = os.fork()
        if not pid:
            channel.close()
            return 0
        data = (pid, channel)
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, data)
        _tell(channel, pid)
        return pid

    def _ended(self, pidfd: int, pid: int, channel: socket.socket) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        with channel:
            _tell(channel, os.waitstatus_to_exitcode(status))

    def _close(self) -> None:
        for key in self._selector.get_map().values():
            if key.data is not None:
                os.close(key.fd)
                key.data[1].close()
        self._selector.close()
        self._control.close()


def _tell(channel: socket.socket, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody waits for it any more
        channel.send(_NUMBER.pack(number))


def _become(folder: str, env: dict[str, str], streams: list[int]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    for number, stream in enumerate(streams, 1):
        os.dup2(stream, number)
        os.close(stream)


def _run_job() -> int:
    from tests.support.crawl import run_job

    return run_job()


def _run_command(command: Sequence[str]) -> int:
    from scrapy.cmdline import execute

    sys.path[0] = ""  # as for ``python -m scrapy``
    execute(["scrapy", *command])
    return 0  # it ends by itself


def _main(control: int) -> None:
    # Ctrl-C is for the tests, and they end this.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_what_crawls_need()
    gc.freeze()  # so that children share it
    work = _Server(socket.socket(fileno=control)).serve()
    if work is not None:
        _end(_code_of(work))


def _code_of(work: Callable[[], int]) -> int:
    try:
        return work()
    except SystemExit as end:
        if isinstance(end.code, int):
            return end.code
        raise


def _end(code: int) -> NoReturn:
    """End as the forked processes of ``multiprocessing`` do. To take all modules apart
    costs as much as a short crawl, since no page of memory stays shared."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # what was left open is told
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
