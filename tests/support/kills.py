"""Crawls with a job directory that are killed, and what that costs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.crawl import start_crawl
from tests.support.settings import NO_ROBOTS
from tests.support.site import Answer, Site
from tests.support.spiders import Links

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from random import Random

    from tests.support.crawl import RunningCrawl

AT_ONCE = 8

HUB = "/hub"

# Seconds; the callback of the hub takes longer.
_PER_LINK = 0.0002

_FEW_PAGES = 80


@dataclass
class Damage:
    """``lost`` pages were never served. ``again`` has, for each kill, how many pages
    were served again that were served before it; ``again_done`` those of them whose
    callback had ended. The engine had at most ``in_progress`` at once."""

    lost: int = 0
    in_progress: int = 0
    in_hub: int = 0
    again: list[int] = field(default_factory=list)
    again_done: list[int] = field(default_factory=list)


def kill_and_resume(
    folder: Path,
    chance: Random,
    *,
    links: int,
    in_hub: int,
    later: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Damage:
    """Crawl one page with very many links, and these. Kill the crawl while that page
    is parsed, then as often at other moments, and let the last run come to its end."""
    hub = "".join(f'<a href="/leaf/{n}">.</a>' for n in range(links)).encode()
    leaves = {f"/leaf/{n}": Answer(body=b"<html></html>") for n in range(links)}
    done = folder / "done"
    done.touch()
    with Site(named={HUB: Answer(body=b"<html>%s</html>" % hub), **leaves}) as site:
        job = _Job(site, folder / "job", done, dict(settings or {}))
        while job.damage.in_hub < in_hub and not job.is_hub_done:
            wait = chance.uniform(0.0, links * _PER_LINK)
            job.kill_after(site.pages_served()[HUB] + 1, HUB, wait)
        for _ in range(job.damage.in_hub if later is None else later):
            number = chance.randrange(1, _FEW_PAGES)
            job.kill_after(site.pages_served().total() + number)
        job.finish()
        served = site.pages_served()
    job.damage.lost = links + 1 - len(served)
    lines = done.read_text("utf-8").splitlines()
    job.damage.in_progress = max(int(line.split()[1]) for line in lines)
    return job.damage


class _Job:
    def __init__(
        self, site: Site, jobdir: Path, done: Path, settings: dict[str, Any]
    ) -> None:
        self._site = site
        self._done = done
        self._settings = {
            "JOBDIR": str(jobdir),
            "CONCURRENT_REQUESTS": AT_ONCE,
            "CONCURRENT_REQUESTS_PER_DOMAIN": AT_ONCE,
            "POLITENESS_START_RATE": 10_000,
            "POLITENESS_MAX_RATE": 10_000,
            "LOG_LEVEL": "INFO",
            **NO_ROBOTS,
            **settings,
        }
        self.damage = Damage()
        # When each run has ended, and which pages were done by then.
        self._ends: list[tuple[float, set[str]]] = []

    @property
    def is_hub_done(self) -> bool:
        return HUB in self._done_pages()

    def kill_after(self, number: int, path: str = "", wait: float = 0.0) -> None:
        """Kill a run when that many pages have been served, or that page that many
        times."""
        deadline = time.monotonic() + 300.0
        with self._start() as running:
            while running.process.poll() is None:
                served = self._site.pages_served()
                if (served[path] if path else served.total()) >= number:
                    break
                assert time.monotonic() < deadline, running.log_so_far()[-2000:]
                time.sleep(0.005)
            time.sleep(wait)
            running.kill()
            running.process.wait()
        # What was on its way to the server; a new run takes longer to start.
        time.sleep(0.3)
        self.damage.in_hub += not self.is_hub_done
        self._ends.append((time.monotonic(), self._done_pages()))

    def finish(self) -> None:
        with self._start() as running:
            result = running.wait(timeout=900)
        assert result.stats["finish_reason"] == "finished", result.log[-2000:]
        assert "Traceback" not in result.log, result.log[-2000:]
        last: dict[str, int] = {}
        self.damage.again = [0] * len(self._ends)
        self.damage.again_done = [0] * len(self._ends)
        for arrival in self._site.arrivals:
            run = sum(end < arrival.at for end, _ in self._ends)
            if arrival.path in last:
                # Twice in one run: it was being rescheduled at the last kill.
                before = min(last[arrival.path], run - 1)
                assert before >= 0, f"{arrival.path} twice without a kill"
                self.damage.again[before] += 1
                self.damage.again_done[before] += arrival.path in self._ends[before][1]
            last[arrival.path] = run

    def _start(self) -> RunningCrawl:
        return start_crawl(
            Links,
            urls=[self._site.url + HUB],
            settings=self._settings,
            done=str(self._done),
        )

    def _done_pages(self) -> set[str]:
        lines = self._done.read_text("utf-8").splitlines()
        return {line.split()[0].removeprefix(self._site.url) for line in lines}
