"""The pages of the demo wiki: an invented game world, the same in every run.

A page is little more than its title. What is written there is made up when somebody
asks, and always the same, so that a wiki of any size needs little memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice, product
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAMESPACES = {
    -2: "Media",
    -1: "Special",
    0: "",
    1: "Talk",
    6: "File",
    10: "Template",
    14: "Category",
    100: "Guide",
}
CONTENT_NAMESPACES = (0, 100)

TEMPERS = ("Sleepy", "Brave", "Shy", "Golden", "Frosty", "Thorny", "Ancient", "Stormy")
CREATURES = (
    "Puffling",
    "Mossback",
    "Lantern Moth",
    "Pebble Crab",
    "Willow Fox",
    "Tide Hopper",
    "Clay Giant",
    "Dusk Owl",
)
MATERIALS = (
    "Oak",
    "Iron",
    "Silver",
    "Amber",
    "Wool",
    "Glass",
    "Coral",
    "Bamboo",
    "Jade",
)
THINGS = ("Dagger", "Hat", "Ring", "Bow", "Boots", "Staff")
REGIONS = ("Alder", "Brindle", "Cobalt", "Dapple", "Ember", "Fennel", "Gull", "Hazel")
PLACES = ("Meadow", "Cave", "Harbour", "Ruins", "Forest")
DEEDS = ("Finding", "Mending", "Guarding", "Delivering")
TREASURES = (
    "the Broken Bell",
    "the Baker's Letter",
    "the Lost Kite",
    "the Village Well",
    "the Old Map",
)
CATEGORIES = ("Monsters", "Items", "Maps", "Quests", "Help", "Curiosities")

# All of these are legal in MediaWiki, and all have broken somebody's crawler.
DIFFICULT_TITLES = (
    "Where do I start?",
    "100% Wool Scarf",
    "Salt & Pepper Isles",
    "Elixir +7",
    'The "Quiet" Inn',
    "Baker's Dozen",
    "Quests/Lost Kite/Walkthrough",
    "Answer: 42",
    "Cost = 2; fee = 3",
    "Back\\slash Bridge",
    "Café Crème",
    "Ягодный лес",
    "月の草原",
    "🦊 Fox Day",
)


@dataclass(frozen=True, slots=True)
class WikiPage:
    title: str
    writer: Callable[[str, Random], str]
    ns: int = 0
    edits: int = 1

    @property
    def text(self) -> str:
        return self.writer(self.title, Random(self.title))

    @property
    def is_redirect(self) -> bool:
        return self.text.startswith("#REDIRECT")

    @property
    def categories(self) -> list[str]:
        return sorted(re.findall(r"\[\[(Category:[^\]]+)\]\]", self.text))

    @property
    def templates(self) -> list[str]:
        names = re.findall(r"\{\{(\w+)\|", self.text)
        return sorted(f"Template:{name}" for name in set(names))


def _monster_page(title: str, dice: Random) -> str:
    level = dice.randint(1, 99)
    return (
        f"{{{{Monster|level={level}|health={level * dice.randint(20, 60)}}}}}\n"
        f"The '''{title}''' lives in [[{_map(dice)}]]. It is fond of company, "
        f"and runs away when it is outnumbered.\n\n"
        f"== Drops ==\n* [[{_item(dice)}]] ({dice.randint(1, 30)}%)\n"
        f"* [[{_item(dice)}]] ({dice.randint(1, 9)} in 1000)\n"
        "[[Category:Monsters]]"
    )


def _item_page(title: str, dice: Random) -> str:
    return (
        f"{{{{Item|weight={dice.randint(1, 90)}|price={dice.randint(5, 900)}}}}}\n"
        f"A '''{title}''' is made by the smiths of [[{_map(dice)}]].\n\n"
        f"== Use ==\nIt is part of the quest [[{_quest(dice)}]].\n"
        "[[Category:Items]]"
    )


def _map_page(title: str, dice: Random) -> str:
    return (
        f"'''{title}''' is a day's walk from [[{_map(dice)}]].\n\n"
        f"== Who lives here ==\n* [[{_monster(dice)}]]\n* [[{_monster(dice)}]]\n"
        "[[Category:Maps]]"
    )


def _quest_page(title: str, dice: Random) -> str:
    return (
        f"# Speak with the innkeeper in [[{_map(dice)}]].\n"
        f"# Make friends with a [[{_monster(dice)}]].\n"
        f"# Come back before dusk.\n\n{{{{Reward|{_item(dice)}}}}}\n"
        "[[Category:Quests]]"
    )


def _difficult_page(title: str, dice: Random) -> str:
    return (
        f"The title of this page is <nowiki>{title}</nowiki>.\n"
        'Its text has "quotes", back\\slashes, a\ttab, &amp;, 100 %, naïve Ωμέγα, '
        "日本語, a line\u2028separator and 🦊.\n[[Category:Curiosities]]"
    )


def _main_page(title: str, dice: Random) -> str:
    links = "\n".join(f"* [[:Category:{name}]]" for name in CATEGORIES)
    return f"Welcome, traveller!\n\n{links}\n[[Category:Help]]"


def _alphabet_page(title: str, dice: Random) -> str:
    """More categories and templates than one answer of the API holds."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVW"
    links = "\n".join(f"{{{{Letter{x}|}}}}[[Category:Letter {x}]]" for x in letters)
    return f"From A to W, for want of three monsters.\n{links}"


