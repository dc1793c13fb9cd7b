"""The example project, run the way its reader runs it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawl import RunningCrawl, start_process
from tests.support.wiki_archive import Archive, archive_of, read_archive, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from irowiki.demo_wiki import DemoWiki
    from irowiki.demo_wiki.faults import Reply

    from tests.support.crawl import Crawl

SOURCE = Path(__file__).parents[2] / "example_project"

# The add-on at full speed: these tests are about the spider.
UNPACED = (
    *("-s", "POLITENESS_EXEMPT=127.0.0.1,localhost"),
    *("-s", "CONCURRENT_REQUESTS_PER_DOMAIN=4"),
)
# Fast, but with all that the add-on does.
PACED = (
    *("-s", "POLITENESS_START_RATE=20"),
    *("-s", "POLITENESS_MAX_RATE=50"),
    *("-s", "POLITENESS_BACKOFF_BASE=0.2"),
)


@dataclass(frozen=True)
class Project:
    folder: Path

    def start(self, *options: str, **env: str) -> RunningCrawl:
        logs = Path(tempfile.mkdtemp(prefix="example-"))
        with (logs / "log").open("wb") as log:
            command = ("crawl", "irowiki", *options)
            process = start_process(self.folder, env, log.fileno(), command)
        return RunningCrawl(process, logs)

    def crawl(self, *options: str, timeout: float = 120, **env: str) -> Crawl:
        with self.start(*options, **env) as running:
            return running.wait(timeout)

    def archive(self, api: str | None = None) -> Path:
        name = wiki_name(api) if api else "demo"
        return self.folder / "archives" / name


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy, so that a crawl writes nothing into the checkout."""
    monkeypatch.syspath_prepend(str(SOURCE))
    folder = tmp_path / "example_project"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("archives"))
    return Project(folder)


def wiki_name(api: str) -> str:
    from irowiki.mediawiki import wiki_name

    return wiki_name(api)


@contextmanager
def serving(wiki: DemoWiki) -> Iterator[str]:
    wiki.start()
    try:
        yield wiki.api_url
    finally:
        wiki.stop()


def calm_wiki(cls: type[DemoWiki] | None = None, **options: Any) -> DemoWiki:
    from irowiki.demo_wiki import DemoWiki
    from irowiki.demo_wiki.faults import NO_FAULTS

    calm: dict[str, Any] = {"limit": None, "faults": NO_FAULTS}
    return (cls or DemoWiki)(**{**calm, **options})


def summary(crawl: Crawl) -> str:
    """What the crawl says at its very end."""
    return crawl.log[crawl.log.rindex("[irowiki.progress]") :]


def without_urls(archive: Archive) -> Archive:
    """The demo's port is another one in each run."""
    for record in archive.files.values():
        del record["url"]
    return archive


def asks_for(target: str, pageid: int) -> bool:
    return f"pageids={pageid}" in target.split("&")


def api_error(code: str) -> Reply:
    from irowiki.demo_wiki.api import ApiError
    from irowiki.demo_wiki.faults import api_error

    return api_error(ApiError(code, "Sorry."))


def test_demo_is_archived_whole_in_spite_of_all_that_goes_wrong(
    project: Project,
) -> None:
    crawl = project.crawl(*PACED)

    assert crawl.returncode == 0
    wiki = calm_wiki()
    wiki.stop()
    expected = without_urls(archive_of(wiki))
    archive = without_urls(read_archive(project.archive()))
    assert archive == expected
    assert not archive.repeats
    assert "ERROR" not in crawl.log
    text = summary(crawl)
    assert f"{len(expected.pages)} of {len(expected.pages)} pages" in text
    assert f"({len(expected.revisions)} revisions)" in text
    assert f"{len(expected.files)} of {len(expected.files)} files" in text
    assert "Nothing is missing" in text
    assert str(project.archive()) in text
    [report] = re.findall(r"Report: (\S+)", text)
    assert "127.0.0.1" in Path(report).read_text("utf-8")
    for times, trouble in (
        (1, "maxlag"),
        (3, "slow"),
        (1, "ratelimited"),
        (1, "503"),
        (2, "broken"),
    ):
        assert re.search(rf"\b{times} x {trouble}\b", text), trouble
    assert re.search(r"\d x 429 \+ Retry-After", text)


