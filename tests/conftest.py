from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.ready import ready_crawlers
from tests.redis_server import RedisServer
from tests.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.crawler import Crawler


def pytest_xdist_auto_num_workers() -> int:
    """Most tests wait for a clock most of the time: three workers for two cores."""
    return 1 + (os.cpu_count() or 1)


@pytest.fixture
def site() -> Iterator[Callable[..., Site]]:
    """Opens sites, which are closed when the test ends."""
    with ExitStack() as stack:

        def open_site(*args: Any, **options: Any) -> Site:
            return stack.enter_context(Site(*args, **options))

        yield open_site


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def crawler() -> Iterator[Callable[..., Crawler]]:
    """Makes crawlers that are ready to crawl, and do not."""
    with ready_crawlers() as make:
        yield make
