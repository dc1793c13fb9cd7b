"""``python -m irowiki.export archives/demo``: an archive as MediaWiki XML.

``importDump.php`` reads it, so that a wiki can be brought back to life. The records of
an archive are in the order in which they came, some of them twice: an index on disk
finds them page by page, and no more than one revision is in memory.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
import sqlite3
import sys
from pathlib import Path
from shlex import quote
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from irowiki.mediawiki import Json

SCHEMA = "http://www.mediawiki.org/xml/export-0.11/"

# Those that every MediaWiki has.
_BUILT_IN_NAMESPACES = range(-2, 16)

# XML 1.0 has no way to write these, and JSON has.
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_INDEX = """
CREATE TABLE pages (pageid INTEGER PRIMARY KEY, place INTEGER);
CREATE TABLE revisions (
    pageid INTEGER, revid INTEGER, place INTEGER, PRIMARY KEY (pageid, revid)
) WITHOUT ROWID;
CREATE TABLE files (title BLOB PRIMARY KEY, place INTEGER) WITHOUT ROWID;
"""


class Exported(NamedTuple):
    pages: int
    revisions: int
    files: int
    # Those whose page is not in the archive.
    files_without_page: int

    def __str__(self) -> str:
        return f"{self.pages} pages ({self.revisions} revisions) and {self.files} files"


class Records:
    """An archive's records, each the last one with its key."""

    def __init__(self, archive: Path) -> None:
        # A database without a name is on disk, and gone when it is closed.
        self._index = sqlite3.connect("")
        self._index.executescript(_INDEX)
        self._lines = {
            "pages": self._read(archive, "pages", "pageid"),
            "revisions": self._read(archive, "revisions", "pageid", "revid"),
            "files": self._read(archive, "files", "title"),
        }

    def _read(self, archive: Path, name: str, *key: str) -> IO[bytes] | None:
        path = archive / f"{name}.jsonl"
        if not path.exists():
            return None
        lines = path.open("rb")
        values = ", ".join("?" * (len(key) + 1))
        insert = f"INSERT OR REPLACE INTO {name} VALUES ({values})"
        self._index.executemany(insert, _keys(lines, key))
        return lines

    def pages(self) -> Iterator[Json]:
        return self._select("pages", "ORDER BY pageid")

    def revisions(self, pageid: int) -> Iterator[Json]:
        return self._select("revisions", "WHERE pageid = ? ORDER BY revid", pageid)

    def file(self, title: str) -> Json | None:
        return next(self._select("files", "WHERE title = ?", _key(title)), None)

    def count_files(self) -> int:
        count: int = self._index.execute("SELECT COUNT(*) FROM files").fetchone()[0]
        return count

    def _select(self, name: str, where: str, *key: Any) -> Iterator[Json]:
        lines = self._lines[name]
        for (place,) in self._index.execute(f"SELECT place FROM {name} {where}", key):
            assert lines is not None
            lines.seek(place)
            yield json.loads(lines.readline())

    def close(self) -> None:
        self._index.close()
        for lines in self._lines.values():
            if lines is not None:
                lines.close()