@pytest.mark.parametrize(
    ("options", "namespaces"),
    [
        ((), (0, 1, 6, 10, 14, 100)),
        (("-a", "namespaces=content"), (0, 6, 100)),
        (("-a", "namespaces=10,100"), (10, 100)),
    ],
)
def test_reads_the_wiki_whose_api_it_is_given(
    project: Project, options: tuple[str, ...], namespaces: tuple[int, ...]
) -> None:
    wiki = calm_wiki()
    with serving(wiki) as api:
        crawl = project.crawl("-a", f"api={api}", *UNPACED, *options)

    archive = read_archive(project.archive(api))
    assert crawl.returncode == 0
    assert archive == archive_of(wiki, namespaces)
    assert not archive.repeats
    assert "Nothing is missing" in summary(crawl)
    assert "demo wiki" not in crawl.log
    assert "has no contact address yet" in crawl.log
    assert current_texts(project, api) == {
        page["pageid"]: archive.revisions[page["revid"]]["text"].encode()
        for page in archive.pages.values()
    }
    site = json.loads((project.archive(api) / "siteinfo.json").read_bytes())
    assert site["statistics"]["pages"] == len(wiki.pages)
    assert site["namespaces"]["100"]["name"] == "Guide"


def current_texts(project: Project, api: str) -> dict[int, bytes]:
    """Do with the archive what the documentation does."""
    chapter = SOURCE.parent.joinpath("docs", "archive.md").read_text("utf-8")
    _, code, _ = chapter.partition("<!-- archive -->")[2].split("```", 2)
    code = code.removeprefix("python").replace("wiki.example.org-w", wiki_name(api))
    subprocess.run([sys.executable, "-c", code], cwd=project.folder, check=True)
    texts = (project.archive(api) / "texts").iterdir()
    return {int(text.stem): text.read_bytes() for text in texts}


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("main", "namespaces=main must be 'content', 'all' or numbers"),
        ("0,6", "This archive was started with namespaces=all, not 0,6"),
    ],
)
def test_namespaces_are_chosen_well_and_once(
    project: Project, choice: str, message: str
) -> None:
    from irowiki.ledger import Ledger

    api = "http://wiki.test/w/api.php"
    ledger = Ledger(project.archive(api) / "job" / "ledger.sqlite")
    ledger.note("namespaces", "all")
    ledger.close()

    crawl = project.crawl("-a", f"api={api}", "-a", f"namespaces={choice}")

    assert crawl.returncode == 1
    assert message in crawl.log


@pytest.mark.parametrize(
    ("options", "sent"),
    [((), "5"), (("-s", "MAXLAG=30"), "30"), (("-s", "MAXLAG="), "")],
)
def test_maxlag_is_a_setting(
    project: Project, options: tuple[str, ...], sent: str
) -> None:
    from irowiki.demo_wiki import DemoWiki

    lags = set()

    class Curious(DemoWiki):
        def reply(self, target: str) -> Reply:
            if "api.php" in target:
                lags.update(re.findall(r"[?&]maxlag=(\w*)", target) or [""])
            return super().reply(target)

    with serving(calm_wiki(Curious, pages=(), files=())) as api:
        crawl = project.crawl("-a", f"api={api}", *UNPACED, *options)

    assert crawl.returncode == 0
    assert lags == {sent}


def test_maxlag_must_be_a_number(project: Project) -> None:
    crawl = project.crawl("-s", "MAXLAG=soon")

    assert crawl.returncode == 1
    assert "MAXLAG=soon must be a whole number of seconds" in crawl.log


def test_complete_archive_is_left_alone(project: Project) -> None:
    wiki = calm_wiki()
    with serving(wiki) as api:
        project.crawl("-a", f"api={api}", *UNPACED)
        again = project.crawl("-a", f"api={api}", *UNPACED)

    assert again.returncode == 0
    assert "To archive the wiki again, rename the folder" in summary(again)
    archive = read_archive(project.archive(api))
    assert archive == archive_of(wiki)
    assert not archive.repeats


