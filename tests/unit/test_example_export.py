"""The export of an archive as MediaWiki XML, read back as an importer would read it."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tracemalloc
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from tests.support.wiki_archive import Archive, archive_of

if TYPE_CHECKING:
    from collections.abc import Iterable

SOURCE = Path(__file__).parents[2] / "example_project"
NAMESPACE = "{http://www.mediawiki.org/xml/export-0.11/}"

# The order of the elements in the schema. An upload has three that are in MediaWiki's
# own dumps, but not in the schema.
ORDER = {
    "mediawiki": "siteinfo page",
    "siteinfo": "sitename dbname base generator case namespaces",
    "namespaces": "namespace",
    "page": "title ns id revision upload",
    "revision": "id parentid timestamp contributor minor comment origin model format "
    "text sha1",
    "upload": "timestamp contributor comment filename src size sha1base36 rel",
    "contributor": "username id ip",
}


@pytest.fixture(autouse=True)
def _example_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SOURCE))


@pytest.fixture
def demo() -> Archive:
    from irowiki.demo_wiki import DemoWiki

    wiki = DemoWiki()
    wiki.stop()
    archive = archive_of(wiki)
    for number, record in enumerate(archive.files.values()):
        record["path"] = f"files/{number}"
    return archive


def write(folder: Path, archive: Archive) -> None:
    site = {
        "general": {
            "sitename": 'A "wiki" & more',
            "lang": "en",
            "case": "first-letter",
        },
        "namespaces": {
            str(ns): {"id": ns, "case": "first-letter", "name": name}
            for ns, name in ((0, ""), (6, "File"), (100, "Guide"))
        },
    }
    (folder / "siteinfo.json").write_text(json.dumps(site))
    for name in ("pages", "revisions", "files"):
        write_lines(folder / f"{name}.jsonl", getattr(archive, name).values())


def write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as lines:
        lines.writelines(f"{json.dumps(record)}\n" for record in records)


def exported(folder: Path) -> ElementTree.Element:
    from irowiki.export import export

    out = StringIO()
    export(folder, out)
    return ElementTree.fromstring(out.getvalue())


def children(element: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return element.findall(f"{NAMESPACE}{name}")


def text(element: ElementTree.Element, name: str) -> str | None:
    return element.findtext(f"{NAMESPACE}{name}")


def read_back(dump: ElementTree.Element) -> Archive:
    """What of an archive is in its dump."""
    archive = Archive()
    for page in children(dump, "page"):
        pageid = int(text(page, "id") or 0)
        revisions = [
            read_revision(pageid, found) for found in children(page, "revision")
        ]
        archive.revisions.update({record["revid"]: record for record in revisions})
        archive.pages[pageid] = {
            "pageid": pageid,
            "ns": int(text(page, "ns") or 0),
            "title": text(page, "title"),
            "revid": revisions[-1]["revid"],
        }
        for file in children(page, "upload"):
            title = f"File:{(text(file, 'filename') or '').replace('_', ' ')}"
            archive.files[title] = {
                "title": title,
                "url": text(file, "src"),
                "sha1": hexadecimal(text(file, "sha1base36")),
                "size": int(text(file, "size") or 0),
                "path": text(file, "rel"),
                "timestamp": text(file, "timestamp"),
                "user": read_user(file)["user"],
                "comment": text(file, "comment"),
            }
    return archive


def read_revision(pageid: int, found: ElementTree.Element) -> dict[str, Any]:
    [body] = children(found, "text")
    [*comment] = children(found, "comment")
    is_hidden = body.get("deleted") == "deleted"
    record = {
        "pageid": pageid,
        "revid": int(text(found, "id") or 0),
        "parentid": int(text(found, "parentid") or 0),
        "timestamp": text(found, "timestamp"),
        **read_user(found),
        "minor": bool(children(found, "minor")),
        "comment": None if comment[0].get("deleted") else comment[0].text,
        "sha1": None if is_hidden else hexadecimal(text(found, "sha1")),
    }
    if not is_hidden:
        record["text"] = body.text
        record["contentmodel"] = text(found, "model")
        record["contentformat"] = text(found, "format")
        assert int(body.get("bytes") or 0) == len((body.text or "").encode())
    return record


def read_user(element: ElementTree.Element) -> dict[str, Any]:
    [contributor] = children(element, "contributor")
    if contributor.get("deleted"):
        return {"user": None, "userid": None}
    address = text(contributor, "ip")
    return {
        "user": address or text(contributor, "username"),
        "userid": 0 if address else int(text(contributor, "id") or 0),
    }


def hexadecimal(base_36: str | None) -> str:
    return f"{int(base_36 or '', 36):040x}"


def test_dump_has_all_that_the_archive_has(tmp_path: Path, demo: Archive) -> None:
    write(tmp_path, demo)

    dump = exported(tmp_path)

    found = read_back(dump)
    for record in demo.revisions.values():
        record.pop("hidden", None)
    kept = ("pageid", "ns", "title", "revid")
    assert found.pages == {
        pageid: {name: page[name] for name in kept}
        for pageid, page in demo.pages.items()
    }
    assert found.revisions == demo.revisions
    assert found.files == demo.files
    site = children(dump, "siteinfo")[0]
    assert text(site, "sitename") == 'A "wiki" & more'
    spaces = children(children(site, "namespaces")[0], "namespace")
    assert {space.get("key"): space.text or "" for space in spaces} == {
        "0": "",
        "6": "File",
        "100": "Guide",
    }


def test_elements_are_in_the_order_of_the_schema(tmp_path: Path, demo: Archive) -> None:
    write(tmp_path, demo)

    for element in exported(tmp_path).iter():
        name = element.tag.removeprefix(NAMESPACE)
        allowed = ORDER.get(name, "").split()
        places = [allowed.index(child.tag.removeprefix(NAMESPACE)) for child in element]
        assert places == sorted(places), name


def test_last_of_two_records_counts_and_pages_stay_together(tmp_path: Path) -> None:
    """As after a crash, and with two pages that were read at the same time."""

    def revision(pageid: int, revid: int, text: str) -> dict[str, Any]:
        return {"pageid": pageid, "revid": revid, "user": "Ada", "text": text}

    def page(pageid: int, title: str) -> dict[str, Any]:
        return {"pageid": pageid, "ns": 0, "title": title, "revid": 9}

    write(tmp_path, Archive())
    write_lines(tmp_path / "pages.jsonl", [page(1, "Old"), page(2, "B"), page(1, "A")])
    revisions = [
        revision(1, 1, "a1"),
        revision(2, 3, "b3"),
        revision(3, 5, "of a page that is not complete"),
        revision(1, 4, "a4, damaged"),
        revision(2, 2, "b2"),
        revision(1, 4, "a4"),
    ]
    write_lines(tmp_path / "revisions.jsonl", revisions)
    with (tmp_path / "revisions.jsonl").open("a") as lines:
        lines.write('{"pageid": 1, "revid": 4, "te')

    dump = exported(tmp_path)

    assert [
        (text(page, "title"), [text(rev, "text") for rev in children(page, "revision")])
        for page in children(dump, "page")
    ] == [("A", ["a1", "a4"]), ("B", ["b2", "b3"])]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<b>&amp;]]></b>", "<b>&amp;]]></b>"),
        ("one\r\ntwo\rthree\n", "one\r\ntwo\rthree\n"),
        (" space \t", " space \t"),
        ("a\x00b\x0bc\ufffed\ud800e", "a\ufffdb\ufffdc\ufffdd\ufffde"),
        ("🦊", "🦊"),
    ],
)
def test_texts_that_are_hard_to_write_in_xml(
    tmp_path: Path, before: str, after: str
) -> None:
    write(tmp_path, Archive())
    page = {"pageid": 1, "ns": 0, "title": before, "revid": 1}
    revision = {
        "pageid": 1,
        "revid": 1,
        "user": "::1",
        "comment": before,
        "text": before,
    }
    write_lines(tmp_path / "pages.jsonl", [page])
    write_lines(tmp_path / "revisions.jsonl", [revision])

    [page_found] = children(exported(tmp_path), "page")

    [revision_found] = children(page_found, "revision")
    assert text(page_found, "title") == after
    assert text(revision_found, "text") == after
    assert text(revision_found, "comment") == after
    assert read_user(revision_found)["user"] == "::1"


def test_memory_does_not_grow_with_the_archive(tmp_path: Path) -> None:
    from irowiki.export import export

    write(tmp_path, Archive())
    pages = ({"pageid": n, "ns": 0, "title": f"P{n}", "revid": n} for n in range(3000))
    noise = base64.b64encode(bytes(6000)).decode()
    revisions = (
        {"pageid": n, "revid": n, "user": "Ada", "text": noise} for n in range(3000)
    )
    write_lines(tmp_path / "pages.jsonl", pages)
    write_lines(tmp_path / "revisions.jsonl", revisions)
    tracemalloc.start()
    try:
        with (tmp_path / "out.xml").open("w") as out:
            export(tmp_path, out)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (tmp_path / "out.xml").stat().st_size > 24e6
    assert peak < 2e6


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "irowiki.export", *arguments],
        cwd=SOURCE,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_command_says_what_it_wrote_and_how_to_import_it(
    tmp_path: Path, demo: Archive
) -> None:
    write(tmp_path, demo)
    demo.files["File:Orphan.png"] = {
        **demo.files["File:Puffling.png"],
        "title": "File:Orphan.png",
    }
    write_lines(tmp_path / "files.jsonl", demo.files.values())

    done = run(str(tmp_path))

    assert done.returncode == 0
    assert (
        f"Exported {len(demo.pages)} pages ({len(demo.revisions)} revis" in done.stdout
    )
    assert "Left out: 1 files without a page" in done.stdout
    assert "$wgExtraNamespaces[100] = 'Guide';" in done.stdout
    assert f"--image-base-path={tmp_path} {tmp_path}/wiki.xml" in done.stdout
    dump = ElementTree.parse(tmp_path / "wiki.xml").getroot()
    assert len(children(dump, "page")) == len(demo.pages)
    assert not (tmp_path / "wiki.xml.part").exists()


def test_command_says_what_is_no_archive(tmp_path: Path) -> None:
    assert "has no siteinfo.json" in run(str(tmp_path)).stderr
    assert "Usage:" in run().stderr
