"""The README and the chapters in docs/, taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCUMENTS = sorted([README, ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_HEADING = re.compile(r"^#+ (.+)$", re.M)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_NO_ANCHOR = re.compile(r"[^\w\- ]")


@dataclass(frozen=True)
class Document:
    path: Path

    @property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @property
    def prose(self) -> str:
        """All but blocks of code, in which # begins no heading."""
        return _FENCE.sub("", self.text)

    @property
    def anchors(self) -> set[str]:
        """As GitHub makes them from headings."""
        headings = _HEADING.findall(self.prose)
        return {_NO_ANCHOR.sub("", h).lower().replace(" ", "-") for h in headings}

    @property
    def links(self) -> list[str]:
        """To other documents, or within this one."""
        found = _LINK.findall(self.prose)
        return [link for link in found if "://" not in link]

    def section(self, heading: str) -> str:
        """What stands under a heading, up to the next one."""
        _, found, rest = self.text.partition(f" {heading}\n")
        assert found, f"{self.path.name} has no heading {heading!r}"
        return re.split(r"^#+ ", rest, maxsplit=1, flags=re.M)[0]

    def rows(self, heading: str) -> list[list[str]]:
        """The cells of the table under a heading, without its head."""
        lines = [
            line for line in self.section(heading).splitlines() if line.startswith("|")
        ]
        assert len(lines) > 2, f"{heading!r} has no table"
        return [
            [cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]
        ]

    def blocks(self, mark: str) -> list[str]:
        """The blocks of code that follow ``<!-- mark -->``."""
        pattern = rf"^<!-- {mark} -->\n```\w*\n(.*?)^```$"
        return re.findall(pattern, self.text, re.M | re.S)


def quoted(cell: str) -> list[str]:
    """What stands in backquotes."""
    return re.findall(r"`([^`]+)`", cell)
