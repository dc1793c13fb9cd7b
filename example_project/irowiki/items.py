from dataclasses import dataclass


@dataclass
class Page:
    """The current text of one page, as it is written to ``pages.jsonl``."""

    pageid: int
    ns: int
    title: str
    revid: int
    timestamp: str
    categories: list[str]
    text: str
