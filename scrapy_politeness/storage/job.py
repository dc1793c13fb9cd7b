"""Which runs may resume the requests in a job directory."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.core.scheduler import Scheduler
from scrapy.utils.misc import load_object

from scrapy_politeness.config.settings import PolicyError
from scrapy_politeness.storage.requests_table import InUseError, LostRequestsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.settings import BaseSettings

# What Scrapy writes into active.json for a queue that still has requests. A list, so
# that Scrapy's own default queue refuses to start on it instead of finding nothing.
SIGNATURE = ["scrapy_politeness.PolitePriorityQueue"]

DATABASE = "requests.sqlite"


def is_kept_by_us(settings: BaseSettings) -> bool:
    """Tell whether the requests of this crawl are kept in a job directory, by our
    queue."""
    queue = load_object(settings["SCHEDULER_PRIORITY_QUEUE"])
    return getattr(queue, "signature", None) is SIGNATURE and _has_job(settings)


def reject_job_of_others(settings: BaseSettings) -> None:
    """Called before Scrapy opens the job, and overwrites what it was resumed from."""
    jobdir = settings["JOBDIR"]
    if is_kept_by_us(settings) and has_requests_of_others(jobdir):
        raise PolicyError(
            "JOBDIR",
            jobdir,
            "this job was started with a SCHEDULER_PRIORITY_QUEUE other than "
            "scrapy_politeness.PolitePriorityQueue, and can only be resumed with that",
        )


def reject_own_job(settings: BaseSettings) -> None:
    """The reverse, when the add-on is disabled."""
    if _has_job(settings) and has_requests_of_ours(settings["JOBDIR"]):
        raise PolicyError(
            "POLITENESS_ENABLED",
            settings["POLITENESS_ENABLED"],
            f"the job in JOBDIR={settings['JOBDIR']!r} was started with "
            "scrapy-politeness enabled, and can only be resumed with it enabled",
        )


@contextmanager
def job_errors(folder: str) -> Iterator[None]:
    """Say what is wrong with the job directory that has this folder."""
    jobdir = str(Path(folder).parent)
    try:
        yield
    except InUseError:
        raise PolicyError(
            "JOBDIR",
            jobdir,
            "another crawl is using this job directory; wait until it has ended, or "
            "choose another directory",
        ) from None
    except LostRequestsError:
        raise PolicyError(
            "JOBDIR",
            jobdir,
            "the last run left requests in requests.queue/requests.sqlite, but the "
            "file was deleted or emptied. Restore it, or start over with an empty job "
            "directory",
        ) from None


def _has_job(settings: BaseSettings) -> bool:
    """Schedulers other than Scrapy's may keep their requests elsewhere."""
    scheduler = load_object(settings["SCHEDULER"])
    return bool(settings["JOBDIR"]) and issubclass(scheduler, Scheduler)


def has_requests_of_ours(jobdir: str) -> bool:
    folder = _queue(jobdir)
    # Only a killed run leaves the write-ahead log.
    log = folder / f"{DATABASE}-wal"
    return _left(folder) == SIGNATURE or (log.exists() and log.stat().st_size > 0)


def has_requests_of_others(jobdir: str) -> bool:
    return _left(_queue(jobdir)) not in (None, SIGNATURE)


def _queue(jobdir: str) -> Path:
    """Return where Scrapy's scheduler keeps its requests."""
    return Path(jobdir, "requests.queue")


def _left(folder: Path) -> object:
    """Return what the last run's queue said about its requests, None for nothing."""
    try:
        return json.loads((folder / "active.json").read_bytes()) or None
    except (OSError, ValueError):  # missing, or damaged, which Scrapy reports itself
        return None
