"""Which requests a crawl has seen, in the database that they wait in."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING

from scrapy_politeness.storage import requests_table as sql

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

    from scrapy import Request

# From Scrapy 2.19 on, the size of a fingerprint stands before it.
_SIZE_BYTES = 2


class SeenRequests:
    """A fingerprint is stored in the transaction that stores its request. Stored
    earlier, a kill in between would lose the page for good; stored later, the page
    would be fetched twice.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        # Nobody else knows of these: the queue on disk could not take their requests.
        self._in_memory: set[bytes] = set()
        self._next: tuple[Request, bytes] | None = None

    def add(self, request: Request, fingerprint: bytes) -> bool:
        """Return whether the fingerprint is new. It is stored when the request is."""
        self._keep_next()
        if fingerprint in self._in_memory:
            return False
        if self._db.execute(sql.IS_SEEN, (fingerprint,)).fetchone() is not None:
            return False
        self._next = request, fingerprint
        return True

    def store(self, request: Request) -> None:
        """The request is being stored, in the transaction that is open."""
        if self._next is not None and self._next[0] is request:
            self._db.execute(sql.SEE, (self._next[1],))
            self._next = None

    def load(self, file: Path) -> None:
        """Take over what Scrapy's own filter has left, unless that was done before."""
        try:
            size = file.stat().st_size
        except OSError:
            return
        if size == sql.read_job(self._db, "seen_file_bytes"):
            return
        fingerprints = read_fingerprints(file.read_bytes())
        with sql.transaction(self._db):
            self._db.executemany(sql.SEE, ((each,) for each in fingerprints))
            sql.write_job(self._db, "seen_file_bytes", size)

    def close(self) -> None:
        self._keep_next()
        self._db.executemany(sql.SEE, ((each,) for each in self._in_memory))

    def __bool__(self) -> bool:
        return self._db.execute("SELECT 1 FROM seen LIMIT 1").fetchone() is not None

    def _keep_next(self) -> None:
        if self._next is not None:
            self._in_memory.add(self._next[1])
            self._next = None


def read_fingerprints(data: bytes) -> Iterator[bytes]:
    """Read requests.seen as any version of Scrapy writes it: in lines of hexadecimal
    digits, or in binary. The last one may be incomplete."""
    if data[:1] != b"\0":
        for line in data.splitlines():
            try:
                yield binascii.unhexlify(line.strip())
            except ValueError:
                continue
        return
    position = 0
    while position + _SIZE_BYTES < len(data):
        begin = position + _SIZE_BYTES
        position = begin + int.from_bytes(data[position:begin], "big")
        if position <= len(data):
            yield data[begin:position]
