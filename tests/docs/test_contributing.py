"""The example in docs/CONTRIBUTING.md works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.docs.documents import ROOT, Document

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.site import Site

GUIDE = Document(ROOT / "docs" / "CONTRIBUTING.md")


def test_the_example_of_a_test_is_one(site: Callable[..., Site]) -> None:
    [block] = GUIDE.blocks("a test")
    names: dict[str, Any] = {}
    exec(block, names)
    [test] = [value for name, value in names.items() if name.startswith("test_")]
    test(site)
