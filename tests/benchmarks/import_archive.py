"""Bring an archive back to life in an empty MediaWiki, and compare.

    python -m tests.benchmarks.import_archive

Archives the demo wiki, exports the archive, imports it into a MediaWiki with SQLite,
archives that one with the same spider, and compares the two archives page by page.
It needs PHP with SQLite and a MediaWiki: ``apt-get install mediawiki php-sqlite3``.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.wiki_archive import read_archive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.wiki_archive import Archive

PROJECT = Path(__file__).parents[2] / "example_project"
sys.path.append(str(PROJECT))
MEDIAWIKI = Path("/usr/share/mediawiki")

# Without these, MediaWiki 1.39 would not be the same wiki.
SETTINGS = """
$wgExtraNamespaces[100] = 'Guide';
$wgEnableUploads = true;
$wgJobRunRate = 0;
"""

Revision = dict[str, Any]


def main() -> None:
    if not MEDIAWIKI.exists() or not shutil.which("php"):
        sys.exit("This needs: apt-get install mediawiki php-sqlite3")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with demo_wiki() as api:
            original = archive(api, folder / "original")
        run([sys.executable, "-m", "irowiki.export", str(original)], PROJECT)
        wiki = install(folder)
        bring_back(wiki, original)
        with serving(wiki) as api:
            restored = archive(api, folder / "restored")
        compare(read_archive(original), read_archive(restored))


@contextmanager
def demo_wiki() -> Iterator[str]:
    from irowiki.demo_wiki import DemoWiki
    from irowiki.demo_wiki.faults import NO_FAULTS

    wiki = DemoWiki(limit=None, faults=NO_FAULTS)
    wiki.start()
    try:
        yield wiki.api_url
    finally:
        wiki.stop()


def archive(api: str, archives: Path) -> Path:
    options = {"ARCHIVES": archives, "POLITENESS_EXEMPT": "127.0.0.1,localhost"}
    settings = [f"--set={name}={value}" for name, value in options.items()]
    command = ["-m", "scrapy", "crawl", "irowiki", "-a", f"api={api}", *settings]
    run([sys.executable, *command, "--set=LOG_LEVEL=ERROR"], PROJECT)
    [folder] = archives.iterdir()
    return folder


def install(folder: Path) -> Path:
    wiki = folder / "wiki"
    shutil.copytree(
        MEDIAWIKI,
        wiki,
        symlinks=True,
        ignore=shutil.ignore_patterns("LocalSettings.php"),
    )
    (wiki / "images").unlink(missing_ok=True)
    (wiki / "images").mkdir()
    run(
        [
            *("php", "maintenance/install.php", "--dbtype=sqlite"),
            *(f"--dbpath={folder / 'data'}", "--server=http://127.0.0.1:8087"),
            *("--scriptpath=", "--pass=a-long-password", "Restored", "Admin"),
        ],
        wiki,
    )
    with (wiki / "LocalSettings.php").open("a") as settings:
        settings.write(SETTINGS)
    return wiki


def bring_back(wiki: Path, original: Path) -> None:
    """Do what the export says."""
    run(["php", "maintenance/deleteBatch.php"], wiki, "Main Page\n")
    base = f"--image-base-path={original}"
    dump = str(original / "wiki.xml")
    run(["php", "maintenance/importDump.php", "--uploads", base, dump], wiki)
    run(["php", "maintenance/rebuildrecentchanges.php"], wiki)
    run(["php", "maintenance/initSiteStats.php", "--update"], wiki)


@contextmanager
def serving(wiki: Path) -> Iterator[str]:
    server = subprocess.Popen(
        ["php", "-S", "127.0.0.1:8087", "-t", str(wiki)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while server.poll() is None:
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", 8087)):
                    break
            time.sleep(0.1)
        yield "http://127.0.0.1:8087/api.php"
    finally:
        server.terminate()
        server.wait()


def run(command: list[str], folder: Path, given: str = "") -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        input=given,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def compare(original: Archive, restored: Archive) -> None:
    before, after = histories(original), histories(restored)
    equal = differing = revisions = 0
    for title, history in before.items():
        found = after.get(title, [])
        # What an import must add to a page that has a file.
        if title in original.files and len(found) == len(history) + 1:
            found = found[:-1]
        if found == history:
            equal += 1
            revisions += len(history)
        else:
            differing += 1
            explain(title, history, found)
    print(f"{equal} of {len(before)} pages ({revisions} revisions) are equal")
    print(f"Only in the new wiki: {sorted(after.keys() - before.keys())}")
    same = sum(
        restored.contents.get(title) == content
        for title, content in original.contents.items()
    )
    print(f"{same} of {len(original.contents)} files are equal")
    sys.exit(1 if differing else 0)


def explain(title: str, before: list[Revision], after: list[Revision]) -> None:
    if len(before) != len(after):
        print(f"{title}: {len(before)} revisions, then {len(after)}")
        return
    for old, new in zip(before, after, strict=True):
        for name in old:
            if old[name] != new[name]:
                print(f"{title}: {name} {old[name]!r}, then {new[name]!r}")


def histories(archive: Archive) -> dict[str, list[Revision]]:
    """What must survive: an import gives new numbers to pages, revisions and users."""
    histories: dict[str, list[Revision]] = {}
    titles = {pageid: page["title"] for pageid, page in archive.pages.items()}
    for revid in sorted(archive.revisions):
        record = archive.revisions[revid]
        # MediaWiki marks users that it does not have, and shows hidden texts as empty.
        user = (record["user"] or "Unknown user").removeprefix("imported>")
        kept = {
            "timestamp": record["timestamp"],
            "user": user,
            "minor": record["minor"],
            "comment": record["comment"] or "",
            "text": record.get("text", ""),
            "contentmodel": record.get("contentmodel", "wikitext"),
        }
        histories.setdefault(titles[record["pageid"]], []).append(kept)
    return histories


if __name__ == "__main__":
    main()
