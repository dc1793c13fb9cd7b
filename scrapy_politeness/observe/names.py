"""Names of slots as people may see them, whoever chose them."""

from __future__ import annotations

from scrapy_politeness.observe.text import escaped

# As long as a host name can be.
_LONGEST = 253

_NO_HOST = "(no host)"


def printable(name: str) -> str:
    """Return the name on one line, without control characters, and not too long.

    Hosts come from links, and ``politeness_slot`` may be any text: neither must forge
    a line of the log or send commands to a terminal.
    """
    if len(name) > _LONGEST:
        name = name[: _LONGEST - 1] + "…"
    return escaped(name) or _NO_HOST
