"""What errbacks may be called with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest

if TYPE_CHECKING:
    from scrapy.http import Response


class GivenUp(IgnoreRequest):
    """Nothing was sent: the host has refused everything for too long."""


class NotWelcome(IgnoreRequest):
    """The host does not want this crawler. ``response`` is what says so, for the
    request that was answered with it; for all others, nothing was sent."""

    def __init__(self, message: str, response: Response | None = None) -> None:
        super().__init__(message)
        self.response = response
