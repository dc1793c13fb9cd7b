"""The pages of the demo wiki: an invented game world, the same in every run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACES = {
    -2: "Media",
    -1: "Special",
    0: "",
    1: "Talk",
    10: "Template",
    14: "Category",
}

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


@dataclass(frozen=True)
class WikiPage:
    title: str
    text: str
    categories: tuple[str, ...] = ()
    ns: int = 0


def _page(title: str, text: str, *categories: str) -> WikiPage:
    links = "".join(f"\n[[Category:{name}]]" for name in categories)
    return WikiPage(title, f"{text}\n{links}", categories)


def _monsters() -> Iterator[WikiPage]:
    for temper, creature in product(TEMPERS, CREATURES):
        title = f"{temper} {creature}"
        dice = Random(title)
        level = dice.randint(1, 99)
        text = (
            f"{{{{Monster|level={level}|health={level * dice.randint(20, 60)}}}}}\n"
            f"The '''{title}''' lives in [[{_map(dice)}]]. It is fond of company, "
            f"and runs away when it is outnumbered.\n\n"
            f"== Drops ==\n* [[{_item(dice)}]] ({dice.randint(1, 30)}%)\n"
            f"* [[{_item(dice)}]] ({dice.randint(1, 9)} in 1000)"
        )
        yield _page(title, text, "Monsters")


def _items() -> Iterator[WikiPage]:
    for material, thing in product(MATERIALS, THINGS):
        title = f"{material} {thing}"
        dice = Random(title)
        text = (
            f"{{{{Item|weight={dice.randint(1, 90)}|price={dice.randint(5, 900)}}}}}\n"
            f"A '''{title}''' is made by the smiths of [[{_map(dice)}]].\n\n"
            f"== Use ==\nIt is part of the quest [[{_quest(dice)}]]."
        )
        yield _page(title, text, "Items")


def _maps() -> Iterator[WikiPage]:
    for region, place in product(REGIONS, PLACES):
        title = f"{region} {place}"
        dice = Random(title)
        text = (
            f"'''{title}''' is a day's walk from [[{_map(dice)}]].\n\n"
            f"== Who lives here ==\n* [[{_monster(dice)}]]\n* [[{_monster(dice)}]]"
        )
        yield _page(title, text, "Maps")


def _quests() -> Iterator[WikiPage]:
    for deed, treasure in product(DEEDS, TREASURES):
        title = f"{deed} {treasure}"
        dice = Random(title)
        text = (
            f"# Speak with the innkeeper in [[{_map(dice)}]].\n"
            f"# Make friends with a [[{_monster(dice)}]].\n"
            f"# Come back before dusk.\n\nReward: one [[{_item(dice)}]]."
        )
        yield _page(title, text, "Quests")


def _difficult() -> Iterator[WikiPage]:
    for title in DIFFICULT_TITLES:
        text = (
            f"The title of this page is <nowiki>{title}</nowiki>.\n"
            'Its text has "quotes", back\\slashes, a\ttab, &amp;, 100 %, naïve Ωμέγα, '
            "日本語 and 🦊."
        )
        yield _page(title, text, "Curiosities")


def _others() -> Iterator[WikiPage]:
    welcome = "\n".join(f"* [[:Category:{name}]]" for name in CATEGORIES)
    yield _page("Main Page", f"Welcome, traveller!\n\n{welcome}", *CATEGORIES)
    # More categories than one answer of the API holds.
    letters = (f"Letter {letter}" for letter in "ABCDEFGHIJKLMNOPQRSTUVW")
    yield _page("The alphabet", "From A to W, for want of three monsters.", *letters)
    yield WikiPage("Puffling", "#REDIRECT [[Sleepy Puffling]]")
    for name in ("Monster", "Item", "Reward"):
        yield WikiPage(f"Template:{name}", f"<b>{name}</b>: {{{{{{1|}}}}}}", ns=10)
    for name in CATEGORIES:
        yield WikiPage(f"Category:{name}", f"All about {name.lower()}.", ns=14)


def _monster(dice: Random) -> str:
    return f"{dice.choice(TEMPERS)} {dice.choice(CREATURES)}"


def _item(dice: Random) -> str:
    return f"{dice.choice(MATERIALS)} {dice.choice(THINGS)}"


def _map(dice: Random) -> str:
    return f"{dice.choice(REGIONS)} {dice.choice(PLACES)}"


def _quest(dice: Random) -> str:
    return f"{dice.choice(DEEDS)} {dice.choice(TREASURES)}"


PAGES = (*_others(), *_monsters(), *_items(), *_maps(), *_quests(), *_difficult())
