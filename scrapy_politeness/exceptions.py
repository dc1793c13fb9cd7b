"""What errbacks may be called with."""

from __future__ import annotations

from scrapy.exceptions import IgnoreRequest


class GivenUp(IgnoreRequest):
    """Nothing was sent: the host has refused everything for too long."""
