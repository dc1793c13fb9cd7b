"""Feeds that lose nothing when the crawl is killed.

A request stays in the queue until its callback has finished. So nothing is lost in a
kill if each record is in its file, and not in a buffer, when its callback finishes.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from itemadapter import ItemAdapter
from scrapy.exporters import BaseItemExporter, JsonLinesItemExporter
from scrapy.extensions.feedexport import FileFeedStorage

if TYPE_CHECKING:
    from scrapy import Spider

logger = logging.getLogger(__name__)

_BLOCK = 64 * 1024


class WholeLines(FileFeedStorage):
    """Appends to a file, after removing an incomplete line that a kill left behind."""

    def open(self, spider: Spider) -> IO[bytes]:
        path = Path(self.path)
        if path.exists():
            cut_half_line(path)
        return super().open(spider)


class FlushedJsonLines(JsonLinesItemExporter):
    def export_item(self, item: Any) -> None:
        try:
            super().export_item(item)
            self.file.flush()
        except OSError:
            _stop_at_once()


class JsonDocument(BaseItemExporter):
    """One item, formatted for people."""

    def __init__(self, file: IO[bytes], **kwargs: Any) -> None:
        super().__init__(dont_fail=True, **kwargs)
        self.file = file

    def export_item(self, item: Any) -> None:
        record = ItemAdapter(item).asdict()
        text = json.dumps(record, ensure_ascii=False, indent=2)
        self.file.write(f"{text}\n".encode())
        self.file.flush()


def cut_half_line(path: Path) -> None:
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - _BLOCK)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        file.truncate(end)


def _stop_at_once() -> None:
    """Exit as if killed, for example when the disk is full: requests in progress stay
    in the queue, and the same command resumes the crawl."""
    logger.critical("Cannot write a record; stopping the crawl", exc_info=True)
    logging.shutdown()
    os._exit(1)
