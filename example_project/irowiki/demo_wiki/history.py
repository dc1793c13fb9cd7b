"""The histories of the demo wiki's pages."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from irowiki.demo_wiki.content import WikiPage

USERS = ("Ada", "Björn", "Chidi", "Даша", "192.0.2.7")
FIRST_EDIT = datetime(2015, 1, 1, tzinfo=timezone.utc)

# Edits that are not public, by title and number of the edit.
HIDDEN = {
    ("Main Page", 3): ("texthidden", "sha1hidden"),
    ("Main Page", 52): ("userhidden",),
    ("The alphabet", 7): (
        "userhidden",
        "commenthidden",
        "texthidden",
        "sha1hidden",
        "suppressed",
    ),
}

# More than any page has edits.
_REVIDS_PER_PAGE = 100_000


@dataclass(frozen=True)
class Edit:
    """One of a page's edits; the first one is number 1."""

    page: WikiPage
    pageid: int
    number: int

    @property
    def revid(self) -> int:
        return self.pageid * _REVIDS_PER_PAGE + self.number

    @property
    def parentid(self) -> int:
        return self.revid - 1 if self.number > 1 else 0

    @property
    def time(self) -> datetime:
        # Some edits come in the same second.
        return FIRST_EDIT + timedelta(days=self.pageid, hours=self.number // 2)

    @property
    def user(self) -> str:
        return Random(self.revid).choice(USERS)

    @property
    def comment(self) -> str:
        return f'/* Edit */ no. {self.number} of "{self.page.title}"'

    @property
    def text(self) -> str:
        whole = self.page.text
        if self.number == self.page.edits:
            return whole
        part = whole[: len(whole) * self.number // self.page.edits]
        return f"{part}\n\nTo be continued: {self.number}/{self.page.edits}."

    @property
    def hidden(self) -> tuple[str, ...]:
        return HIDDEN.get((self.page.title, self.number), ())

    def shown(self) -> dict[str, Any]:
        """Return what is public, as MediaWiki's API has it."""
        all_there_is = {
            "revid": self.revid,
            "parentid": self.parentid,
            "timestamp": self.time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "user": self.user,
            "userid": USERS.index(self.user) + 1 if self.user.isalpha() else 0,
            "minor": self.number % 3 == 0,
            "comment": self.comment,
            "sha1": hashlib.sha1(self.text.encode()).hexdigest(),
        }
        shown: dict[str, Any] = {
            name: value
            for name, value in all_there_is.items()
            if f"{name.removesuffix('id')}hidden" not in self.hidden
        }
        slot = {"contentmodel": "wikitext", "contentformat": "text/x-wiki"}
        if "texthidden" in self.hidden:
            slot = {"texthidden": True}  # type: ignore[dict-item]
        else:
            slot["content"] = self.text
        flags = {flag: True for flag in self.hidden if flag != "texthidden"}
        return {**shown, **flags, "slots": {"main": slot}}
