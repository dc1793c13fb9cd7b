"""What an archive of the demo wiki must hold, and what it holds."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from irowiki.demo_wiki import DemoWiki

ALL_NAMESPACES = (0, 1, 6, 10, 14, 100)

USER_IDS = {"Ada": 1, "Björn": 2, "Chidi": 3, "Даша": 4, "192.0.2.7": 0}

Record = dict[str, Any]


@dataclass(frozen=True)
class Archive:
    """Records by what identifies them; ``repeats`` are those that stand twice."""

    pages: dict[int, Record] = field(default_factory=dict)
    revisions: dict[int, Record] = field(default_factory=dict)
    files: dict[str, Record] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    repeats: Counter[str] = field(default_factory=Counter, compare=False)


def read_archive(folder: Path) -> Archive:
    archive = Archive()
    for name, key in (("pages", "pageid"), ("revisions", "revid"), ("files", "title")):
        records = getattr(archive, name)
        for record in read_records(folder / f"{name}.jsonl"):
            if record[key] in records:
                assert records[record[key]] == record
                archive.repeats[name] += 1
            records[record[key]] = record
    for title, record in archive.files.items():
        archive.contents[title] = (folder / record.pop("path")).read_bytes()
    return archive


def read_records(path: Path) -> list[Record]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def archive_of(wiki: DemoWiki, namespaces: Collection[int] = ALL_NAMESPACES) -> Archive:
    from irowiki.demo_wiki.history import Edit

    archive = Archive()
    for pageid, page in enumerate(wiki.pages, start=1):
        if page.ns not in namespaces:
            continue
        edits = [Edit(page, pageid, number + 1) for number in range(page.edits)]
        archive.pages[pageid] = {
            "pageid": pageid,
            "ns": page.ns,
            "title": page.title,
            "redirect": page.text.startswith("#REDIRECT"),
            "revid": edits[-1].revid,
            "categories": page.categories,
            "templates": page.templates,
        }
        for edit in edits:
            record = {"pageid": pageid, **_visible(edit)}
            archive.revisions[edit.revid] = record
    for file in wiki.files:
        archive.files[file.title] = {
            "title": file.title,
            "url": f"http://localhost:{wiki.server_port}{file.path}",
            "sha1": file.sha1,
            "size": len(file.content),
            "timestamp": "2016-02-29T12:00:00Z",
            "user": "Ada",
            "comment": f"Uploaded {file.name}",
        }
        archive.contents[file.title] = file.content
    return archive


def _visible(edit: Any) -> Record:
    user_is_hidden = "userhidden" in edit.hidden
    comment_is_hidden = "commenthidden" in edit.hidden
    record = {
        "revid": edit.revid,
        "parentid": edit.parentid,
        "timestamp": edit.time.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "user": None if user_is_hidden else edit.user,
        "userid": None if user_is_hidden else USER_IDS[edit.user],
        "minor": edit.number in range(0, 1000, 3),
        "comment": None if comment_is_hidden else edit.comment,
        "sha1": None,
    }
    if "texthidden" not in edit.hidden:
        record["sha1"] = hashlib.sha1(edit.text.encode()).hexdigest()
        record["text"] = edit.text
        record["contentmodel"] = "wikitext"
        record["contentformat"] = "text/x-wiki"
    if edit.hidden:
        order = ("userhidden", "commenthidden", "sha1hidden", "texthidden")
        hidden = [name for name in (*order, "suppressed") if name in edit.hidden]
        record["hidden"] = hidden
    return record
