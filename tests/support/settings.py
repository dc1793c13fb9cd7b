"""Settings that many tests share."""

from __future__ import annotations

from typing import Any

NO_ROBOTS: dict[str, Any] = {"POLITENESS_ROBOTS": False}

# For crawls that look for a limit: quick to find it.
SEARCHING: dict[str, Any] = {
    "POLITENESS_START_RATE": 5,
    "POLITENESS_MAX_RATE": 100,
    "POLITENESS_BACKOFF_BASE": 1,
    "LOG_LEVEL": "INFO",
    **NO_ROBOTS,
}

# For crawls of hosts where things go wrong by chance: quick, and with robots.txt.
UP_TO_20: dict[str, Any] = {
    "POLITENESS_START_RATE": 5,
    "POLITENESS_MAX_RATE": 20,
    "POLITENESS_BACKOFF_BASE": 1,
    "LOG_LEVEL": "INFO",
}

# A name that a link, or a spider, might give a slot: on one line of its own, and as
# markup, it would do harm. (Names are in lower case.)
HOSTILE = (
    "x\n2026-01-01 [root] error: forged \x1b[31m\u202e</script>"
    "<script>document.title='broken'</script>\"><img src=x onerror=alert(1)>&amp; é"
)


def fixed(rate: float, **more: Any) -> dict[str, Any]:
    """A rate that does not rise, and no robots.txt."""
    return {
        "POLITENESS_START_RATE": rate,
        "POLITENESS_MAX_RATE": rate,
        **NO_ROBOTS,
        **more,
    }
