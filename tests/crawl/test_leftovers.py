"""When a crawl is over, nothing of it is left, for those who crawl again and again."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import scrapy

from tests.benchmarks.long_run import hosts
from tests.benchmarks.long_run_plan import ROBOTS, Plan
from tests.benchmarks.long_run_site import read_log
from tests.support.crawl import (
    DEFAULTS,
    REACTOR_SETTINGS,
    REACTORS,
    Reactor,
    environment,
)

if TYPE_CHECKING:
    from pathlib import Path

PLAN = Plan(requests=120, hosts=70)

SETTINGS: dict[str, Any] = {
    **DEFAULTS,
    "POLITENESS_START_RATE": 50,
    "POLITENESS_MIN_RATE": 3,
    "POLITENESS_MAX_RATE": 100,
    "POLITENESS_BACKOFF_BASE": 0.2,
    "POLITENESS_BACKOFF_MAX": 0.5,
    "POLITENESS_RETRY_AFTER_MAX": 0.5,
    "POLITENESS_STATE": "state",
    "POLITENESS_REPORT": "report.html",
    "POLITENESS_PROMETHEUS_PORT": 0,
    "CONCURRENT_REQUESTS": 64,
    "CONCURRENT_ITEMS": 4,
    "DOWNLOAD_TIMEOUT": 3,
    "LOG_LEVEL": "ERROR",
}

CHOSEN = REACTORS if scrapy.version_info >= (2, 15) else REACTORS[:2]


def start(reactor: Reactor, port: int, folder: Path) -> subprocess.Popen[str]:
    job = folder / "job"
    settings = {**SETTINGS, **REACTOR_SETTINGS[reactor]}
    job.write_bytes(pickle.dumps((settings, {"plan": PLAN, "port": port})))
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.leftovers", reactor, str(job)],
        cwd=folder,
        env=os.environ | environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Ending:
    """What three crawls in one process have left, and what the hosts saw of them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        output, self.log = process.communicate(timeout=200)
        self.crawls = [json.loads(line) for line in output.splitlines()]
        self.served: Counter[tuple[int, int]] = Counter()


def crawl_everywhere(folders: dict[Reactor, Path]) -> dict[Reactor, Ending]:
    """All at the same time: much of it is waiting."""
    found = {}
    with ExitStack() as stack:
        running = {}
        for reactor, folder in folders.items():
            folder.mkdir()
            port = stack.enter_context(hosts(PLAN, folder / "visits"))
            running[reactor] = stack.enter_context(start(reactor, port, folder))
        for reactor, process in running.items():
            found[reactor] = Ending(process)
    for reactor, ending in found.items():
        for visit in read_log(folders[reactor] / "visits"):
            if visit.status == 200 and visit.page != ROBOTS:
                ending.served[visit.owner, visit.page] += 1
    return found


def test_three_crawls_in_one_process_fetch_all_and_leave_nothing(
    tmp_path: Path,
) -> None:
    planned = {(h, p) for h in range(PLAN.hosts) for p in range(PLAN.pages(h))}
    endings = crawl_everywhere({reactor: tmp_path / reactor for reactor in CHOSEN})
    for reactor, ending in endings.items():
        reasons = [crawl["stats"]["finish_reason"] for crawl in ending.crawls]
        assert reasons == ["finished"] * 3, ending.log
        assert "Traceback" not in ending.log
        assert ending.served.keys() == planned, reactor
        assert min(ending.served.values()) == 3, reactor
        for crawl in ending.crawls:
            assert crawl["parts"] > 8
            for kind in ("alive", "objects", "tasks", "timers", "threads"):
                assert not crawl[kind], (reactor, kind)
        first, *others = (crawl["files"] for crawl in ending.crawls)
        assert others == [first] * 2, reactor
