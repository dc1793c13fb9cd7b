"""All properties, by the names under which they can be fuzzed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fuzz import (
    configured,
    headers,
    named,
    reported,
    robots,
    scripted,
    shared,
    stored,
    walled,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TARGETS: dict[str, Callable[[], Any]] = {
    "retry-after": headers.retry_after_is_a_time,
    "quota": headers.quota_is_one,
    "answers": headers.answers_keep_the_crawl_polite,
    "walls": walled.walls_are_known_or_not,
    "refusals": walled.rules_hold_or_are_errors,
    "robots": robots.robots_txt_is_understood_or_not,
    "robots-delay": robots.delays_are_found_among_garbage,
    "notation": configured.notation_is_a_limit_or_an_error,
    "settings": configured.settings_hold_or_stop_the_crawl,
    "names": named.names_are_only_names,
    "requests": named.requests_have_a_slot,
    "proxies": named.proxies_keep_their_secrets,
    "state": stored.state_files_may_be_damaged,
    "state-rows": stored.state_rows_may_be_anything,
    "requests-file": stored.request_files_may_be_damaged,
    "requests-rows": stored.request_rows_may_be_anything,
    "learned": shared.shared_learning_may_be_anything,
    "beliefs": shared.beliefs_may_be_anything,
    "report": reported.reports_may_be_anything,
    "replies": shared.replies_may_be_anything,
    "keys": scripted.keys_may_hold_anything,
    "queue": scripted.shared_queues_may_hold_anything,
}
