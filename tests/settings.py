"""Settings that many tests share."""

from __future__ import annotations

from typing import Any

# What a busy machine may take away from a gap: the earlier request arrived late.
JITTER = 0.06

NO_ROBOTS: dict[str, Any] = {"POLITENESS_ROBOTS": False}


def fixed(rate: float, **more: Any) -> dict[str, Any]:
    """A rate that does not rise, and no robots.txt."""
    return {
        "POLITENESS_START_RATE": rate,
        "POLITENESS_MAX_RATE": rate,
        **NO_ROBOTS,
        **more,
    }
