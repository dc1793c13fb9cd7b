"""How many instructions a page takes when nothing is held back.

    python -m tests.benchmarks.instructions [--slots N] [--pages N]

Counts those of the crawls in ``overhead`` with valgrind: unlike CPU time, they do not
depend on what else the machine does. Each crawl runs twice, with few and with more
pages, so that the difference leaves out the start and the end.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys

import scrapy
from scrapy.crawler import AsyncCrawlerProcess

from tests.benchmarks.overhead import CONTESTANTS, requests_for, server_process
from tests.support.crawl import DEFAULTS
from tests.support.spiders import Pages

# So that every slot has had its first page before the difference begins.
_WARM_UP = 50

_COUNTED = re.compile(r"I +refs: +([0-9,]+)")


def count(command: list[str]) -> int:
    """Return the instructions of a Python command."""
    tool = ["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    done = subprocess.run(
        ["valgrind", *tool, sys.executable, *command],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    counted = _COUNTED.search(done.stderr)
    assert counted is not None, done.stderr
    return int(counted[1].replace(",", ""))


def crawl(url: str, pages: int, slots: int, name: str) -> None:
    process = AsyncCrawlerProcess({**DEFAULTS, **CONTESTANTS[name]})
    crawler = process.create_crawler(Pages)
    process.crawl(crawler, requests=requests_for(url, pages, slots), urls=[])
    process.start()
    assert crawler.stats is not None
    served = crawler.stats.get_value("downloader/response_status_count/200")
    if served != pages:
        raise RuntimeError(f"{served} of {pages} pages came")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=300, help="after the warm-up")
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--crawl", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.crawl:
        url, name, pages = options.crawl
        crawl(url, int(pages), options.slots, name)
        return
    few = _WARM_UP + options.slots
    print(f"Scrapy {scrapy.__version__}, {options.pages} pages, slots: {options.slots}")
    per_page = {}
    with server_process() as url:
        for name in ("without", "with"):
            counts = []
            for pages in (few, few + options.pages):
                module = ["-m", "tests.benchmarks.instructions"]
                arguments = ["--slots", str(options.slots)]
                job = ["--crawl", url, name, str(pages)]
                counts.append(count([*module, *arguments, *job]))
            per_page[name] = (counts[1] - counts[0]) / options.pages
            print(f"{name}: {per_page[name] / 1e6:.3f} million a page", flush=True)
    print(f"ratio: {per_page['with'] / per_page['without']:.4f}")


if __name__ == "__main__":
    main()
