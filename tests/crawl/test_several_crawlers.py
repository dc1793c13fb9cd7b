"""Several crawlers in one process: each has its own state, unless it is shared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tests.support.crawl import DEFAULTS, environment
from tests.support.settings import fixed
from tests.support.site import Answer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.redis_server import RedisServer
    from tests.support.site import Site


def crawl_twice(how: str, server: Site, **settings: Any) -> list[list[float]]:
    """Let two crawlers fetch one half of the pages each; return when these arrived."""
    urls = server.page_urls()
    half = len(urls) // 2
    settings = {**DEFAULTS, **fixed(4), **settings}
    job = json.dumps([how, [urls[:half], urls[half:]], settings])
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.several", job],
        env=os.environ | environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Spider closed (finished)") == 2, done.stderr
    arrivals = [(int(a.path.rpartition("/")[2]), a.at) for a in server.arrivals]
    return [
        [at for number, at in arrivals if (number < half) is is_first]
        for is_first in (True, False)
    ]


def gaps(times: list[float]) -> list[float]:
    return [later - at for at, later in pairwise(sorted(times))]


def test_two_at_once_know_nothing_of_each_other(site: Callable[..., Site]) -> None:
    def judge(path: str, nth: int) -> Answer | None:
        refused = (path, nth) == ("/page/1", 1)
        return Answer(429, {"Retry-After": "2"}) if refused else None

    server = site(8, answer=judge)
    first, second = crawl_twice("CrawlerProcess", server)
    assert server.pages_served() == Counter(f"/page/{number}" for number in range(8))
    assert max(gaps(first)) > 2 - server.jitter
    assert min(gaps(first)) > 0.25 - server.jitter
    assert max(gaps(second)) < 1.8 + server.lost
    assert min(gaps(second)) > 0.25 - server.jitter


def test_two_at_once_share_a_budget_through_redis(
    site: Callable[..., Site], redis_server: RedisServer
) -> None:
    server = site(8)
    url = redis_server.url
    first, second = crawl_twice("AsyncCrawlerProcess", server, POLITENESS_REDIS_URL=url)
    assert len(first) == len(second) == 4
    assert min(gaps(first + second)) > 0.25 - server.jitter


def refuse_at_the_end_of_the_first(path: str, nth: int) -> Answer | None:
    return Answer(429, {"Retry-After": "3"}) if path == "/page/1" else None


NOT_AGAIN = {"POLITENESS_MAX_RESCHEDULES": 0, "RETRY_ENABLED": False}


def test_the_second_knows_nothing_of_the_first(site: Callable[..., Site]) -> None:
    server = site(4, answer=refuse_at_the_end_of_the_first)
    first, second = crawl_twice("CrawlerRunner", server, **NOT_AGAIN)
    assert len(first) == len(second) == 2
    assert second[0] - first[1] < 2.5 + server.lost


def test_the_second_knows_what_the_first_has_left_in_a_state_file(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = site(4, answer=refuse_at_the_end_of_the_first)
    state = str(tmp_path / "state")
    first, second = crawl_twice(
        "AsyncCrawlerRunner", server, POLITENESS_STATE=state, **NOT_AGAIN
    )
    assert len(first) == len(second) == 2
    assert second[0] - first[1] > 3 - server.jitter
