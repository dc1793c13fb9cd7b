"""Names of hosts and slots that mean harm."""

from __future__ import annotations

HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    "a'b\"c&d",
    "\x1b]0;owned\x07\x1b[2J\x1b[31m",
    "line\r\nbreak\tand\x00nothing",
    "\u202egro.elpmaxe",
    "\x9b31m\u2028",
    "bücher.example",
    "日本語" * 30,
    "[red]not markup[/red]",
    "x" * 253,
)


def is_harmless(text: str) -> bool:
    """Nothing in it but letters that a terminal prints, and line ends."""
    return all(line.isprintable() for line in text.split("\n"))
