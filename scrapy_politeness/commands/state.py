"""``scrapy politeness state``: what earlier runs learned."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import UsageError

from scrapy_politeness.commands.output import (
    CommandError,
    print_json,
    print_text,
    print_warning,
    table,
)
from scrapy_politeness.config.policy import Policy
from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.text import counted, duration, escaped, rate, shortened
from scrapy_politeness.storage.state_file import StateFile

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Sequence

    from scrapy.commands import ScrapyCommand

    from scrapy_politeness.storage.state_file import Entry

SUMMARY = "Show, export or forget what earlier runs learned about hosts"

_WIDEST_NAME = 48
# Key of as_dict, heading, format.
_COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("limit", "limit", rate),
    ("stood", "no limit up to", rate),
    ("concurrency", "at once", str),
    ("pause_left", "pause left", duration),
    ("age", "learned", lambda seconds: f"{duration(max(0.0, seconds))} ago"),
)


@dataclass(frozen=True)
class SlotState:
    """What is known about one slot; times are wall time."""

    slot: str
    entry: Entry | None
    pause_left: float

    def as_dict(self, wall_now: float) -> dict[str, Any]:
        """``stood`` is the highest rate that was tried, if no limit was found."""
        learned = self.entry.learned if self.entry else Learned(None, None, None)
        is_limit = learned.spread is not None
        return {
            "slot": self.slot,
            "limit": learned.ceiling if is_limit else None,
            "stood": None if is_limit else learned.ceiling,
            "concurrency": learned.concurrency,
            "pause_left": self.pause_left,
            "age": wall_now - self.entry.at if self.entry else None,
        }


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        default="show",
        choices=["show", "export", "forget"],
        help="default: %(default)s",
    )
    parser.add_argument(
        "hosts", nargs="*", metavar="HOST", help="only these hosts (default: all)"
    )
    parser.add_argument("--all", action="store_true", help="forget all hosts")
    parser.add_argument(
        "--file",
        metavar="FILE",
        help="the state file (default: from POLITENESS_STATE or JOBDIR)",
    )


def run(command: ScrapyCommand, opts: Namespace) -> int:
    assert command.settings is not None
    if opts.action == "forget" and bool(opts.hosts) == opts.all:
        raise UsageError("forget needs host names or --all")
    if opts.action != "forget" and opts.all:
        raise UsageError("--all is for forget only")
    path = Path(opts.file) if opts.file else Policy.read(command.settings).state_path
    if path is None:
        raise CommandError(
            "there is no state file: set POLITENESS_STATE or JOBDIR, or use --file"
        )
    try:
        with open_state(path) as state:
            if opts.action == "forget":
                return _forget(state, opts)
            return _show(state, opts)
    except sqlite3.Error as error:
        raise CommandError(f"cannot use {escaped(str(path))}: {error}") from None


def open_state(path: Path) -> StateFile:
    """Open an existing one; a crawl creates it."""
    name = escaped(str(path))
    if not path.is_file():
        raise CommandError(f"there is no state file {name}; a crawl creates it")
    try:
        return StateFile(path)
    except ValueError as error:
        raise CommandError(
            f"{name} is not a state file: {escaped(str(error))}"
        ) from None


def read(state: StateFile, slots: Sequence[str], wall_now: float) -> list[SlotState]:
    """Warn about damaged entries, and skip them."""
    pauses = state.pauses(wall_now)
    return [SlotState(s, _entry(state, s), pauses.get(s, 0.0)) for s in slots]


def _entry(state: StateFile, slot_key: str) -> Entry | None:
    try:
        return state.learned(slot_key)
    except ValueError as error:
        name, text = escaped(slot_key), escaped(str(error))
        print_warning(f"skipping the damaged entry of {name}: {text}")
        return None


def _show(state: StateFile, opts: Namespace) -> int:
    wall_now = time.time()
    slots, unknown = _chosen(state, opts)
    known = [k for k in read(state, slots, wall_now) if k.entry or k.pause_left]
    if opts.action == "export":
        print_json({"slots": [_exported(k, wall_now) for k in known]})
    elif opts.json:
        print_json([k.as_dict(wall_now) for k in known])
    elif known:
        headings = ["host", *(heading for _, heading, _ in _COLUMNS)]
        print_text(table(headings, [_row(k.as_dict(wall_now)) for k in known]))
    elif not unknown:
        print_text("Nothing is known yet.")
    return int(unknown)


def _row(known: dict[str, Any]) -> list[str]:
    cells = (show(known[key]) if known[key] else "" for key, _, show in _COLUMNS)
    return [shortened(known["slot"], _WIDEST_NAME), *cells]


def _exported(known: SlotState, wall_now: float) -> dict[str, object]:
    """With points in time instead of ages."""
    entry, pause = known.entry, known.pause_left
    return {
        "slot": known.slot,
        **(entry.learned.to_dict() if entry else {}),
        "learned_at": entry.at if entry else None,
        "paused_until": wall_now + pause if pause else None,
    }


def _forget(state: StateFile, opts: Namespace) -> int:
    slots, unknown = _chosen(state, opts)
    if opts.all:
        state.forget_all()
    else:
        state.write(dict.fromkeys(slots, 0.0), dict.fromkeys(slots))
        state.tidy(time.time())
    if opts.json:
        print_json({"forgotten": slots})
    else:
        print_text(f"Forgot what was known about {counted(len(slots), 'host')}.")
    return int(unknown)


def _chosen(state: StateFile, opts: Namespace) -> tuple[list[str], bool]:
    """Return the slots to work on, and whether others were asked for."""
    known = state.slots()
    if not opts.hosts:
        return known, False
    wanted = list(dict.fromkeys(host.lower() for host in opts.hosts))
    unknown = set(wanted) - set(known)
    for host in wanted:
        if host in unknown:
            print_warning(f"nothing is known about {escaped(host)}")
    return [host for host in wanted if host not in unknown], bool(unknown)
