"""What is lost, and what is fetched twice, when crawls with a job directory are killed.

    python -m tests.benchmarks.kills [kills] [--stock-filter]

Half of the kills come while a page with 3,000 links is parsed, the others later. Run it
with each version of Scrapy that is of interest. With ``--stock-filter``, Scrapy's own
duplicates filter is used instead of the add-on's.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from random import Random

import scrapy

from tests.support.kills import AT_ONCE, kill_and_resume

LINKS = 3000
IN_HUB_PER_JOB = 9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kills", type=int, nargs="?", default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stock-filter", action="store_true")
    options = parser.parse_args()
    chance = Random(options.seed)
    settings = {"POLITENESS_DUPEFILTER": not options.stock_filter}
    in_hub = lost = in_progress = 0
    again: list[int] = []
    done: list[int] = []
    while len(again) < options.kills:
        with tempfile.TemporaryDirectory() as folder:
            damage = kill_and_resume(
                Path(folder),
                chance,
                links=LINKS,
                in_hub=IN_HUB_PER_JOB,
                settings=settings,
            )
        in_hub += damage.in_hub
        lost += damage.lost
        in_progress = max(in_progress, damage.in_progress)
        again += damage.again
        done += damage.again_done
        print(f"  {len(again)} kills: {damage}", flush=True)
    print(
        f"Scrapy {scrapy.__version__}: {len(again)} kills, {in_hub} of them during the "
        f"page with {LINKS} links: {lost} pages lost; fetched again per kill: at most "
        f"{max(again)}, {sum(again) / len(again):.1f} on average ({in_progress} in "
        f"progress at once, {AT_ONCE} of them in the downloader); of these, parsed "
        f"before: {sum(done)} in all"
    )


if __name__ == "__main__":
    main()
