"""Whoever watches a crawl while it runs: people, by its progress, and Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_politeness.observe.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.observe.census import Census
    from scrapy_politeness.observe.histogram import Histogram
    from scrapy_politeness.observe.metrics import Metrics


class Observers:
    """``take_census`` returns one that is no older than so many seconds; ``waits`` are
    those of all requests."""

    def __init__(
        self,
        policy: Policy,
        take_census: Callable[[float], Census],
        waits: Histogram,
        spider: Spider | None,
    ) -> None:
        self._progress = progress(policy, take_census, spider)
        self._metrics = _metrics(policy, take_census, waits, spider)

    def start(self) -> None:
        for observer in (self._progress, self._metrics):
            if observer is not None:
                observer.start()

    async def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        if self._metrics is not None:
            await self._metrics.close()


def _metrics(
    policy: Policy,
    take_census: Callable[[float], Census],
    waits: Histogram,
    spider: Spider | None,
) -> Metrics | None:
    if policy.prometheus_port is None:
        return None
    # The client is there only for those who want it.
    from scrapy_politeness.observe.metrics import Metrics

    host, port = policy.prometheus_host, policy.prometheus_port
    try:
        return Metrics(host, port, take_census, waits, spider)
    except OSError as error:
        raise policy.error(
            "prometheus_port",
            f"must be a free port on POLITENESS_PROMETHEUS_HOST={host!r}; {error}",
        ) from error
