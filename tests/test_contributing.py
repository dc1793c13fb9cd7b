"""What docs/CONTRIBUTING.md says of this house is so."""

from __future__ import annotations

from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import pytest

import scrapy_politeness
from tests.documents import ROOT, Document, quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.site import Site

GUIDE = Document(ROOT / "docs" / "CONTRIBUTING.md")
HOME = "scrapy_politeness"
PACKAGES = [
    HOME,
    *(f"{HOME}.{m.name}" for m in iter_modules(scrapy_politeness.__path__) if m.ispkg),
]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_map_has_every_module_and_no_other(package: str) -> None:
    folder = ROOT.joinpath(*package.split("."))
    modules = {module.name for module in iter_modules([str(folder)])}
    assert {quoted(row[0])[0] for row in GUIDE.rows(package)} == modules


def test_the_example_of_a_test_is_one(site: Callable[..., Site]) -> None:
    [block] = GUIDE.blocks("a test")
    names: dict[str, Any] = {}
    exec(block, names)
    [test] = [value for name, value in names.items() if name.startswith("test_")]
    test(site)
