"""A little of every kind of hostile input; ``python -m tests.fuzz`` tries much more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.fuzz.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable

_SETTINGS = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_nothing_from_outside_does_harm(target: Callable[[], Any]) -> None:
    _SETTINGS(target)()
