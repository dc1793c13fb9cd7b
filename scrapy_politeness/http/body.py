"""The beginning of a response's body, as text, before Scrapy has unpacked it."""

from __future__ import annotations

import re
import zlib
from io import BytesIO
from typing import TYPE_CHECKING

from w3lib.encoding import http_content_type_encoding

from scrapy_politeness.http.scrapy_internals import unpacker

if TYPE_CHECKING:
    from scrapy.http import Response

# Block pages are short. A search in more than this would take too long, should a
# pattern take quadratic time.
MOST_BYTES = 32 * 1024

# Nothing else can be searched for words.
_TEXTS = (b"text/", b"json", b"xml", b"javascript")

# Python also decodes what no page is written in: "punycode" takes quadratic time, and
# "unicode_escape" warns.
_CHARSET = re.compile(
    r"utf[-_]?(8|16|32)|iso|latin|ascii|cp|koi8|mac|gb|big5|euc|shift"
)

# Either gzip or zlib, and what some servers call "deflate": neither.
_WITH_HEADER, _RAW = 47, -15
_ZLIB_ENCODINGS = frozenset({b"gzip", b"x-gzip", b"deflate"})


def text_of(response: Response) -> str:
    """Return "" for what is not text."""
    content_type = response.headers.get("Content-Type") or b""
    if content_type and not any(kind in content_type.lower() for kind in _TEXTS):
        return ""
    encodings = b",".join(response.headers.getlist("Content-Encoding"))
    body = response.body
    for encoding in reversed(encodings.lower().split(b",")):
        body = _unpacked(body, encoding.strip())
    charset = http_content_type_encoding(content_type.decode("latin-1")) or "utf-8"
    if not _CHARSET.match(charset):
        charset = "latin-1"
    return body[:MOST_BYTES].decode(charset, "replace")


def _unpacked(body: bytes, encoding: bytes) -> bytes:
    """Return the beginning; nothing, where it cannot be unpacked."""
    if encoding in (b"", b"identity"):
        return body
    if encoding in _ZLIB_ENCODINGS:
        return _inflated(body)
    if encoding == b"br" and (brotli := unpacker("brotli")) is not None:
        try:
            start = brotli.Decompressor().process(body, output_buffer_limit=MOST_BYTES)
        except (brotli.error, TypeError):  # before 1.2, it takes no limit
            return b""
        return bytes(start)
    if encoding == b"zstd" and (zstd := unpacker("zstd")) is not None:
        try:
            return bytes(zstd.ZstdFile(BytesIO(body)).read(MOST_BYTES))
        except (zstd.ZstdError, EOFError):
            return b""
    if encoding == b"zstd" and (zstd := unpacker("zstandard")) is not None:
        try:
            reader = zstd.ZstdDecompressor().stream_reader(BytesIO(body))
            return bytes(reader.read(MOST_BYTES))
        except zstd.ZstdError:
            return b""
    return b""


def _inflated(body: bytes) -> bytes:
    for window in (_WITH_HEADER, _RAW):
        try:
            return zlib.decompressobj(window).decompress(body, MOST_BYTES)
        except zlib.error:
            continue
    return b""
