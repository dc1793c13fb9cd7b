"""Whose requests wait in a job directory."""

from __future__ import annotations

import json
from pathlib import Path

# What Scrapy writes into active.json for a queue that still has requests. A list, so
# that Scrapy's own default queue refuses to start on it instead of finding nothing.
SIGNATURE = ["scrapy_politeness.PolitePriorityQueue"]

DATABASE = "requests.sqlite"


def has_requests_of_ours(jobdir: str) -> bool:
    folder = _queue(jobdir)
    # Only a run that was killed leaves the write-ahead log.
    log = folder / f"{DATABASE}-wal"
    return _left(folder) == SIGNATURE or (log.exists() and log.stat().st_size > 0)


def has_requests_of_others(jobdir: str) -> bool:
    return _left(_queue(jobdir)) not in (None, SIGNATURE)


def _queue(jobdir: str) -> Path:
    """Where Scrapy's scheduler has its requests."""
    return Path(jobdir, "requests.queue")


def _left(folder: Path) -> object:
    """Return what the last run's queue has said of its requests, None for nothing."""
    try:
        return json.loads((folder / "active.json").read_bytes()) or None
    except (OSError, ValueError):  # not there, or damaged, which Scrapy tells itself
        return None
