"""A TCP proxy on loopback that delays, cuts and stalls what goes through it."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

_CHUNK = 65_536


class TcpProxy:
    """Stands before the server at ``port``, in a thread of its own. ``round_trip`` is
    what it adds to the time of an answer, half of it in each direction."""

    def __init__(self, port: int, round_trip: float = 0.0) -> None:
        self._target = port
        self.round_trip = round_trip
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._is_cut = False

    def __enter__(self) -> TcpProxy:
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def cut(self) -> None:
        """Close all connections, and every new one at once."""
        self._is_cut = True
        self._run(self._hang_up())

    def stall(self) -> None:
        """Connections stay open, and nothing goes through."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def mend(self) -> None:
        """All is well again."""
        self._is_cut = False
        self._loop.call_soon_threadsafe(self._flows.set)

    def lead_to(self, port: int) -> None:
        """New connections go to another server; those that are open stay."""
        self._target = port

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _open(self) -> None:
        self._flows.set()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        await self._hang_up()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hang_up(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(there[1])
        for source, sink in ((reader, there[1]), (there[0], writer)):
            task = self._loop.create_task(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        """What arrives together is delayed together, and nothing waits for another."""
        last: asyncio.Task[None] | None = None
        try:
            while data := await source.read(_CHUNK):
                last = self._loop.create_task(self._forward(sink, data, last))
                self._tasks.add(last)
                last.add_done_callback(self._tasks.discard)
            if last is not None:
                await last
        except OSError:
            pass
        finally:
            self._writers.discard(sink)
            sink.close()

    async def _forward(
        self,
        sink: asyncio.StreamWriter,
        data: bytes,
        before: asyncio.Task[None] | None,
    ) -> None:
        if self.round_trip:
            await asyncio.sleep(self.round_trip / 2)
        if before is not None:
            await before
        await self._flows.wait()
        if not sink.is_closing():
            sink.write(data)
