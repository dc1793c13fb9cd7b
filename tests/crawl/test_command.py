"""``scrapy politeness``, run the way its user runs it."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from scrapy.cmdline import execute
from scrapy.settings import Settings

from scrapy_politeness.core.learned import Learned
from scrapy_politeness.observe.report import (
    VERSION,
    Report,
    Series,
    SlotReport,
)
from scrapy_politeness.observe.reporter import write_report
from scrapy_politeness.storage.state_file import Entry, StateFile
from tests.support.crawl import DEFAULT_REACTOR, REACTOR_SETTINGS, Done, run_scrapy
from tests.support.hostile import HOSTILE_NAMES, is_harmless
from tests.support.site import Answer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.site import Site

DAY = 86400.0

REACTOR_OPTIONS = [
    option
    for name, value in REACTOR_SETTINGS[DEFAULT_REACTOR].items()
    for option in ("-s", f"{name}={value}")
]

# What `scrapy startproject` makes, more or less.
PROJECT = {
    "scrapy.cfg": "[settings]\ndefault = shop.settings\n",
    "shop/__init__.py": "",
    "shop/spiders/__init__.py": """
from scrapy import Spider

class Slow(Spider):
    name = "slow"
    custom_settings = {"DOWNLOAD_DELAY": 4}
""",
    "shop/pipelines.py": """
from pathlib import Path

class Writer:
    def open_spider(self):
        Path("opened").touch()
""",
    "shop/settings.py": """
SPIDER_MODULES = ["shop.spiders"]
ADDONS = {"scrapy_politeness.Addon": 500}
POLITENESS_EXEMPT = []
POLITENESS_LIMITS = {"127.0.0.1": {"limit": "5/2s", "burst": 2}}
ROBOTSTXT_OBEY = True
ITEM_PIPELINES = {"shop.pipelines.Writer": 1}
FEEDS = {"items.jsonl": {"format": "jsonlines", "overwrite": True}}
JOBDIR = "job"
LOG_STDOUT = True
LOG_LEVEL = "INFO"
""",
}


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Runs the command in this process, outside of a project."""

    def run(*arguments: str) -> Done:
        with pytest.raises(SystemExit) as end:
            execute(["scrapy", "politeness", *arguments], Settings())
        out, err = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Done(end.value.code, out, err)

    return run


