"""What it costs when one callback yields very many requests.

    python -m tests.benchmarks.batch [requests]

With the add-on and without it by turns, in memory and with JOBDIR; all requests are of
one host, which gets one per second, so that nearly all of them only wait. The CPU time
is less disturbed by whatever else the machine does; the time in all is not.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

from tests.support.crawl import STOCK, crawl
from tests.support.site import Site
from tests.support.spiders import Batch

REQUESTS = 100_000
ROUNDS = 2


def measure(batch: int, settings: dict[str, Any]) -> tuple[float, float, float]:
    """Return CPU seconds and megabytes until all are queued, and seconds in all."""
    with Site(1) as site:
        result = crawl(
            Batch,
            urls=site.page_urls(),
            settings={"LOG_LEVEL": "WARNING", "DOWNLOAD_DELAY": 1, **settings},
            batch=batch,
            timeout=600,
        )
    return result.stats["cpu_seconds"], result.stats["memory"], result.seconds


def main() -> None:
    batch = int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS
    print(f"{batch} requests yielded by one callback")
    print(f"{'':28}{'CPU s to queue':>15}{'MB':>8}{'s in all':>10}")
    for _ in range(ROUNDS):
        for where in ("in memory", "with JOBDIR"):
            for name, own in (("stock", STOCK), ("with the add-on", {})):
                with tempfile.TemporaryDirectory() as folder:
                    jobdir = {"JOBDIR": folder} if where == "with JOBDIR" else {}
                    seconds, memory, total = measure(batch, {**own, **jobdir})
                label = f"{where}, {name}"
                row = f"{label:28}{seconds:15.1f}{memory:8.0f}{total:10.1f}"
                print(row, flush=True)


if __name__ == "__main__":
    main()
