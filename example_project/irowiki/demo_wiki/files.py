"""The files of the demo wiki: noise, the same in every run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from random import Random
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class WikiFile:
    name: str

    @property
    def title(self) -> str:
        return f"File:{self.name.replace('_', ' ')}"

    @property
    def content(self) -> bytes:
        dice = Random(self.name)
        return dice.randbytes(int(dice.lognormvariate(8, 1.5)) + 1)

    @property
    def sha1(self) -> str:
        return hashlib.sha1(self.content).hexdigest()

    @property
    def path(self) -> str:
        digest = hashlib.md5(self.name.encode()).hexdigest()
        return f"/images/{digest[0]}/{digest[:2]}/{quote(self.name)}"


FILES = tuple(
    WikiFile(name)
    for name in (
        "100%_Wool_&_more.png",
        "Baker's_Dozen.jpg",
        "Café.svg",
        "Elixir_+7.png",
        "Map_of_Alder_Meadow.png",
        "Puffling.png",
        "Quests_(all)!.pdf",
        "Where_do_I_start?.gif",
        "Ягода.webp",
        "月.ogg",
    )
)


def generated_files(count: int) -> tuple[WikiFile, ...]:
    return tuple(WikiFile(f"Picture_{number:06}.png") for number in range(count))
