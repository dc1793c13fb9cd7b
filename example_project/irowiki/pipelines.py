from __future__ import annotations

import hashlib
import re
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from scrapy import Request
from scrapy.exceptions import DropItem
from scrapy.pipelines.files import FilesPipeline

from irowiki.items import File
from irowiki.ledger import Work

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy.http import Response
    from scrapy.pipelines.media import FileInfo, FileInfoOrError, MediaPipeline

    from irowiki.spiders.irowiki import IrowikiSpider

# Characters that some file systems do not allow in names.
_UNSAFE = re.compile(r'[%/\\:*?"<>|\x00-\x1f\x7f]|^\.')
# Bytes; most file systems reject names of more than 255.
_LONGEST_NAME = 200


class OriginalsPipeline(FilesPipeline):
    """Downloads the files of a wiki, and keeps only those with the correct SHA-1."""

    def get_media_requests(
        self, item: Any, info: MediaPipeline.SpiderInfo
    ) -> list[Request]:
        if not isinstance(item, File):
            return []
        # The SHA-1 is that of the uploaded file, not of a compressed response.
        return [Request(item["url"], headers={"Accept-Encoding": "identity"})]

    def file_path(
        self,
        request: Request,
        response: Response | None = None,
        info: MediaPipeline.SpiderInfo | None = None,
        *,
        item: Any = None,
    ) -> str:
        return file_path(item["title"], item["sha1"])

    def media_to_download(
        self, request: Request, info: MediaPipeline.SpiderInfo, *, item: Any = None
    ) -> Any:
        """Scrapy goes by a file's age, but a kill leaves incomplete files."""
        path = self.file_path(request, item=item)
        try:
            known = Path(self.crawler.settings["FILES_STORE"], path).read_bytes()
        except FileNotFoundError:
            return None
        return _found(request, path) if _sha1(known) == item["sha1"] else None

    def media_downloaded(
        self,
        response: Response,
        request: Request,
        info: MediaPipeline.SpiderInfo,
        *,
        item: Any = None,
    ) -> Any:
        if response.status != 200:
            return _found(request, "", f"HTTP {response.status}")
        sha1 = _sha1(response.body)
        if sha1 != item["sha1"]:
            return _found(request, "", f"its SHA-1 is {sha1}, not {item['sha1']}")
        path = self.file_path(request, item=item)
        self.store.persist_file(path, BytesIO(response.body), info)
        return _found(request, path)

    def item_completed(
        self,
        results: Iterable[FileInfoOrError],
        item: Any,
        info: MediaPipeline.SpiderInfo,
    ) -> Any:
        # Scrapy remembers every file, and would not retry a failed one.
        info.downloaded.clear()
        for is_answered, found in results:
            if is_answered and found["path"]:  # type: ignore[index]
                item["path"] = found["path"]  # type: ignore[index]
            else:
                reason = found["status"] if is_answered else _reason(found)  # type: ignore[index]
                self._drop(item, reason)
        if isinstance(item, File):
            self._spider.ledger.done(Work("file", item["title"]))
        return item

    def _drop(self, item: File, reason: str) -> None:
        self._spider.ledger.failed(Work("file", item["title"]), reason)
        raise DropItem(f"Could not download {item['title']}: {reason}")

    @property
    def _spider(self) -> IrowikiSpider:
        return cast("IrowikiSpider", self.crawler.spider)


def file_path(title: str, sha1: str) -> str:
    """No two files share a path, even if the file system ignores case."""
    name = _UNSAFE.sub(lambda char: f"%{ord(char[0]):02X}", title.partition(":")[2])
    short = name.encode()[-_LONGEST_NAME:].decode(errors="ignore")
    return f"files/{sha1[:2]}/{sha1[:10]}-{short}"


def _sha1(body: bytes) -> str:
    return hashlib.sha1(body).hexdigest()


def _found(request: Request, path: str, status: str = "archived") -> FileInfo:
    return {"url": request.url, "path": path, "checksum": None, "status": status}


def _reason(failure: Any) -> str:
    return str(failure.value) or "no response"
