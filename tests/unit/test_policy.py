"""Settings: what they mean, and that a wrong one stops the crawl."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Spider
from scrapy.settings import Settings

from scrapy_politeness.config.policy import Policy
from scrapy_politeness.config.settings import PolicyError
from scrapy_politeness.config.table import SETTINGS

if TYPE_CHECKING:
    from scrapy_politeness.config.slots import SlotPolicy


def policy(**settings: Any) -> Policy:
    return Policy.read(Settings(settings))


def slot(key: str = "www.example.org", **settings: Any) -> SlotPolicy:
    own = policy(**settings).for_slot(key)
    assert own is not None
    return own


WRONG = [
    ("POLITENESS_START_RATE", "fast", "a number greater than 0"),
    ("POLITENESS_REDIS_URL", "localhost:6379", 'a URL such as "redis://'),
    ("POLITENESS_REDIS_URL", "redis://localhost:abc", "cannot be parsed"),
    ("POLITENESS_REDIS_URL", "redis://localhost?foo=1", "cannot be parsed"),
    ("POLITENESS_REDIS_URL", "redis://[::1", "cannot be parsed"),
    ("POLITENESS_START_RATE", -1, "a number greater than 0"),
    ("POLITENESS_START_RATE", float("nan"), "a number greater than 0"),
    ("POLITENESS_START_RATE", "nan", "a number greater than 0"),
    ("POLITENESS_START_RATE", 0, "a number greater than 0"),
    ("POLITENESS_START_RATE", True, "a number greater than 0"),
    ("POLITENESS_MAX_RATE", float("inf"), "a number greater than 0"),
    ("POLITENESS_MIN_RATE", 20, "must not exceed POLITENESS_MAX_RATE=10.0"),
    ("POLITENESS_BACKOFF_BASE", 301, "must not exceed POLITENESS_BACKOFF_MAX=300.0"),
    ("POLITENESS_DECREASE_FACTOR", 1, "a number between 0 and 1"),
    ("POLITENESS_RAISE_AFTER", 0, "a whole number, 1 or greater"),
    ("POLITENESS_RAISE_AFTER", 1.5, "a whole number, 1 or greater"),
    ("POLITENESS_MAX_RESCHEDULES", -1, "a whole number, 0 or greater"),
    ("POLITENESS_GIVE_UP_AFTER", "a day", "a number, 0 or greater"),
    ("POLITENESS_RETRY_AFTER_MAX", "1h", "a number greater than 0"),
    ("POLITENESS_HTTP_CODES", ["too many"], "HTTP status codes"),
    ("POLITENESS_HTTP_CODES", [200], "HTTP status codes"),
    ("POLITENESS_HTTP_CODES", 429, "HTTP status codes"),
    ("POLITENESS_ROBOTS", "perhaps", "True or False"),
    ("POLITENESS_EXEMPT", [1], "host names"),
    ("POLITENESS_EXEMPT", ["http://x.org"], "without scheme, port or path"),
    ("POLITENESS_EXEMPT", ["x.org/a"], "without scheme, port or path"),
    ("POLITENESS_EXEMPT", ["x.org:8080"], "without scheme, port or path"),
    ("POLITENESS_EXEMPT", ["[::1]"], "host names"),
    ("POLITENESS_EXEMPT", ["api.*.org"], '"*.domain"'),
    ("POLITENESS_EXEMPT", ["a.org b.org"], "host names"),
    ("POLITENESS_LIMITS", ["example.org"], "must be a dict or JSON, such as"),
    ("POLITENESS_LIMITS", {"example.org": 5}, "the entry for 'example.org' must be"),
    ("POLITENESS_LIMITS", {"example.org": {"rate": 5}}, "unknown key 'rate'"),
    ("POLITENESS_LIMITS", {"localhost": {"limit": "1/s"}}, "have no effect"),
    ("POLITENESS_LIMITS", {"h": {"min_rate": 5, "max_rate": 2}}, "must not exceed its"),
    ("POLITENESS_LIMITS", {"h": {"burst": 0}}, "1 or greater"),
    ("POLITENESS_LIMITS", {"h": {"spacing": "end"}}, '"start" or "finish"'),
    ("POLITENESS_LIMITS", {"h": {"spacing": "finish", "burst": 2}}, "one at a time"),
    ("POLITENESS_GLOBAL_LIMIT", 12, 'such as "5/2s"'),
    ("POLITENESS_GLOBAL_LIMIT", b"12/s", 'such as "5/2s"'),
    ("POLITENESS_IP_LIMIT", "0/s", 'such as "5/2s"'),
    ("POLITENESS_PROXY_LIMIT", "", 'such as "5/2s"'),
    ("POLITENESS_GLOBAL_LIMIT", [], 'such as "5/2s"'),
    ("POLITENESS_GLOBAL_LIMIT", ["5/2s", "often"], 'such as "5/2s"'),
    ("POLITENESS_LIMITS", {"h": {"limit": [["5/2s"]]}}, 'such as "5/2s"'),
    ("POLITENESS_SLOTS", "search", "a list of pairs"),
    ("POLITENESS_SLOTS", [("/search", "a", "b")], "a list of pairs"),
    ("POLITENESS_SLOTS", [("/search", "")], "a list of pairs"),
    ("POLITENESS_SLOTS", [(5, "search")], "a list of pairs"),
    ("POLITENESS_SLOTS", [("(", "search")], "not a regular expression"),
    ("POLITENESS_SLOTS", [(re.compile(b"a"), "search")], "not a regular expression"),
    ("POLITENESS_SLOTS", [("/search", "*.org")], "the name of one slot"),
    ("POLITENESS_SLOTS", [("/search", 5)], "the name of one slot"),
    ("POLITENESS_GLOBAL_BANDWIDTH", "2Mb/s", 'such as "2MB/s"'),
    ("POLITENESS_GLOBAL_BANDWIDTH", "0B/s", 'such as "2MB/s"'),
    ("POLITENESS_GLOBAL_BANDWIDTH", "9" * 400 + "B/s", 'such as "2MB/s"'),
    ("POLITENESS_LIMITS", {"h": {"bandwidth": 2000}}, 'such as "2MB/s"'),
    ("POLITENESS_GROUP_BY", "tld", '"host" or "domain"'),
    ("POLITENESS_MAX_SLOTS", 0, "1 or greater"),
    ("POLITENESS_LIMITS", {"example.org": {"limit": "5 a day"}}, 'such as "5/2s"'),
    ("POLITENESS_LIMITS", {"h": {"limit": "9" * 400 + "/s"}}, 'such as "5/2s"'),
    ("POLITENESS_LIMITS", {"example.org": {"max_rate": -1}}, "0 or greater"),
    ("POLITENESS_LIMITS", {"http://h": {}}, "'http://h' must be a host name"),
    ("POLITENESS_LIMITS", {"h/a": {}}, "without scheme, port or path"),
    ("POLITENESS_LIMITS", {"h:8080": {}}, "without scheme, port or path"),
    ("POLITENESS_LIMITS", {"[::1]:80": {}}, "without scheme, port or path"),
    ("POLITENESS_LIMITS", {"*.org:80": {}}, "without scheme, port or path"),
    ("POLITENESS_LIMITS", {"api.*.org": {}}, '"*.domain"'),
    ("POLITENESS_STATE", 5, "the path of a file"),
    ("POLITENESS_STATE", "a\0b", "the path of a file"),
    ("POLITENESS_REPORT", 5, "the path of a file"),
    ("POLITENESS_REPORT", "/", "in a folder that exists and is writable"),
    ("POLITENESS_REPORT", "/no/such/folder/report.html", "in a folder that exists"),
    ("POLITENESS_STRAT_RATE", 5, "did you mean POLITENESS_START_RATE?"),
    ("AUTOTHROTTLE_ENABLED", True, "remove this setting"),
    ("DOWNLOAD_DELAY", -1, "0 or greater"),
    ("CONCURRENT_REQUESTS_PER_DOMAIN", 0, "1 or greater"),
    ("DOWNLOAD_SLOTS", {"example.org": {"delay": -1}}, "0 or greater"),
]


@pytest.mark.parametrize(("name", "value", "rule"), WRONG)
def test_a_wrong_setting_is_named_with_its_value_and_the_rule(
    name: str, value: Any, rule: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        policy(**{name: value})
    message = str(caught.value)
    assert message.startswith(f"{name}={value!r}: ")
    assert rule in message


def test_numbers_and_lists_may_come_as_text_from_the_command_line() -> None:
    read = policy(
        POLITENESS_START_RATE="0.5",
        POLITENESS_RAISE_AFTER="20",
        POLITENESS_HTTP_CODES="429,503,509",
        POLITENESS_EXEMPT="a.example, B.example",
        POLITENESS_ROBOTS="False",
        POLITENESS_LIMITS='{"example.org": {"limit": "5/2s"}}',
        POLITENESS_SLOTS='[["/search", "Search"]]',
        POLITENESS_GLOBAL_LIMIT='["100/m", "20/s"]',
    )
    assert [pattern.name for pattern in read.slots] == ["search"]
    assert str(read.global_limit) == "20/1s and 100/60s"
    assert (read.bounds.start_rate, read.bounds.raise_after) == (0.5, 20)
    assert read.http_codes == {429, 503, 509}
    assert read.exempt == {"a.example", "b.example"}
    assert not read.robots
    own = read.for_slot("example.org")
    assert own is not None
    assert own.spacing == pytest.approx(0.4, rel=0.01)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("100B/s", 100), ("500kB/s", 5e5), ("1.5 MB/s", 1.5e6), ("1GiB/s", 2**30)],
)
def test_bandwidths(text: str, rate: float) -> None:
    assert slot("h", POLITENESS_LIMITS={"h": {"bandwidth": text}}).bandwidth == rate
    assert policy(POLITENESS_GLOBAL_BANDWIDTH=text).global_bandwidth == rate


@pytest.mark.parametrize(
    ("text", "exempt"),
    [
        ("[]", set()),
        ("", set()),
        ('["A.example", "*.b.example"]', {"a.example", "*.b.example"}),
        (" [ ]", set()),
    ],
)
def test_a_list_may_come_as_json(text: str, exempt: set[str]) -> None:
    assert policy(POLITENESS_EXEMPT=text).exempt == exempt


@pytest.mark.parametrize(
    "text", ["['a.example']", "[::1]", "[", "[" * 100_000, '["a.example"', '{"a": 1}']
)
def test_a_list_that_is_not_json_is_an_error(text: str) -> None:
    with pytest.raises(PolicyError, match="must be a list of host names"):
        policy(POLITENESS_EXEMPT=text)


@pytest.mark.parametrize(
    "name", [name for name, row in SETTINGS.items() if row.default is None]
)
def test_what_is_unset_may_be_none_as_text(name: str) -> None:
    assert policy(**{name: "None"}) == policy(**{name: None}) == policy()


def test_the_slower_of_two_bounds_that_disagree_holds() -> None:
    assert slot(POLITENESS_START_RATE=50).bounds.start_rate == 10.0
    assert slot(POLITENESS_START_RATE=0.01).bounds.min_rate == 0.01


def test_a_start_above_the_most_is_told_if_it_was_meant(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slot(POLITENESS_MAX_RATE=0.5)
    assert not caplog.messages
    slot(POLITENESS_START_RATE=50)
    [message] = caplog.messages
    assert message.startswith(
        "POLITENESS_START_RATE=50 exceeds POLITENESS_MAX_RATE=10, "
    )


def test_scrapys_own_limits_keep_their_meaning() -> None:
    settings = {
        "DOWNLOAD_DELAY": 3,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 4,
        "DOWNLOAD_SLOTS": {"slow.example": {"delay": 9, "concurrency": 1}},
    }
    assert slot("any.example", **settings).spacing == 3
    assert slot("any.example", **settings).concurrency == 4
    assert slot("slow.example", **settings).spacing == 9
    assert slot("slow.example", **settings).concurrency == 1


def test_the_spiders_own_delay_counts_unless_its_settings_say_otherwise() -> None:
    class Slow(Spider):
        name = "slow"
        download_delay = 7

    settings = Settings()
    assert Policy.read(settings, Slow()).spacing == 7
    settings.set("DOWNLOAD_DELAY", 2, "spider")
    assert Policy.read(settings, Slow()).spacing == 2


@pytest.mark.parametrize(
    ("key", "rate"),
    [
        ("api.example.org", 1.0),
        ("API.example.org", 1.0),
        ("www.example.org", 2.0),
        ("a.deep.example.org", 3.0),
        ("example.org", 10.0),
        ("example.com", 10.0),
    ],
)
def test_the_most_specific_limit_wins(key: str, rate: float) -> None:
    limits = {
        "api.Example.org": {"max_rate": 1},
        "*.example.org": {"max_rate": 2},
        "*.deep.example.org": {"max_rate": 3},
    }
    assert slot(key, POLITENESS_LIMITS=limits).bounds.max_rate == rate


@pytest.mark.parametrize("key", ["my slot", "shop: search", "fe80::1", "fe80::1:8080"])
def test_limits_of_addresses_and_of_slots_with_any_name(key: str) -> None:
    assert slot(key, POLITENESS_LIMITS={key: {"max_rate": 2}}).bounds.max_rate == 2


@pytest.mark.parametrize(
    ("host", "exempt"),
    [
        ("x.org", True),
        ("X.org", True),
        ("www.x.org", False),
        ("y.org", False),
        ("www.y.org", True),
        ("a.b.y.org", True),
        ("notmy.org", False),
        ("::1", True),
        ("::2", False),
        ("", False),
    ],
)
def test_exempt_hosts_and_domains(host: str, exempt: bool) -> None:
    read = policy(POLITENESS_EXEMPT=["x.org", "*.Y.org", "::1"])
    assert read.is_exempt(host) == exempt


def test_a_delay_of_0_does_not_switch_off_a_limit() -> None:
    settings: dict[str, Any] = {
        "DOWNLOAD_DELAY": 3,
        "DOWNLOAD_SLOTS": {"www.example.org": {"delay": 0, "concurrency": 2}},
    }
    own = slot(POLITENESS_LIMITS={"*.example.org": {"limit": "1/s"}}, **settings)
    assert own.spacing == pytest.approx(1.0, rel=0.02)
    assert own.concurrency == 2
    own = slot(POLITENESS_LIMITS={"www.example.org": {"max_rate": 2}}, **settings)
    assert (own.spacing, own.bounds.max_rate) == (0, 2)


def test_a_named_limit_may_exceed_the_general_maximum() -> None:
    limits = {"www.example.org": {"limit": "50/s", "concurrency": 20}}
    own = slot(POLITENESS_LIMITS=limits)
    assert own.bounds.max_rate == pytest.approx(50, rel=0.02)
    assert own.spacing == pytest.approx(0.02, rel=0.02)
    assert own.concurrency == 20


def test_a_limit_that_does_not_adapt_is_used_from_the_start() -> None:
    limits = {"www.example.org": {"limit": "5/s", "adaptive": False}}
    own = slot(POLITENESS_LIMITS=limits)
    assert own.bounds.start_rate == pytest.approx(5, rel=0.02)
    assert not own.bounds.adaptive


@pytest.mark.parametrize(
    "settings",
    [
        {"POLITENESS_LIMITS": {"www.example.org": {"start_rate": 0}}},
        {"POLITENESS_LIMITS": {"*.example.org": {"max_rate": 0}}},
        {"DOWNLOAD_SLOTS": {"www.example.org": {"delay": 0}}},
    ],
)
def test_off_switches_of_a_slot(settings: dict[str, Any]) -> None:
    assert policy(**settings).for_slot("www.example.org") is None
    assert policy(**settings).for_slot("www.example.com") is not None


class Overheard(Settings):
    """Writes down what is asked for."""

    asked: set[str]

    def get(self, name: Any, default: Any = None) -> Any:
        if hasattr(self, "asked"):
            self.asked.add(name)
        return super().get(name, default)


def test_every_setting_is_read_by_its_own_name() -> None:
    settings = Overheard()
    settings.asked = set()
    Policy.read(settings)
    own = {name for name in settings.asked if "POLITENESS" in name}
    assert own == set(SETTINGS)


@pytest.mark.parametrize(
    "url",
    ["redis://:p#ss@host", "http://u:p#ss@host", "unix:///s?db=x&password=p#ss"],
)
def test_a_password_is_not_in_the_message(url: str) -> None:
    with pytest.raises(PolicyError) as caught:
        policy(POLITENESS_REDIS_URL=url)
    assert "p#ss" not in str(caught.value)
    assert "'p'" not in str(caught.value)
