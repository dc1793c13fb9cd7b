"""Names of the keys in Redis.

What belongs to one slot has its name in braces, so that a Redis Cluster keeps it
together. Where there are limits that many slots share, one script must see them all:
then everything has the same hash tag, and lives on one node.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

# The number is the version of what the keys hold: it changes whenever an older release
# could not read the values, or would misunderstand them.
_PREFIX = "politeness:1:"

# Written to find out whether that is possible, and removed at once.
CHECK_KEY = f"{_PREFIX}{{check}}"

_MAX_LENGTH = 200
_UNSAFE = re.compile(rb"[^a-z0-9._:-]")


class BudgetKeys(NamedTuple):
    """Of one budget: its record, the processes that share it, and a summary of what was
    learned, which outlives the record."""

    record: str
    members: str
    summary: str


class Keys:
    """``one_node`` says that scripts have to see the keys of several slots."""

    def __init__(self, *, one_node: bool) -> None:
        self._one_node = one_node

    def of(self, name: str) -> BudgetKeys:
        text = escaped(name)
        base = f"{{all}}:{text}" if self._one_node else f"{{{text}}}"
        return BudgetKeys(*(f"{_PREFIX}{base}:{what}" for what in BudgetKeys._fields))


def escaped(name: str) -> str:
    """A host may call itself anything: no braces, nothing unprintable, not too long."""
    raw = name.encode("utf-8", "surrogatepass")
    text = _UNSAFE.sub(lambda match: b"%%%02x" % match[0][0], raw).decode()
    if len(text) <= _MAX_LENGTH:
        return text
    return f"%{hashlib.sha256(raw).hexdigest()}"
