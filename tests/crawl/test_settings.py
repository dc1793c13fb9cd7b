"""What wrong settings do to a crawl."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.crawl import crawl


@pytest.mark.parametrize(
    "settings",
    [
        {"POLITENESS_START_RATE": "fast"},
        {"POLITENESS_MIN_RATE": 20},
        {"POLITENESS_LIMITS": {"example.org": {"rate": 5}}},
        pytest.param({"AUTOTHROTTLE_ENABLED": True}, marks=pytest.mark.everywhere),
        {"POLITENESS_ENABLED": "perhaps"},
    ],
)
def test_a_crawl_with_a_wrong_setting_does_not_start(settings: dict[str, Any]) -> None:
    result = crawl(urls=["http://127.0.0.1:9/"], settings=settings)
    [(name, value)] = settings.items()
    assert result.returncode != 0
    told = f"CRITICAL: Cannot start the crawl: {name}={value!r}: "
    assert sum(told in line for line in result.log.splitlines()) == 1
    assert "Spider opened" not in result.log
