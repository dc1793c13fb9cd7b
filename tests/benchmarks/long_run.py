"""One crawl of 200,000 requests over 2,000 hosts, with faults of all kinds.

    python -m tests.benchmarks.long_run [--requests 200000] [--hosts 2000]
        [--jobdir | --stock] [--trace]

Twenty hosts are crawled from the first second to the last, the others one after the
other. Printed as it goes: memory, what there is of ours, the pages per second and how
late the event loop was. At the end: whether every page was fetched once, whether
memory is flat, what was left behind, whether rates have drifted, and what the hosts
saw. With --jobdir, requests wait on disk, and the state file is kept; with --stock,
the same load without the add-on; with --trace, which lines of code hold more memory
at the end than after the first part (the crawl takes twice as long by it).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scrapy

from tests.benchmarks.long_run_crawl import Gauge, LongRun
from tests.benchmarks.long_run_plan import MAX_RATE, TIMEOUT, Plan
from tests.benchmarks.long_run_report import print_report
from tests.benchmarks.long_run_site import read_log
from tests.support.crawl import STOCK, start_crawl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.crawl import Crawl

_COLUMNS = {
    "at": "{:.0f} s",
    "done": "{}",
    "pages/s": "{:.0f}",
    "memory": "{:.1f} MB",
    "late_median": "{:.4f} s",
    "late": "{:.3f} s",
    "tasks": "{}",
    "timers": "{}",
    "delayed": "{}",
    "files": "{}",
    "slots": "{}",
    "tickets": "{}",
    "sent": "{}",
    "lines": "{}",
    "queued": "{}",
    "heap": "{}",
}


@contextmanager
def hosts(plan: Plan, log: Path) -> Iterator[int]:
    numbers = [str(plan.hosts), str(plan.requests)]
    module = "tests.benchmarks.long_run_site"
    command = [sys.executable, "-m", module, *numbers, str(log)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        assert process.stdin
        try:
            yield int(process.stdout.readline())
            process.stdin.close()
            process.wait(timeout=60)
        finally:
            process.kill()


def settings(plan: Plan, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    own: dict[str, Any] = {
        "POLITENESS_START_RATE": 2,
        # No tail of hours for the few that had all kinds of bad luck.
        "POLITENESS_MIN_RATE": 0.5,
        "POLITENESS_MAX_RATE": MAX_RATE,
        "POLITENESS_RAISE_AFTER": 5,
        "POLITENESS_BACKOFF_BASE": 1,
        "POLITENESS_BACKOFF_MAX": 10,
        "POLITENESS_MAX_RESCHEDULES": 10,
        "POLITENESS_LIMITS": plan.limits(),
        # Fewer than there are: what is kept of hosts comes to an end, too.
        "POLITENESS_MAX_SLOTS": plan.hosts // 4,
    }
    if options.jobdir:
        own["JOBDIR"] = str(folder / "job")
        own["POLITENESS_STATE"] = str(folder / "state.db")
    if options.stock:
        own = {**STOCK, "DOWNLOAD_DELAY": 0.25, "RANDOMIZE_DOWNLOAD_DELAY": False}
    return {
        "CONCURRENT_REQUESTS": 64,
        # As many tasks are begun for every response.
        "CONCURRENT_ITEMS": 4,
        "DOWNLOAD_TIMEOUT": TIMEOUT,
        # Scrapy's list of what it has seen grows for ever.
        "DUPEFILTER_CLASS": "scrapy.dupefilters.BaseDupeFilter",
        "RETRY_TIMES": 5,
        "LOG_LEVEL": "WARNING",
        "EXTENSIONS": {Gauge: 0},
        "GAUGE_FILE": str(folder / "gauge"),
        "GAUGE_EVERY": options.every,
        "GAUGE_TRACE": options.trace,
        **own,
    }


def run(plan: Plan, options: argparse.Namespace, folder: Path) -> Crawl:
    with hosts(plan, folder / "visits") as port:
        crawl = start_crawl(
            LongRun, settings=settings(plan, options, folder), plan=plan, port=port
        )
        with crawl as running:
            print("| " + " | ".join(_COLUMNS) + " |")
            print("|" + "--:|" * len(_COLUMNS))
            shown: list[dict[str, Any]] = []
            while running.process.poll() is None:
                time.sleep(0.5)
                _print_new(folder / "gauge", shown)
            return running.wait()


def readings(gauge: Path) -> list[dict[str, Any]]:
    """A last line that is still being written does not count."""
    if not gauge.exists():
        return []
    lines = gauge.read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]


def _print_new(gauge: Path, shown: list[dict[str, Any]]) -> None:
    for reading in readings(gauge)[len(shown) :]:
        before = shown[-1] if shown else {"at": 0.0, "done": 0}
        shown.append(reading)
        if "done" not in reading:
            shown[-1] = before
            continue
        seconds = reading["at"] - before["at"]
        row = {**reading, "pages/s": (reading["done"] - before["done"]) / seconds}
        cells = (form.format(row.get(name, 0)) for name, form in _COLUMNS.items())
        print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--hosts", type=int, default=2_000)
    parser.add_argument("--every", type=float, default=5.0, help="seconds")
    parser.add_argument("--jobdir", action="store_true")
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--trace", action="store_true")
    options = parser.parse_args()
    # Every host has a socket to listen at, and several to talk.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    plan = Plan(options.requests, options.hosts)
    print(f"Scrapy {scrapy.__version__}: {plan.pages_in_all} pages, {plan.hosts} hosts")
    with tempfile.TemporaryDirectory(prefix="long-run-") as name:
        folder = Path(name)
        crawl = run(plan, options, folder)
        visits = list(read_log(folder / "visits"))
        good = print_report(plan, crawl, readings(folder / "gauge"), visits)
    sys.exit(not good)


if __name__ == "__main__":
    main()