def _keys(lines: IO[bytes], key: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    place = 0
    for line in lines:
        if not line.endswith(b"\n"):  # of a killed crawl
            break
        record = json.loads(line)
        yield (*(_key(record[name]) for name in key), place)
        place += len(line)


def _key(value: str | int) -> bytes | int:
    # JSON can have half a character, and a database cannot.
    return value if isinstance(value, int) else value.encode(errors="replace")


def export(archive: Path, out: IO[str]) -> Exported:
    site: Json = json.loads((archive / "siteinfo.json").read_bytes())
    records = Records(archive)
    pages = revisions = files = 0
    try:
        out.write(_head(site))
        for page in records.pages():
            pages += 1
            out.write(f"  <page>\n{_tags(4, page, 'title', 'ns')}")
            out.write(f"    <id>{page['pageid']}</id>\n")
            for revision in records.revisions(page["pageid"]):
                revisions += 1
                out.write(_revision(revision))
            if file := records.file(page["title"]):
                files += 1
                out.write(_upload(file))
            out.write("  </page>\n")
        out.write("</mediawiki>\n")
        return Exported(pages, revisions, files, records.count_files() - files)
    finally:
        records.close()


def _head(site: Json) -> str:
    general = site.get("general") or {}
    about = {
        "sitename": general.get("sitename"),
        "dbname": general.get("wikiid"),
        "base": general.get("base"),
        "generator": general.get("generator"),
        "case": general.get("case"),
    }
    namespaces = "".join(
        f'      <namespace key="{int(ns["id"])}" case={_attribute(ns["case"])}>'
        f"{_text(ns['name'])}</namespace>\n"
        for ns in (site.get("namespaces") or {}).values()
    )
    language = _attribute(general.get("lang") or "en")
    return (
        f'<mediawiki xmlns="{SCHEMA}" version="0.11" xml:lang={language}>\n'
        f"  <siteinfo>\n{_tags(4, about, *about)}"
        f"    <namespaces>\n{namespaces}    </namespaces>\n  </siteinfo>\n"
    )


def _revision(revision: Json) -> str:
    parent = {"parentid": revision.get("parentid") or None}
    # Archives of the first version have no content model.
    content = {
        "origin": revision["revid"],
        "model": revision.get("contentmodel") or "wikitext",
        "format": revision.get("contentformat") or "text/x-wiki",
    }
    minor = "      <minor />\n" if revision.get("minor") else ""
    text = revision.get("text")
    if text is None:
        body = '      <text bytes="0" deleted="deleted" />\n      <sha1 />\n'
    else:
        encoded = text.encode("utf-8", "replace")
        sha1 = base_36(hashlib.sha1(encoded).hexdigest())
        body = (
            f'      <text bytes="{len(encoded)}" sha1="{sha1}" xml:space="preserve">'
            f"{_text(text)}</text>\n      <sha1>{sha1}</sha1>\n"
        )
    return (
        f"    <revision>\n      <id>{revision['revid']}</id>\n"
        f"{_tags(6, parent, 'parentid')}{_tags(6, revision, 'timestamp')}"
        f"{_contributor(revision)}{minor}{_comment(revision)}"
        f"{_tags(6, content, *content)}{body}    </revision>\n"
    )


def _upload(file: Json) -> str:
    """``rel`` is where ``importDump.php --image-base-path`` finds the file. As in
    MediaWiki's own dumps, it is there although the schema does not have it."""
    source = {
        "filename": file["title"].partition(":")[2].replace(" ", "_"),
        "src": file["url"],
        "size": file["size"],
        "sha1base36": base_36(file["sha1"]),
        "rel": file["path"],
    }
    # Required, as the importer reads them, and unknown in older archives.
    when = {"timestamp": file.get("timestamp") or "1970-01-01T00:00:00Z"}
    why = {"comment": file.get("comment") or ""}
    return (
        f"    <upload>\n{_tags(6, when, 'timestamp')}{_contributor(file)}"
        f"{_tags(6, why, 'comment')}{_tags(6, source, *source)}    </upload>\n"
    )


def _contributor(record: Json) -> str:
    user = record.get("user")
    if user is None:
        return '      <contributor deleted="deleted" />\n'
    if _is_address(user):
        known = {"ip": user}
    else:
        known = {"username": user, "id": record.get("userid")}
    tags = _tags(8, known, *known)
    return f"      <contributor>\n{tags}      </contributor>\n"


def _comment(revision: Json) -> str:
    if revision.get("comment") is None:
        return '      <comment deleted="deleted" />\n'
    return _tags(6, revision, "comment") if revision["comment"] else ""


def _tags(indent: int, values: Json, *names: str) -> str:
    return "".join(
        f"{' ' * indent}<{name}>{_text(str(values[name]))}</{name}>\n"
        for name in names
        if values.get(name) is not None
    )


def _text(text: str) -> str:
    # A parser makes a bare carriage return a line feed.
    return escape(_NOT_IN_XML.sub("\ufffd", text), {"\r": "&#13;"})


def _attribute(text: str) -> str:
    return quoteattr(_NOT_IN_XML.sub("\ufffd", text))


def _is_address(user: str) -> bool:
    try:
        ipaddress.ip_address(user)
    except ValueError:
        return False
    return True


def base_36(sha1: str) -> str:
    """Return a hexadecimal SHA-1 as MediaWiki's database has it."""
    number, digits = int(sha1, 16), ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits.rjust(31, "0")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("Usage: python -m irowiki.export <the folder of an archive>")
    archive = Path(sys.argv[1])
    if not (archive / "siteinfo.json").exists():
        sys.exit(f"{archive} is not an archive: it has no siteinfo.json")
    target, part = archive / "wiki.xml", archive / "wiki.xml.part"
    with part.open("w", encoding="utf-8", newline="\n") as out:
        exported = export(archive, out)
    part.replace(target)
    print(f"Exported {exported} to {target}.")
    if exported.files_without_page:
        print(f"Left out: {exported.files_without_page} files without a page.")
    for line in _instructions(archive.resolve()):
        print(line)


def _instructions(archive: Path) -> Iterator[str]:
    site = json.loads((archive / "siteinfo.json").read_bytes())
    extra = [
        ns
        for ns in (site.get("namespaces") or {}).values()
        if ns["id"] not in _BUILT_IN_NAMESPACES
    ]
    yield "To import it into an empty MediaWiki, first add to its LocalSettings.php:"
    yield "    $wgEnableUploads = true;"
    for ns in extra:
        name = re.sub(r"[^\w-]", "_", ns["name"])
        yield f"    $wgExtraNamespaces[{ns['id']}] = '{name}';"
    yield "Then, in its folder (the first command deletes the page that it came with):"
    yield '    echo "Main Page" | php maintenance/deleteBatch.php'
    folder, dump = quote(str(archive)), quote(str(archive / "wiki.xml"))
    yield (
        "    php maintenance/importDump.php --uploads "
        f"--image-base-path={folder} {dump}"
    )
    yield "    php maintenance/rebuildrecentchanges.php"
    yield "    php maintenance/initSiteStats.php --update"


if __name__ == "__main__":
    main()