def test_archive_is_whole_although_the_crawl_was_killed_three_times(
    project: Project,
) -> None:
    wiki = calm_wiki()
    revisions = len(archive_of(wiki).revisions)
    with serving(wiki) as api:
        folder = project.archive(api)
        options = ("-a", f"api={api}", *PACED)
        for part in (0.1, 0.4, 0.8):
            with project.start(*options) as running:
                wait_for_lines(folder / "revisions.jsonl", part * revisions, running)
                running.kill()
                running.process.wait()
            # What a kill in the middle of writing leaves.
            with (folder / "revisions.jsonl").open("ab") as file:
                file.write(b'{"pageid": 1, "revid": 10')
        crawl = project.crawl(*options)

    assert crawl.returncode == 0
    assert "Resuming crawl" in crawl.log
    assert read_archive(folder) == archive_of(wiki)
    assert "Nothing is missing" in summary(crawl)


def test_after_ctrl_c_the_same_command_goes_on(project: Project) -> None:
    wiki = calm_wiki()
    with serving(wiki) as api:
        folder = project.archive(api)
        options = ("-a", f"api={api}", *PACED)
        with project.start(*options) as running:
            wait_for_lines(folder / "files.jsonl", 3, running)
            running.interrupt()
            stopped = running.wait()
        crawl = project.crawl(*options)

    assert "run the same command again" in summary(stopped)
    assert "MISSING" not in stopped.log
    archive = read_archive(folder)
    assert archive == archive_of(wiki)
    assert not archive.repeats
    assert "Nothing is missing" in summary(crawl)


def test_finished_demo_begins_anew_and_an_interrupted_one_goes_on(
    project: Project,
) -> None:
    from irowiki.ledger import Ledger, Work

    folder = project.archive()
    finished = Ledger(folder / "job" / "ledger.sqlite")
    finished.done(Work("site"))
    finished.close()
    (folder / "pages.jsonl").write_text("of an earlier run\n")
    with project.start(*PACED) as running:
        wait_for_lines(folder / "files.jsonl", 5, running)
        running.kill()
        running.process.wait()
    with project.start(*PACED) as running:
        running.wait_for_log("Resuming crawl")
        # It is there again, at its old address.
        wait_for_lines(folder / "files.jsonl", 10, running)
        wait_for_lines(folder / "pages.jsonl", 10, running)

    assert "an earlier run" not in (folder / "pages.jsonl").read_text("utf-8")


def wait_for_lines(path: Path, lines: float, running: RunningCrawl) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or path.read_bytes().count(b"\n") < lines:
        assert running.process.poll() is None, running.log_so_far()
        assert time.monotonic() < deadline, running.log_so_far()
        time.sleep(0.02)


def test_an_api_error_in_a_list_is_told_and_tried_by_the_next_run(
    project: Project,
) -> None:
    from irowiki.demo_wiki import DemoWiki

    class BrokenWiki(DemoWiki):
        is_broken = True

        def reply(self, target: str) -> Reply:
            if self.is_broken and "apcontinue" in target:
                return api_error("internal_api_error_DBQueryError")
            return super().reply(target)

    wiki = calm_wiki(BrokenWiki)
    with serving(wiki) as api:
        options = ("-a", f"api={api}", *UNPACED)
        crawl = project.crawl(*options)
        first = read_archive(project.archive(api))
        wiki.is_broken = False  # type: ignore[attr-defined]
        repaired = project.crawl(*options)

    expected = archive_of(wiki)
    assert 0 < len(first.pages) < len(expected.pages)
    assert first.files == expected.files
    assert "ERROR" in summary(crawl)
    assert "MISSING: the list of namespace 0 (internal_api_error" in summary(crawl)
    archive = read_archive(project.archive(api))
    assert archive == expected
    assert not archive.repeats
    assert "Nothing is missing" in summary(repaired)


def test_errors_that_pass_are_waited_for(project: Project) -> None:
    from irowiki.demo_wiki import DemoWiki
    from irowiki.demo_wiki.faults import Fault, FaultPlan

    class ShakyWiki(DemoWiki):
        asked: set[str]

        def reply(self, target: str) -> Reply:
            first = target not in self.asked
            self.asked.add(target)
            if first and "pageids=" in target:
                return api_error("internal_api_error_Exception")
            return super().reply(target)

    ShakyWiki.asked = set()
    wiki = calm_wiki(ShakyWiki, faults=FaultPlan({4: Fault("readonly", requests=2)}))
    with serving(wiki) as api:
        crawl = project.crawl("-a", f"api={api}", "-a", "namespaces=100", *PACED)

    assert read_archive(project.archive(api)) == archive_of(wiki, (100,))
    assert "because of MediaWiki readonly" in crawl.log
    assert "Refused in this run: 2, all retried later" in summary(crawl)
    assert "Nothing is missing" in summary(crawl)


