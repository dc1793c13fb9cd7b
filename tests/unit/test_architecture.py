"""Imports point down, types included: the folders are the architecture."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import scrapy_politeness

ROOT = Path(scrapy_politeness.__file__).parent

# From top to bottom; those in one row do not know each other. What is at the bottom
# may be imported by all.
LAYERS = (
    ("__init__",),
    ("commands",),
    ("scrapy_redis",),
    ("components",),
    ("observe",),
    ("robots",),
    ("scheduling",),
    ("storage",),
    ("sharing",),
    ("http",),
    ("config",),
    ("simulator",),
    ("core",),
    ("exceptions", "signals"),
)
DEPTH = {name: depth for depth, row in enumerate(LAYERS) for name in row}

FILES = sorted(ROOT.rglob("*.py"))

# All that core/ needs.
PURE = {
    *("__future__", "abc", "array", "bisect", "collections", "dataclasses", "datetime"),
    *("enum", "functools", "heapq", "itertools", "math", "operator", "re", "types"),
    *("typing", "typing_extensions", "unicodedata", "weakref", "scrapy_politeness"),
}


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            is_root = node.module == "scrapy_politeness"
            names = [f".{alias.name}" if is_root else "" for alias in node.names]
            found.update(node.module + name for name in names)
    return found


def layer_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    own = layer_of(path)
    names = (name.split(".") for name in imported(path))
    layers = {parts[1] for parts in names if parts[0] == "scrapy_politeness"}
    above = {name for name in layers - {own} if DEPTH[name] <= DEPTH[own]}
    assert not above


def test_core_is_arithmetic() -> None:
    core = [path for path in FILES if layer_of(path) == "core"]
    assert core
    for path in core:
        assert {name.split(".")[0] for name in imported(path)} <= PURE, path


def test_every_folder_is_a_layer() -> None:
    assert {layer_of(path) for path in FILES} == set(DEPTH)
