"""``scrapy politeness state``: what earlier runs learned."""

from __future__ import annotations

import json
import sqlite3
import sys
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
from scrapy_politeness.core.snapshot import finite
from scrapy_politeness.core.text import counted, duration, escaped, rate, shortened
from scrapy_politeness.storage.state_file import Entry, StateFile, reject_other_files

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Sequence

    from scrapy.commands import ScrapyCommand

SUMMARY = "Show, export, import or forget what earlier runs learned about hosts"

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
        choices=["show", "export", "import", "forget"],
        help="default: %(default)s",
    )
    parser.add_argument(
        "hosts",
        nargs="*",
        metavar="HOST",
        help="only these hosts (default: all); for import, the output of export, or -",
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
    if opts.action == "import" and len(opts.hosts) != 1:
        raise UsageError("import needs the file of an export, or - for standard input")
    path = Path(opts.file) if opts.file else Policy.read(command.settings).state_path
    if path is None:
        raise CommandError(
            "there is no state file: set POLITENESS_STATE or JOBDIR, or use --file"
        )
    try:
        if opts.action == "import":
            # First: a file that cannot be read leaves no empty state behind.
            entries = _read_export(opts.hosts[0])
            with _state_file(path) as state:
                return _import(state, entries, opts)
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
    return _state_file(path)


def _state_file(path: Path) -> StateFile:
    try:
        reject_other_files(path)
        return StateFile(path)
    except ValueError as error:
        raise CommandError(
            f"{escaped(str(path))} is not a state file: {escaped(str(error))}"
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


def _read_export(name: str) -> list[dict[str, Any]]:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
        entries = json.loads(text)["slots"]
        if not all(isinstance(entry["slot"], str) for entry in entries):
            raise TypeError
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(f"cannot read {escaped(name)}: {reason}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CommandError(
            f"{escaped(name)} is not what scrapy politeness state export prints"
        ) from None
    return list(entries)


def _import(state: StateFile, entries: list[dict[str, Any]], opts: Namespace) -> int:
    """Of two entries for a host the newer one counts, and of two pauses the longer."""
    wall_now = time.time()
    known, pauses = set(state.slots()), state.pauses(wall_now)
    learned: dict[str, Entry | None] = {}
    ends: dict[str, float] = {}
    for found in entries:
        slot = found["slot"]
        try:
            entry, pause = _imported(found, wall_now)
        except ValueError as error:
            name, text = escaped(slot), escaped(str(error))
            print_warning(f"skipping the damaged entry of {name}: {text}")
            continue
        old = _entry(state, slot) if slot in known else None
        if entry is not None and (old is None or old.at < entry.at):
            learned[slot] = entry
        if pause > pauses.get(slot, 0.0):
            ends[slot] = wall_now + pause
    state.write(ends, learned)
    slots = sorted(learned.keys() | ends.keys())
    if opts.json:
        print_json({"imported": slots})
    else:
        hosts = counted(len(slots), "host")
        kept = len(entries) - len(slots)
        rest = f"; {kept} older or damaged left out" if kept else ""
        print_text(f"Imported what was known about {hosts}{rest}.")
    return 0


def _imported(found: dict[str, Any], wall_now: float) -> tuple[Entry | None, float]:
    """Return an entry, and the seconds left of a pause."""
    at, until = found.get("learned_at"), found.get("paused_until")
    entry = None
    if at is not None:
        # Nothing was learned in the future.
        entry = Entry(Learned.from_dict(found), min(finite(at), wall_now))
    return entry, 0.0 if until is None else max(0.0, finite(until) - wall_now)


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
