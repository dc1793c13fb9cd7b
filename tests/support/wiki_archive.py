"""What an archive of the demo wiki must hold, and what it holds."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from irowiki.demo_wiki import DemoWiki

# Of content and files.
CHOSEN = (0, 6, 100)

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


def archive_of(wiki: DemoWiki, namespaces: Collection[int] = CHOSEN) -> Archive:
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
        }
        archive.contents[file.title] = file.content
    return archive


def _visible(edit: Any) -> Record:
    shown = edit.shown()
    names = ("revid", "parentid", "timestamp", "user", "comment", "sha1")
    record = {name: shown.get(name) for name in names}
    if "texthidden" not in edit.hidden:
        record["text"] = edit.text
    if edit.hidden:
        order = ("userhidden", "commenthidden", "sha1hidden", "texthidden")
        hidden = [name for name in (*order, "suppressed") if name in edit.hidden]
        record["hidden"] = hidden
    return record
