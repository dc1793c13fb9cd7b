"""What it costs to keep what was learned.

    python -m tests.benchmarks.state

Prints, for a state file that knows a million hosts: how long it takes to open it, to
recall one host, and to save a thousand; and by how much the event loop is held up at
worst meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.storage.records import Records
from scrapy_politeness.storage.state_file import Entry, StateFile

KNOWS = Learned(4.0, 0.1, None)
TICK = 0.001


def host(number: int) -> str:
    return f"host{number * 7919 % 1_000_003}.example.org"


def slot(key: str) -> Slot:
    made = Slot(key, Bounds(), spacing=0.0, concurrency=8)
    made.recall(KNOWS, 0.0)
    return made


async def longest_stall(seconds: float) -> float:
    """Return by how much a timer that ticks every millisecond is late at most."""
    worst = 0.0
    end = time.perf_counter() + seconds
    while (began_at := time.perf_counter()) < end:
        await asyncio.sleep(TICK)
        worst = max(worst, time.perf_counter() - began_at - TICK)
    return worst


async def save(records: Records, hosts: int, number: int) -> None:
    for key in random.sample(range(hosts), number):
        records.changed(slot(host(key)))
    stall = asyncio.ensure_future(longest_stall(2.0))
    await asyncio.sleep(0.1)
    began_at = time.perf_counter()
    records._save()
    begun = time.perf_counter() - began_at
    while records._learned or records._changed:
        await asyncio.sleep(TICK)
    written = time.perf_counter() - began_at
    print(
        f"save {number:>6,}: begun in {1e3 * begun:.1f} ms, written after "
        f"{1e3 * written:.0f} ms, loop held up for {1e3 * await stall:.1f} ms at most"
    )


async def measure(path: Path, hosts: int) -> None:
    began_at = time.perf_counter()
    records = Records(StateFile(path))
    print(f"open: {time.perf_counter() - began_at:.2f} s")
    for what, keys in (
        ("known", [host(number) for number in random.sample(range(hosts), 10_000)]),
        ("unknown", [f"other{number}.example.org" for number in range(10_000)]),
    ):
        began_at = time.perf_counter()
        for key in keys:
            records.recall(key, 1.0)
        spent = time.perf_counter() - began_at
        print(f"recall, {what}: {1e6 * spent / len(keys):.0f} µs")
    idle = await longest_stall(1.0)
    print(f"idle: loop held up for {1e3 * idle:.1f} ms at most")
    for number in (1, 1_000, 1_000, 1_000, 10_000):
        await save(records, hosts, number)
    records.close()
    await records.wait_closed()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=1_000_000)
    hosts = parser.parse_args().hosts
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state.sqlite")
        state = StateFile(path)
        now = time.time()
        state.write({}, {host(number): Entry(KNOWS, now) for number in range(hosts)})
        state.close_reader()
        state.close()
        print(f"{hosts:,} hosts: {path.stat().st_size / 1e6:.0f} MB")
        asyncio.run(measure(path, hosts))


if __name__ == "__main__":
    main()