def test_damaged_file_is_told_and_never_kept(project: Project) -> None:
    from dataclasses import replace

    from irowiki.demo_wiki import DemoWiki

    class Smudged(DemoWiki):
        is_broken = True

        def reply(self, target: str) -> Reply:
            reply = super().reply(target)
            if self.is_broken and "/images/" in target and "Puffling" in target:
                return replace(reply, body=reply.body[:-1])
            return reply

    wiki = calm_wiki(Smudged)
    with serving(wiki) as api:
        options = ("-a", f"api={api}", *UNPACED)
        crawl = project.crawl(*options)
        first = read_archive(project.archive(api))
        kept = list((project.archive(api) / "files").rglob("*Puffling*"))
        wiki.is_broken = False  # type: ignore[attr-defined]
        project.crawl(*options)

    expected = archive_of(wiki)
    assert first.files.keys() == expected.files.keys() - {"File:Puffling.png"}
    assert kept == []
    assert "MISSING: File:Puffling.png (its SHA-1 is" in summary(crawl)
    assert read_archive(project.archive(api)) == expected


def test_pages_deleted_meanwhile_are_not_missing(project: Project) -> None:
    from irowiki.demo_wiki import DemoWiki
    from irowiki.demo_wiki.faults import in_json

    class Forgetful(DemoWiki):
        def reply(self, target: str) -> Reply:
            if asks_for(target, 7):
                page = {"pageid": 7, "missing": True}
                return in_json({"batchcomplete": True, "query": {"pages": [page]}})
            return super().reply(target)

    wiki = calm_wiki(Forgetful)
    with serving(wiki) as api:
        crawl = project.crawl("-a", f"api={api}", *UNPACED)

    archive = read_archive(project.archive(api))
    assert archive.pages.keys() == archive_of(wiki).pages.keys() - {7}
    assert "Nothing is missing" in summary(crawl)
    assert "Deleted before they could be archived: 1" in summary(crawl)


def test_doubts_a_list_that_is_shorter_than_the_wiki_counts(project: Project) -> None:
    from irowiki.demo_wiki import DemoWiki
    from irowiki.demo_wiki.faults import in_json

    class Secretive(DemoWiki):
        def reply(self, target: str) -> Reply:
            if "list=allimages" in target:
                return in_json({"batchcomplete": True, "query": {"allimages": []}})
            return super().reply(target)

    wiki = calm_wiki(Secretive)
    with serving(wiki) as api:
        crawl = project.crawl("-a", f"api={api}", *UNPACED)

    assert "WARNING" in summary(crawl)
    assert f"listed 0 images, but counts {len(wiki.files)}" in summary(crawl)
    assert read_records(project.archive(api) / "files.jsonl") == []


def test_an_answer_that_makes_no_sense_is_told(project: Project) -> None:
    """Neither an answer that never ends nor one without the list it should have."""
    from irowiki.demo_wiki import DemoWiki
    from irowiki.demo_wiki.faults import Reply, in_json

    class Confused(DemoWiki):
        def reply(self, target: str) -> Reply:
            if asks_for(target, 2):
                rest = {"rvcontinue": "20150101000000|1", "continue": "||info"}
                return in_json({"continue": rest})
            if "list=allimages" in target:
                return in_json({"batchcomplete": True, "query": {}})
            if asks_for(target, 3):
                return Reply(b"<html>Please log in", "text/html")
            return super().reply(target)

    wiki = calm_wiki(Confused)
    with serving(wiki) as api:
        crawl = project.crawl("-a", f"api={api}", *UNPACED)

    archive = read_archive(project.archive(api))
    assert archive.pages.keys() == archive_of(wiki).pages.keys() - {2, 3}
    for gap in ("page 2 (nonsense", "page 3 (nonsense", "the list of files ("):
        assert gap in summary(crawl)


def test_says_what_to_install_for_the_demo(project: Project, tmp_path: Path) -> None:
    absent = 'raise ModuleNotFoundError("No module named limits", name="limits")'
    (tmp_path / "limits.py").write_text(absent)

    crawl = project.crawl(PYTHONPATH=str(tmp_path))

    assert crawl.returncode == 1
    assert "pip install 'scrapy-politeness[demo]'" in crawl.log
