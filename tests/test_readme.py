"""What the README promises is what the code does."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from scrapy_politeness.settings import DEFAULTS

README = Path(__file__).parents[1].joinpath("README.md").read_text("utf-8")


def test_the_settings_table_has_every_setting_with_its_default() -> None:
    rows = re.findall(r"^\| `(POLITENESS_\w+)` \| `(.+?)` \|", README, re.M)
    assert {name: ast.literal_eval(default) for name, default in rows} == DEFAULTS