def _redirect_page(title: str, dice: Random) -> str:
    return f"#REDIRECT [[{REDIRECTS[title]}]]"


def _plain_page(title: str, dice: Random) -> str:
    return f"All about {title.rpartition(':')[2].lower()}."


# Two of them are a ring.
REDIRECTS = {"Puffling": "Sleepy Puffling", "Hen": "Egg", "Egg": "Hen"}


def _names(*parts: tuple[str, ...]) -> Iterator[str]:
    return map(" ".join, product(*parts))


def _pages() -> Iterator[WikiPage]:
    yield WikiPage("Main Page", _main_page, edits=120)
    yield WikiPage("The alphabet", _alphabet_page, edits=55)
    for title in REDIRECTS:
        yield WikiPage(title, _redirect_page)
    for writer, names, count in (
        (_monster_page, _names(TEMPERS, CREATURES), 5),
        (_item_page, _names(MATERIALS, THINGS), 4),
        (_map_page, _names(REGIONS, PLACES), 3),
        (_quest_page, _names(DEEDS, TREASURES), 2),
        (_difficult_page, iter(DIFFICULT_TITLES), len(DIFFICULT_TITLES)),
    ):
        for title in islice(names, count):
            yield WikiPage(title, writer, edits=_edits(title))
    for name in ("Fishing", "Trade"):
        yield WikiPage(f"Guide:{name}", _plain_page, ns=100, edits=2)
    for name in ("Monster", "Item", "Reward"):
        yield WikiPage(f"Template:{name}", _plain_page, ns=10)
    for name in CATEGORIES:
        yield WikiPage(f"Category:{name}", _plain_page, ns=14)
    yield WikiPage("Talk:Main Page", _plain_page, ns=1)


def generated_pages(count: int) -> Iterator[WikiPage]:
    """As many pages as are wanted, most of them with a short history."""
    writers = (_monster_page, _item_page, _map_page, _quest_page)
    for number in range(count):
        title = f"{_monster(Random(number))} {number:06}"
        yield WikiPage(title, writers[number % 4], edits=_edits(title))


def file_page(title: str) -> WikiPage:
    return WikiPage(title, _plain_page, ns=6, edits=2)


def _edits(title: str) -> int:
    return min(20, int(Random(title).paretovariate(1.2)))


def _monster(dice: Random) -> str:
    return f"{dice.choice(TEMPERS)} {dice.choice(CREATURES)}"


def _item(dice: Random) -> str:
    return f"{dice.choice(MATERIALS)} {dice.choice(THINGS)}"


def _map(dice: Random) -> str:
    return f"{dice.choice(REGIONS)} {dice.choice(PLACES)}"


def _quest(dice: Random) -> str:
    return f"{dice.choice(DEEDS)} {dice.choice(TREASURES)}"


PAGES = tuple(_pages())