def apart(*arguments: str, cwd: Path, **env: str) -> Done:
    """Runs the command in a process of its own."""
    return run_scrapy("politeness", *arguments, *REACTOR_OPTIONS, cwd=cwd, **env)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in PROJECT.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A file that knows two hosts."""
    path = tmp_path / "state.sqlite"
    now = time.time()
    with StateFile(path) as state:
        state.write(
            {"b.example": now + 600},
            {
                "a.example": Entry(Learned(4.5, 0.1, 3), now - 2 * DAY),
                "b.example": Entry(Learned(0.05, None, None), now - 90),
            },
        )
    return path


def damage(path: Path, slot_key: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE learned SET ceiling = 'x' WHERE slot = ?", (slot_key,))


ASKED = "User-agent: *\nDisallow: /private\nCrawl-delay: 2\nRequest-rate: 1/4\n"


def test_check_asks_for_robots_txt_once_and_tells_what_it_wants(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    shop = site(5, robots=ASKED)
    options = ("-s", "POLITENESS_EXEMPT=")

    found = apart("check", f"{shop.url}/page/1", *options, cwd=tmp_path)
    told = apart("check", f"{shop.url}/private", "--json", *options, cwd=tmp_path)

    assert [arrival.path for arrival in shop.arrivals] == 2 * ["/robots.txt"]
    assert (found.exit_code, found.err) == (0, "")
    assert "allows this page" in found.out
    assert "Crawl-delay of 2 s, Request-rate of one per 4 s" in found.out
    assert "0.249/s; at most 8 in flight" in found.out
    assert told.json["robots"]["allowed"] is False
    assert told.json["robots"]["crawl_delay"] == 2.0
    assert told.json["rate"] == pytest.approx(0.25, rel=0.01)
    assert list(tmp_path.iterdir()) == []


def test_check_says_which_slot_and_which_limits_apply_and_why(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = site(1)
    limits = (
        '{"search": {"limit": ["1/s", "30/m"], "bandwidth": "2MB/s"},'
        ' "127.0.0.1": {"limit": "5/2s"}}'
    )
    options = (
        *("-s", "POLITENESS_EXEMPT="),
        *("-s", 'POLITENESS_SLOTS=[["/search", "search"]]'),
        *("-s", f"POLITENESS_LIMITS={limits}"),
    )
    done = apart("check", f"{server.url}/search?q=1", *options, cwd=tmp_path)
    assert done.exit_code == 0
    words = " ".join(done.out.split())
    assert "slot search since POLITENESS_SLOTS has the pattern /search" in words
    assert "for search: limit 1/1s and 30/60s, bandwidth 2 MB/s" in words
    assert "for 127.0.0.1: limit 5/2s, over all slots of 127.0.0.1" in words
    json = apart("check", f"{server.url}/search", "--json", *options, cwd=tmp_path).json
    assert json["slot"] == "search"
    assert set(json["limits"]) == {"search", "127.0.0.1"}


@pytest.mark.everywhere
def test_check_in_a_project_goes_by_its_settings_and_leaves_its_crawl_alone(
    site: Callable[..., Site], project: Path
) -> None:
    shop = site(5)
    (project / "items.jsonl").write_text("{}\n")

    plain = apart("check", f"{shop.url}/page/1", "--json", cwd=project)
    slow = apart(
        "check", f"{shop.url}/page/1", "--json", "--spider", "slow", cwd=project
    )
    nobody = apart("check", f"{shop.url}/page/1", "--spider", "nobody", cwd=project)

    assert plain.json["limits"] == {"127.0.0.1": {"limit": "5/2s", "burst": 2}}
    assert plain.json["robots"]["status"] == 404
    assert plain.json["robots"]["obeyed"] is True
    assert plain.json["fastest_rate"] == pytest.approx(2.5, rel=0.02)
    # Some versions of Scrapy warn of what they use where there is no reactor.
    warnings = plain.err.splitlines()
    assert all("DownloadHandler is experimental" in line for line in warnings)
    assert slow.json["fastest_rate"] == 0.25
    assert (nobody.exit_code, "Traceback" in nobody.err) == (2, False)
    assert "unknown spider 'nobody'" in nobody.err
    assert not (project / "opened").exists()
    assert not (project / "job").exists()
    assert (project / "items.jsonl").read_text() == "{}\n"


def test_check_tells_what_was_learned_and_leaves_a_paused_host_alone(
    site: Callable[..., Site], project: Path
) -> None:
    shop = site(5)
    now = time.time()
    (project / "job").mkdir()
    path = project / "job" / "politeness.sqlite"
    knows = Entry(Learned(1.5, 2.0, 4), now - 3600)
    with StateFile(path) as state:
        state.write({"127.0.0.1": now + 900}, {"127.0.0.1": knows})

    told = apart("check", f"{shop.url}/page/1", cwd=project)

    assert told.exit_code == 0
    assert "not fetched, since the host is paused" in told.out
    assert "the host seems to allow about 1.5/s" in told.out
    assert "the host seems to take 4 requests at once" in told.out
    assert "learned 1 h ago" in told.out
    assert "paused for another 14 min" in told.out
    assert shop.arrivals == []


@pytest.mark.parametrize(
    ("robots", "expected"),
    [
        (Answer(429, {"Retry-After": "7"}), "429 Too Many Requests"),
        (Answer(503), "503 Service Unavailable"),
        (Answer(drop=True), "could not be fetched"),
    ],
    ids=["429", "503", "dropped"],
)
def test_check_asks_once_whatever_the_answer_is(
    site: Callable[..., Site], tmp_path: Path, robots: Answer, expected: str
) -> None:
    shop = site(5, robots=robots)
    told = apart(
        "check", f"{shop.url}/page/1", "-s", "POLITENESS_EXEMPT=", cwd=tmp_path
    )
    assert expected in told.out
    assert "unreachable: pages would be fetched without it" in told.out
    assert told.exit_code == int(robots.drop)
    assert "Traceback" not in told.err
    assert len(shop.arrivals) == 1


def test_check_says_what_an_unreachable_robots_txt_means(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    shop = site(5, robots=Answer(503))
    settings = ("-s", "POLITENESS_EXEMPT=", "-s", "ROBOTSTXT_OBEY=1")
    told = apart("check", f"{shop.url}/page/1", *settings, cwd=tmp_path)
    assert "unreachable: requests would wait for it" in told.out


def test_check_of_a_host_that_nothing_limits_says_why(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    url = site(5).url
    for options, reason in (
        ((), "it is in POLITENESS_EXEMPT"),
        (("-s", "POLITENESS_ENABLED=0"), "POLITENESS_ENABLED is off"),
    ):
        assert reason in apart("check", url, *options, cwd=tmp_path).out


@pytest.mark.parametrize(
    "url",
    ["example.org", "ftp://example.org/", "http://", "http://[::1", "http://a:b/"],
)
def test_check_of_what_is_no_url_is_an_error_in_one_line(
    here: Callable[..., Done], url: str
) -> None:
    done = here("check", url)
    assert done.exit_code == 2
    assert repr(url) in done.err.splitlines()[-1]


def test_check_prints_nothing_that_commands_a_terminal(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    agent = "\x1b]0;owned\x07"
    shop = site(5, robots="User-agent: *\nDisallow: /\nCrawl-delay: \x1b[2J\n")
    done = apart(
        "check",
        f"{shop.url}/\x1b[31m\u202e",
        *("-s", f"ROBOTSTXT_USER_AGENT={agent}", "-s", "POLITENESS_EXEMPT="),
        cwd=tmp_path,
    )
    assert is_harmless(done.out)
    assert is_harmless(done.err)
    assert "forbids this page" in done.out


@pytest.mark.everywhere
def test_state_shows_what_is_known(here: Callable[..., Done], state: Path) -> None:
    done = here("state", "--file", str(state))
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[1] == ["a.example", "4.5/s", "3", "2", "d", "ago"]
    assert rows[2][:2] == ["b.example", "3/min"]
    assert rows[2][-3:] == ["1", "min", "30"] or "ago" in rows[2]
    [a, b] = here("state", "show", "--json", "--file", str(state)).json
    assert (a["limit"], a["stood"], a["concurrency"]) == (4.5, None, 3)
    assert (b["limit"], b["stood"], b["concurrency"]) == (None, 0.05, None)
    assert a["age"] == pytest.approx(2 * DAY, abs=60)
    assert b["pause_left"] == pytest.approx(600, abs=60)
    [only] = here("state", "show", "B.EXAMPLE", "--json", "--file", str(state)).json
    assert only["slot"] == "b.example"


def test_state_exports_points_in_time(here: Callable[..., Done], state: Path) -> None:
    a, b = here("state", "export", "--file", str(state)).json["slots"]
    assert (a["slot"], a["ceiling"], a["paused_until"]) == ("a.example", 4.5, None)
    assert b["paused_until"] == pytest.approx(time.time() + 600, abs=60)


def test_state_imports_what_another_file_exported(
    here: Callable[..., Done], state: Path, tmp_path: Path
) -> None:
    exported, copy = tmp_path / "hosts.json", tmp_path / "copy.sqlite"
    exported.write_text(here("state", "export", "--file", str(state)).out)
    done = here("state", "import", str(exported), "--file", str(copy))
    assert (done.exit_code, done.err) == (0, "")
    assert "Imported what was known about 2 hosts" in done.out
    first, second = (
        here("state", "--json", "--file", str(path)).json for path in (state, copy)
    )
    for old, new in zip(first, second, strict=True):
        assert new == pytest.approx(old, abs=60)
    again = here("state", "import", str(exported), "--file", str(copy))
    assert "about 0 hosts; 2 older or damaged left out" in again.out


def test_state_imports_only_what_is_newer_and_sound(
    here: Callable[..., Done], state: Path, tmp_path: Path
) -> None:
    now = time.time()
    entries = [
        {"slot": "a.example", "ceiling": 9.0, "spread": 0.1, "learned_at": now - DAY},
        {"slot": "b.example", "ceiling": 9.0, "learned_at": now - 365 * DAY},
        {"slot": "c.example", "concurrency": 2, "learned_at": now + DAY},
        {"slot": "d.example", "paused_until": now + 900},
        {"slot": "e.example", "ceiling": -1, "learned_at": now},
        {"slot": "f.example", "ceiling": 1, "learned_at": "yesterday"},
    ]
    file = tmp_path / "hosts.json"
    file.write_text(json.dumps({"slots": entries}))
    done = here("state", "import", str(file), "--json", "--file", str(state))
    assert done.json == {"imported": ["a.example", "c.example", "d.example"]}
    for name in ("e.example", "f.example"):
        assert f"skipping the damaged entry of {name}" in done.err
    rows = {r["slot"]: r for r in here("state", "--json", "--file", str(state)).json}
    assert rows["a.example"]["limit"] == 9.0
    assert rows["b.example"]["stood"] == 0.05
    assert rows["c.example"]["age"] == pytest.approx(0, abs=60)
    assert rows["d.example"]["pause_left"] == pytest.approx(900, abs=60)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"slots": [{"limit": 1}]}', '{"slots": 7}', "[" * 10**5]
)
def test_state_import_of_something_else_is_said_and_changes_nothing(
    here: Callable[..., Done], tmp_path: Path, text: str
) -> None:
    file, path = tmp_path / "hosts.json", tmp_path / "new.sqlite"
    file.write_text(text)
    done = here("state", "import", str(file), "--file", str(path))
    assert done.exit_code == 1
    assert "is not what scrapy politeness state export prints" in done.err
    missing = here("state", "import", str(tmp_path / "none"), "--file", str(path))
    assert "cannot read" in missing.err
    assert not path.exists()


def test_state_forgets_hosts_or_all(here: Callable[..., Done], state: Path) -> None:
    done = here("state", "forget", "--file", str(state), "b.example", "c.example")
    assert done.exit_code == 1
    assert "nothing is known about c.example" in done.err
    with StateFile(state) as left:
        assert left.slots() == ["a.example"]
        assert left.pauses(time.time()) == {}
    assert here("state", "forget", "--all", "--file", str(state)).exit_code == 0
    assert "Nothing is known" in here("state", "--file", str(state)).out
    assert here("state", "forget", "--file", str(state)).exit_code == 2


def test_a_damaged_entry_is_a_warning(here: Callable[..., Done], state: Path) -> None:
    damage(state, "a.example")
    done = here("state", "--json", "--file", str(state))
    assert [row["slot"] for row in done.json] == ["b.example"]
    assert "skipping the damaged entry of a.example" in done.err
    assert done.exit_code == 0


def test_no_state_file_is_said_and_none_is_begun(
    here: Callable[..., Done], tmp_path: Path
) -> None:
    path = tmp_path / "none.sqlite"
    for options in ((), ("-s", f"POLITENESS_STATE={path}"), ("--file", str(path))):
        done = here("state", *options)
        assert done.exit_code == 1
        assert "there is no state file" in done.err
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"SQLite format 3\0")
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as db:
        db.execute("CREATE TABLE mine (x)")
    done = here("state", "--file", str(tmp_path / "other.sqlite"))
    assert (done.exit_code, "another program" in done.err) == (1, True)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_do_no_harm_in_a_terminal(
    here: Callable[..., Done], tmp_path: Path, name: str
) -> None:
    path = tmp_path / "state.sqlite"
    entry = Entry(Learned(4.5, 10.0, 3), time.time())
    with StateFile(path) as state:
        state.write({}, {name: entry, "other": entry})
    outputs = [here("state", "--file", str(path)).out]
    damage(path, name)
    outputs.append(here("state", "--file", str(path)).err)
    outputs.append(here("state", "forget", "--file", str(path), f"no{name}").err)
    outputs.append(here("check", name).err)
    for text in outputs:
        assert is_harmless(text)
    assert max(map(len, outputs[0].splitlines())) < 120


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--retry-after",),
        ("--ratelimit",),
        ("--window", "sliding", "--retry-after"),
        ("--window", "bucket", "--burst", "5", "--seed", "3"),
    ],
)
def test_simulate_plots_the_rate_and_sums_it_up(
    here: Callable[..., Done], options: tuple[str, ...]
) -> None:
    done = here("simulate", "40/10s", *options)
    figures = here("simulate", "40/10s", "--json", *options).json
    assert done.exit_code == 0
    assert "4/s │" in done.out
    assert "█" in done.out
    marks = next(line for line in done.out.splitlines() if "refused " in line)
    assert ("✗" in marks) == (figures["refused"] > 0)
    assert f"{figures['served']} pages in 600 s" in done.out
    assert 0.6 < figures["share"] <= 1.01


@pytest.mark.parametrize(
    ("options", "figure", "words"),
    [
        ("--failures", "unlucky", "of them by bad luck"),
        ("--timeouts", "timed_out", "timed out"),
        ("--resets", "failed", "failed"),
    ],
)
def test_simulate_a_host_with_bad_luck(
    here: Callable[..., Done], options: str, figure: str, words: str
) -> None:
    failures = ("simulate", "none", options, "0.05", "-s", "DOWNLOAD_TIMEOUT=10")
    done = here(*failures)
    figures = here(*failures, "--json").json
    assert figures[figure] > 0
    assert f"{figures[figure]} {words}" in done.out
    assert "of the possible rate" in done.out
    assert figures["limit_per_second"] == 10.0


def test_simulate_in_plain_letters_where_there_are_no_others(tmp_path: Path) -> None:
    done = apart("simulate", "40/10s", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (done.exit_code, done.out.isascii()) == (0, True)
    assert "4/s |" in done.out


def test_simulate_says_when_a_setting_keeps_it_below_the_limit(
    here: Callable[..., Done],
) -> None:
    assert "POLITENESS_MAX_RATE=10 keeps" in here("simulate", "200/10s").out
    raised = here("simulate", "200/10s", "-s", "POLITENESS_MAX_RATE=50", "--json")
    assert raised.json["share"] > 0.7


def report_of(name: str) -> Report:
    figures = {"sent": 40, "served": 37, "refused": 3, "timed_out": 0, "waited": 95.5}
    causes = {"host": 61.0, "start": 34.5}
    series = Series(1.0, [40.0], [3], [0.0], [2.0], [None])
    slot = SlotReport(name, {**figures, "rate": 2.0}, causes, "healthy", series)
    return Report(
        version=VERSION,
        software="scrapy-politeness",
        spider="shop",
        started="2026-01-02T03:04:05+00:00",
        seconds=100.0,
        finish_reason="finished",
        total=SlotReport("all", figures, causes, None, series),
        slots=[slot],
        others=7,
        other=SlotReport("others", {"sent": 9, "served": 9}, {}, None, None),
    )


@pytest.mark.everywhere
def test_report_prints_what_the_page_has(
    here: Callable[..., Done], tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    write_report(report_of("a.example"), path)
    done = here("report", str(path))
    assert done.exit_code == 0
    assert "shop: ended after 1 min 40 s: finished" in done.out
    assert "40 requests sent: 37 served, 3 refused" in done.out
    assert re.search(r"1 min 1 s  the host\n +34 s  the careful", done.out)
    assert re.search(r"^host +pages +refused +waited +rate +health$", done.out, re.M)
    assert re.search(r"^a.example +37 +3 +1 min 35 s +2/s +healthy$", done.out, re.M)
    assert "and 7 more hosts with 9 requests" in done.out
    assert here("report", "--json", str(path)).json["slots"][0]["name"] == "a.example"


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_in_a_report_do_no_harm_in_a_terminal(
    here: Callable[..., Done], tmp_path: Path, name: str
) -> None:
    path = tmp_path / "report.html"
    write_report(report_of(name), path)
    assert is_harmless(here("report", str(path)).out)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "cannot read "),
        (b"", "is not a readable report"),
        (b"\xff\xfe", "is not a readable report"),
        (b"<p>\x1b[2J</p>", "is not a readable report"),
    ],
)
def test_what_is_no_report_is_said_in_one_line(
    here: Callable[..., Done], tmp_path: Path, content: bytes | None, expected: str
) -> None:
    path = tmp_path / "report.html"
    if content is not None:
        path.write_bytes(content)
    done = here("report", str(path))
    assert (done.exit_code, done.err.count("\n")) == (1, 1)
    assert expected in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ("simulate fast", 2, "LIMIT='fast': must be a count"),
        ("simulate 5/s --seconds x", 2, "--seconds='x': must be a number"),
        ("simulate 5/s --seed -1", 2, "--seed"),
        ("simulate 5/s --burst 5", 2, "goes with --window bucket"),
        ("simulate 5/s --retry-after --ratelimit", 2, "not allowed with"),
        ("simulate none --failures 2", 2, "--failures='2': must be a number between"),
        ("simulate", 2, "required: LIMIT"),
        ("state steal", 2, "invalid choice: 'steal'"),
        ("state --all", 2, "--all is for forget only"),
        ("state import", 2, "import needs the file of an export"),
        ("check", 2, "required: URL"),
        ("check http://a/ --what", 2, "unknown arguments: --what"),
        ("", 2, "required"),
        ("simulate 9/s -s POLITENESS_MAX_RATE=x", 1, "POLITENESS_MAX_RATE='x'"),
        ("simulate 9999/s --seconds 1e9", 1, "choose fewer --seconds"),
        ("state -s POLITENESS_STAT=x", 1, "did you mean POLITENESS_STATE?"),
    ],
)
def test_what_is_wrong_is_said_and_gives_the_exit_code(
    here: Callable[..., Done], arguments: str, code: int, expected: str
) -> None:
    done = here(*arguments.split())
    assert done.exit_code == code
    assert expected in done.err
