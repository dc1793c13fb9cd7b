"""See the package."""

from __future__ import annotations

import argparse
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks import rivals
from tests.benchmarks.rivals.crawlers import crawlers
from tests.benchmarks.rivals.judge import judge
from tests.benchmarks.rivals.page import markdown, svg
from tests.benchmarks.rivals.servers import LIMIT, SERVERS

if TYPE_CHECKING:
    from tests.benchmarks.rivals.crawlers import Crawler
    from tests.benchmarks.rivals.judge import Score
    from tests.benchmarks.rivals.servers import Running, Server

DOCS = Path(__file__).parents[3] / "docs"


def measure(server: Server, crawler: Crawler, pages: int, longest: float) -> Score:
    wanted = max(5, round(pages * server.share_of_pages))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with server.open(wanted, folder) as running:
            urls = folder / "urls"
            lines = (f"{running.url}/page/{number}\n" for number in range(wanted))
            urls.write_text("".join(lines))
            cpu = crawler.run(urls, folder, lambda: _has_pages(running), longest)
            return judge(running.arrivals(), wanted, server.fastest(wanted), cpu)


def measure_by_name(names: tuple[str, str], pages: int, longest: float) -> Score:
    """In another process, which is told names only."""
    [server] = [server for server in SERVERS if server.name == names[0]]
    [crawler] = [c for c in crawlers(server.rate) if c.name == names[1]]
    return measure(server, crawler, pages, longest)


def _has_pages(running: Running) -> bool:
    return any(a.path.startswith("/page/") for a in running.arrivals())


def _is_chosen(name: str, parts: str) -> bool:
    return any(part.lower() in name.lower() for part in parts.split(","))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=rivals.__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=400)
    parser.add_argument("--longest", type=float, default=90.0, help="seconds per crawl")
    parser.add_argument("--jobs", type=int, default=1, help="crawls at a time")
    parser.add_argument("--servers", default="", help="parts of names, with commas")
    parser.add_argument("--crawlers", default="", help="parts of names, with commas")
    parser.add_argument("--write", action="store_true", help="docs/benchmark.md")
    options = parser.parse_args()
    known = [s for s in SERVERS if _is_chosen(s.name, options.servers)]
    entered = [c for c in crawlers(LIMIT) if _is_chosen(c.name, options.crawlers)]
    needs = [(s.name, s.needs) for s in known] + [(c.name, c.needs) for c in entered]
    missing = [f"{name} (`{command}`)" for name, command in needs if command]
    servers = [server for server in known if not server.needs]
    shown = [crawler for crawler in entered if not crawler.needs]
    cells = [(server.name, crawler.name) for server in servers for crawler in shown]
    run = partial(measure_by_name, pages=options.pages, longest=options.longest)
    scores: dict[tuple[str, str], Score] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for names, score in zip(cells, pool.map(run, cells), strict=True):
            scores[names] = score
            print(
                f"{names[0]:24} {names[1]:34} {score.pages:4} pages, share "
                f"{score.share:.2f}, {score.refused_per_100:5.1f} refused per 100, "
                f"{score.impatient:3} against Retry-After, {score.seconds:5.1f} s, "
                f"CPU {score.cpu:.1f} s",
                flush=True,
            )
    page = markdown(servers, shown, scores, options, missing)
    text = "\n".join(page) + "\n"
    print(f"\n{text}")
    if options.write:
        (DOCS / "benchmark.md").write_text(text, "utf-8")
        (DOCS / "benchmark.svg").write_text(svg(servers, shown, scores), "utf-8")


if __name__ == "__main__":
    main()
