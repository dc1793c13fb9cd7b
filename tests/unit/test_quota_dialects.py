"""A host for each dialect of quota headers: its limit is kept to, and used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.http.quota_headers import read_quota
from scrapy_politeness.simulator import FixedWindow, simulate
from scrapy_politeness.simulator.servers import Wrapper
from tests.support.quota_dialects import DIALECTS, Stated

if TYPE_CHECKING:
    from scrapy_politeness.simulator.servers import Reply
    from tests.support.quota_dialects import Dialect

PAGES = 300

# A whole number of days and minutes, as calendar windows have it.
EPOCH = 20_000 * 86400.0


class Speaking(Wrapper):
    """Says its quota with each response."""

    server: FixedWindow

    def __init__(self, server: FixedWindow, dialect: Dialect) -> None:
        super().__init__(server)
        self._dialect = dialect

    def arrive(self, now: float, page: int = 0) -> Reply:
        reply = self.server.arrive(now, page)
        left = self.server.quota(now)
        wall_now = EPOCH + now
        assert left.limit is not None
        stated = Stated(int(left.limit), int(left.remaining), left.reset, wall_now)
        headers = self._dialect(stated)
        quota = read_quota(headers.get, wall_now=wall_now)
        assert quota is not None
        return reply._replace(quota=quota)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("limit", [120, 300])
def test_a_stated_quota_is_kept_to_and_used(dialect: str, limit: int) -> None:
    server = Speaking(FixedWindow(limit, 60.0), DIALECTS[dialect])
    slot = Slot("example.org", Bounds(), spacing=0.0, concurrency=8)
    found = simulate([slot], server, seconds=3600.0, pages=PAGES, seed=1)
    assert found.served == PAGES
    assert found.refused == 0
    assert found.seconds < 60.0 * PAGES / limit / 0.9 + 5
