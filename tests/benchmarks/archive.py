"""What it takes to archive a large wiki with the example project.

    python -m tests.benchmarks.archive [pages]

The wiki is a generated one on loopback, in a process of its own; nothing is held back.
The memory of the crawl while the archive grows, and whether all of it is right.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.spiders import resident_megabytes

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = 50_000
PROJECT = Path(__file__).parents[2] / "example_project"
sys.path.append(str(PROJECT))

# Seconds.
LOOK_EVERY = 1.0
TELL_EVERY = 30.0


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else PAGES
    with tempfile.TemporaryDirectory() as folder:
        wiki = subprocess.Popen(
            [sys.executable, "-m", "irowiki.demo_wiki", str(count)],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        assert wiki.stdout
        [api] = re.findall(r"http\S+api.php", wiki.stdout.readline())
        try:
            watch(crawl(api, folder), Path(folder))
        finally:
            wiki.terminate()
            wiki.wait()
        [archive] = Path(folder).iterdir()
        port = int(api.split(":")[2].split("/")[0])
        check(archive, count, port)


def crawl(api: str, folder: str) -> subprocess.Popen[bytes]:
    settings = {
        "ARCHIVES": folder,
        "POLITENESS_EXEMPT": "127.0.0.1,localhost",
        "CONCURRENT_REQUESTS_PER_DOMAIN": "4",
    }
    options = [f"--set={name}={value}" for name, value in settings.items()]
    command = ["-m", "scrapy", "crawl", "irowiki", "-a", f"api={api}", *options]
    return subprocess.Popen([sys.executable, *command], cwd=PROJECT)


def watch(process: subprocess.Popen[bytes], folder: Path) -> None:
    begun = told = time.monotonic()
    most = 0.0
    while process.poll() is None:
        time.sleep(LOOK_EVERY)
        try:
            megabytes = resident_megabytes(process.pid)
        except (FileNotFoundError, IndexError):
            break
        most = max(most, megabytes)
        if time.monotonic() - told >= TELL_EVERY:
            told = time.monotonic()
            pages = sum(1 for _ in records(next(folder.iterdir()) / "pages.jsonl"))
            print(
                f"{told - begun:6.0f} s {pages:7} pages {megabytes:7.1f} MB", flush=True
            )
    print(f"{time.monotonic() - begun:.0f} s in all, {most:.1f} MB at most", flush=True)


def records(path: Path) -> Iterator[dict[str, object]]:
    if path.exists():
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                if line.endswith("\n"):
                    yield json.loads(line)


def check(archive: Path, count: int, port: int) -> None:
    """Compare with the wiki, record by record."""
    from irowiki.demo_wiki import DemoWiki
    from irowiki.demo_wiki.content import generated_pages
    from irowiki.demo_wiki.files import generated_files

    from tests.support.wiki_archive import archive_of, read_archive

    files = generated_files(count // 100)
    wiki = DemoWiki(generated_pages(count), files, port=port, limit=None)
    wiki.stop()
    expected, found = archive_of(wiki), read_archive(archive)
    print(
        f"{len(found.pages)} pages, {len(found.revisions)} revisions and "
        f"{len(found.files)} files, {'all' if found == expected else 'NOT all'} as "
        f"they are in the wiki; {found.repeats.total()} records stand twice"
    )


if __name__ == "__main__":
    main()
