"""The tests that must hold everywhere, under many versions and every reactor.

``python -m tests.support.matrix`` runs all environments of the tox configuration in
pyproject.toml, or those that are named, and writes the README's table of all that was
run since the last time that all were. ``--table`` writes the table alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ROOT = Path(__file__).parents[2]
RESULTS = _ROOT / ".tox" / "matrix"

BEGIN, END = "<!-- matrix results -->", "<!-- end of matrix results -->"

_COLUMNS = {
    "asyncio": "asyncio reactor",
    "select": "select reactor",
    "none": "no reactor",
    "uvloop": "uvloop",
}


@dataclass(frozen=True)
class Cell:
    """One run of pytest: what was there, and what came of it."""

    reactor: str
    whole_suite: bool
    passed: int
    failed: list[str]
    skipped: int
    seconds: float
    python: str = field(default_factory=platform.python_version)
    scrapy: str = field(default_factory=lambda: version("scrapy"))
    twisted: str = field(default_factory=lambda: version("twisted"))

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1))

    @property
    def row(self) -> tuple[bool, tuple[int, ...], tuple[int, ...], str]:
        return (
            self.whole_suite,
            _numbers(self.scrapy),
            _numbers(self.python),
            self.twisted,
        )

    def __str__(self) -> str:
        if self.failed:
            return f"**{len(self.failed)} failed**, {self.passed} passed"
        return f"{self.passed} passed" if self.passed else "-"


def read_cells() -> list[Cell]:
    return [
        Cell(**json.loads(path.read_text())) for path in sorted(RESULTS.glob("*.json"))
    ]


def table(cells: Iterable[Cell]) -> str:
    rows: dict[object, dict[str, Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.row):
        rows.setdefault(cell.row, {})[cell.reactor] = cell
    lines = [
        _line("Scrapy", "Python", "Twisted", *_COLUMNS.values()),
        _line(*["---"] * (3 + len(_COLUMNS))),
    ]
    for row in rows.values():
        one = next(iter(row.values()))
        scrapy = f"{one.scrapy}, whole suite" if one.whole_suite else one.scrapy
        results = [str(row.get(reactor, "")) for reactor in _COLUMNS]
        lines.append(_line(scrapy, one.python, one.twisted, *results))
    return "\n".join(lines)


def write_table(readme: Path, cells: Iterable[Cell]) -> None:
    before, begin, rest = readme.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{readme} has no place for the table: {BEGIN} … {END}")
    readme.write_text(f"{before}{begin}\n{table(cells)}\n{end}{after}")


def run_tox(environments: Sequence[str]) -> int:
    RESULTS.mkdir(parents=True, exist_ok=True)
    if not environments:
        for old in RESULTS.glob("*.json"):
            old.unlink()
    names = ["-e", ",".join(environments)] if environments else []
    path = os.pathsep.join([*_pyenv_folders(), os.environ["PATH"]])
    # Pythons that are not there are left out, not fetched from elsewhere.
    env = {**os.environ, "PATH": path, "UV_PYTHON_DOWNLOADS": "never"}
    command = [sys.executable, "-m", "tox", "run", "--recreate", *names]
    options = ["--skip-missing-interpreters", "true"]
    return subprocess.call([*command, *options], cwd=_ROOT, env=env)


def _pyenv_folders() -> list[str]:
    """Its shims run the versions that are chosen for a folder; here all are."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return [str(path) for path in sorted(pyenv.glob("versions/3.1*/bin"))]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _line(*columns: str) -> str:
    return f"| {' | '.join(columns)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="write the table alone")
    parser.add_argument("environments", nargs="*", help="of tox; all if none is named")
    options = parser.parse_args()
    code = 0 if options.table else run_tox(options.environments)
    cells = read_cells()
    write_table(_ROOT / "README.md", cells)
    for cell in cells:
        for test in cell.failed:
            print(f"{cell.scrapy} {cell.python} {cell.reactor}: {test}")
    return code


if __name__ == "__main__":
    sys.exit(main())
