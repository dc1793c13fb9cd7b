"""Chooses what shows a crawl while it runs: a display, lines in the log, metrics."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from scrapy_politeness.observe.progress import LiveProgress, LoggedProgress

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.observe.census import Census
    from scrapy_politeness.observe.metrics import Metrics
    from scrapy_politeness.observe.tally import Histogram


class Observers:
    """``take_census`` takes the age in seconds up to which a census may be reused."""

    def __init__(
        self,
        policy: Policy,
        take_census: Callable[[float], Census],
        waits: Histogram,
        spider: Spider | None,
    ) -> None:
        self._progress = progress(policy, take_census, spider)
        self._metrics: Metrics | None = None
        if policy.prometheus_port is not None:
            # prometheus_client is an optional dependency.
            from scrapy_politeness.observe.metrics import Metrics

            address = policy.prometheus_host, policy.prometheus_port
            try:
                self._metrics = Metrics(address, take_census, waits, spider)
            except OSError as error:
                raise policy.bad_port(str(error)) from error

    def start(self) -> None:
        for observer in (self._progress, self._metrics):
            if observer is not None:
                observer.start()

    async def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        if self._metrics is not None:
            await self._metrics.close()


def progress(
    policy: Policy, take_census: Callable[[float], Census], spider: Spider | None
) -> LiveProgress | LoggedProgress | None:
    if policy.progress or (policy.progress is None and _may_be_live(policy)):
        return LiveProgress(take_census, policy.global_limit, spider)
    if policy.progress is None and policy.stats_interval:
        every = policy.stats_interval
        return LoggedProgress(take_census, policy.global_limit, spider, every)
    return None


def _may_be_live(policy: Policy) -> bool:
    # Not every replacement of stderr has all its methods.
    isatty = getattr(sys.stderr, "isatty", None)
    return (
        isatty is not None
        and isatty()
        and os.environ.get("TERM") != "dumb"
        and policy.stats_interval > 0
        and policy.shows_log
        and not policy.feeds_stdout
        and find_spec("rich") is not None
    )
