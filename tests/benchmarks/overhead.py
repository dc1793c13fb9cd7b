"""What the add-on costs when it holds nothing back.

    python -m tests.benchmarks.overhead [--slots N] [--report | --observation]

Crawls a fast server in a process of its own, alternately with and without the add-on,
between spider_opened and spider_closed; with --report, the add-on is in both, and
what is compared is the report; with --observation, progress and metrics as well. A
crawl of loopback is bound by its own CPU, so the CPU time says the same as pages per
second, less disturbed by whatever else the machine does. The pages are spread over as
many slots, named by ``download_slot``.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, cast

import scrapy

from tests.support.crawl import STOCK, crawl

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMON: dict[str, Any] = {
    "CONCURRENT_REQUESTS": 16,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "LOG_LEVEL": "WARNING",
}

# Also the lowest rate: on a busy machine, answers become slow, which would slow down
# the crawl.
UNHELD: dict[str, Any] = {
    "POLITENESS_START_RATE": 1e6,
    "POLITENESS_MIN_RATE": 1e6,
    "POLITENESS_MAX_RATE": 1e6,
    "POLITENESS_ROBOTS": False,
}

CONTESTANTS: dict[str, dict[str, Any]] = {
    "without": {**COMMON, **STOCK},
    "with": {**COMMON, **UNHELD},
}

# Else a busy machine looks like a host that gets slow, which is slowed down for.
_STEADY = {
    "POLITENESS_LIMITS": {"127.0.0.1": {"limit": "1000000/s", "adaptive": False}}
}

OBSERVATION: dict[str, dict[str, Any]] = {
    "without": {**COMMON, **UNHELD, **_STEADY, "POLITENESS_PROGRESS": False},
    "with": {
        **COMMON,
        **UNHELD,
        **_STEADY,
        "POLITENESS_PROGRESS": True,
        "POLITENESS_PROMETHEUS_PORT": 0,
        "POLITENESS_REPORT": "report.html",
    },
}

REPORT_CONTESTANTS: dict[str, dict[str, Any]] = {
    "without": {**COMMON, **UNHELD},
    "with": {**COMMON, **UNHELD, "POLITENESS_REPORT": "report.html"},
}

_BODY = b"<html><head><title>Page</title></head><body></body></html>"

_ANSWER = (
    b"HTTP/1.1 200 OK\r\n"
    b"Content-Type: text/html; charset=utf-8\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class FixedAnswer(asyncio.Protocol):
    """Answers every request the same, without reading more than its end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._unread = b""

    def data_received(self, data: bytes) -> None:
        *requests, self._unread = (self._unread + data).split(b"\r\n\r\n")
        self._transport.write(_ANSWER * len(requests))


async def serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(FixedAnswer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def server_process() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.benchmarks.overhead", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


@dataclass(frozen=True)
class Speed:
    pages_per_second: float
    cpu_ms_per_page: float


def requests_for(url: str, pages: int, slots: int) -> list[dict[str, Any]]:
    return [
        {
            "url": f"{url}/page/{number}",
            "meta": {"download_slot": f"slot {number % slots}"} if slots > 1 else {},
        }
        for number in range(pages)
    ]


def measure(url: str, pages: int, slots: int, settings: dict[str, Any]) -> Speed:
    requests = requests_for(url, pages, slots)
    result = crawl(requests=requests, settings=settings, timeout=600)
    served = result.stats.get("downloader/response_status_count/200")
    if result.returncode or served != pages:
        raise RuntimeError(f"{served} of {pages} pages came:\n{result.log}")
    return Speed(pages / result.seconds, 1000 * result.cpu_seconds / pages)


def middle(speeds: list[Speed]) -> Speed:
    return Speed(
        median(speed.pages_per_second for speed in speeds),
        median(speed.cpu_ms_per_page for speed in speeds),
    )


def row(name: str, without: Speed, with_it: Speed) -> str:
    before, after = without.pages_per_second, with_it.pages_per_second
    cpu_before, cpu_after = without.cpu_ms_per_page, with_it.cpu_ms_per_page
    return (
        f"| {name} | {before:.0f} | {after:.0f} | {after / before:.3f} "
        f"| {cpu_before:.2f} | {cpu_after:.2f} | {cpu_after / cpu_before:.3f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--observation", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    contestants = CONTESTANTS
    if options.report:
        contestants = REPORT_CONTESTANTS
    elif options.observation:
        contestants = OBSERVATION
    compare(contestants, options.pages, options.rounds, options.slots)


def compare(
    contestants: dict[str, dict[str, Any]], pages: int, rounds: int, slots: int = 1
) -> None:
    print(f"Scrapy {scrapy.__version__}, crawls of {pages} pages, slots: {slots}\n")
    print(
        "| round | pages/s without | with | ratio "
        "| CPU ms/page without | with | ratio |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|")
    speeds: dict[str, list[Speed]] = {name: [] for name in contestants}
    with server_process() as url:
        for number in range(1, rounds + 1):
            # Each goes first every second time: machines warm up and slow down.
            for name in sorted(contestants, reverse=bool(number % 2)):
                speeds[name].append(measure(url, pages, slots, contestants[name]))
            latest = {name: measured[-1] for name, measured in speeds.items()}
            print(row(str(number), latest["without"], latest["with"]), flush=True)
    print(row("median", middle(speeds["without"]), middle(speeds["with"])))


if __name__ == "__main__":
    main()
