"""The Python SDK's own interaction suite, with muxway between its clients and its servers.

The suite says what a client and a server of the SDK see of each other: 228 cases for both eras. Behind a gateway with
one server and no prefix all of it should be as without. What is not is named below, with the reason: each of these
fails, and nothing else does.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import NamedTuple

import pytest

from . import peers

EVERY_ERA = ("2025-11-25", "2026-07-28")
HANDSHAKE, STATELESS = EVERY_ERA[:1], EVERY_ERA[1:]

DIFFERENCES: dict[str, dict[str, tuple[str, ...]]] = {
    "request ids and progress tokens belong to one connection: muxway has its own towards the server": {
        "lowlevel/cancellation::cancellation_stops_in_flight_handler": HANDSHAKE,
        "lowlevel/cancellation::session_serves_requests_after_cancellation": HANDSHAKE,
        "lowlevel/progress::progress_token_visible_to_handler": HANDSHAKE,
        "lowlevel/progress::client_progress_notification_reaches_server_handler": HANDSHAKE,
        "lowlevel/progress::progress_sent_after_the_response_is_not_delivered_to_the_callback": HANDSHAKE,
        "lowlevel/subscriptions::the_subscription_id_is_the_listen_request_id_the_server_saw": STATELESS,
    },
    "muxway says who it is: it is the server's client and the client's server": {
        "lowlevel/initialize::initialize_returns_server_info": HANDSHAKE,
        "lowlevel/initialize::initialize_server_sees_client_info": HANDSHAKE,
        "mcpserver/context::context_exposes_request_id_and_client_info_to_a_tool": HANDSHAKE,
    },
    "lists are read by muxway, before clients ask; pages are the gateway's (`pageSize`)": {
        "lowlevel/tools::call_tool_populates_the_output_schema_cache_via_an_implicit_tools_list": EVERY_ERA,
        "lowlevel/client_connect::every_request_on_a_modern_session_carries_the_three_key_meta_envelope": STATELESS,
        "lowlevel/pagination::next_cursor_round_trips_through_the_client": EVERY_ERA,
        "lowlevel/pagination::paginating_until_next_cursor_is_absent_yields_every_page": EVERY_ERA,
        "lowlevel/pagination::the_client_follows_opaque_cursors_through_pages_of_varying_sizes": EVERY_ERA,
        "lowlevel/pagination::resources_list_supports_cursor_pagination": EVERY_ERA,
        "lowlevel/pagination::resource_templates_list_supports_cursor_pagination": EVERY_ERA,
        "lowlevel/pagination::prompts_list_supports_cursor_pagination": EVERY_ERA,
    },
    "a change of a list is told, whether or not its server announces it": {
        "lowlevel/initialize::initialize_capabilities_reflect_registered_handlers": HANDSHAKE,
    },
    "a list that was announced to have changed, and has not, is no news": {
        "lowlevel/list_changed::tool_list_changed_notification": HANDSHAKE,
        "lowlevel/list_changed::resource_list_changed_notification": HANDSHAKE,
        "lowlevel/list_changed::prompt_list_changed_notification": HANDSHAKE,
        "mcpserver/subscriptions::listen_surfaces_the_ack_and_iterates_typed_events": STATELESS,
    },
    "streams of changes are muxway's own: one at the server for all clients, opened anew when the server ends it": {
        "lowlevel/subscriptions::a_graceful_server_close_ends_iteration_after_buffered_events": STATELESS,
        "lowlevel/subscriptions::a_stream_dropped_after_the_ack_raises_subscription_lost": STATELESS,
        "lowlevel/subscriptions::concurrent_listen_streams_each_receive_their_own_ack": STATELESS,
    },
    "a client hears of what it subscribed to, and of pages that it was sent to, and of no other": {
        "lowlevel/resources::resource_updated_notification_reaches_client": HANDSHAKE,
        "lowlevel/elicitation::elicitation_complete_for_an_unknown_id_is_received_without_error": HANDSHAKE,
    },
    "a client that did not declare that it can be asked is not asked: muxway refuses in its place, in other words": {
        "lowlevel/elicitation::elicit_form_without_callback_is_error": HANDSHAKE,
        "lowlevel/roots::list_roots_without_callback_is_error": HANDSHAKE,
        "lowlevel/sampling::create_message_without_callback_is_error": HANDSHAKE,
    },
    "a server that does not declare resources is not asked for templates": {
        "lowlevel/resources::list_resource_templates_returns_registered_templates": EVERY_ERA,
    },
    "muxway holds the server, or its client, to the specification": {
        # 2025-11-25, client/elicitation: answers fit the form.
        "lowlevel/elicitation::accepted_elicitation_content_that_violates_the_schema_reaches_the_handler_unchanged": (
            HANDSHAKE
        ),
        # 2025-11-25, basic/utilities/progress: progress increases.
        "lowlevel/progress::non_increasing_progress_values_are_forwarded_unchanged": EVERY_ERA,
        # 2026-07-28: -32002 is no more.
        "lowlevel/resources::read_resource_unknown_uri_is_protocol_error": STATELESS,
        # 2025-11-25, server/tools: the characters of a name.
        "mcpserver/tools::registering_a_tool_with_a_spec_invalid_name_warns_but_does_not_reject": EVERY_ERA,
    },
    "muxway filters log messages itself, so every server has levels": {
        "mcpserver/context::set_logging_level_is_rejected_and_messages_are_never_filtered": HANDSHAKE,
    },
}


SHARED: dict[str, dict[str, tuple[str, ...]]] = {
    **DIFFERENCES,
    "a connection that clients share declares what any of them may have; on a pipe there is but one": {
        "lowlevel/initialize::initialize_server_sees_client_capabilities": HANDSHAKE,
        "lowlevel/roots::roots_list_changed_reaches_server_handler": HANDSHAKE,
        "lowlevel/sampling::create_message_with_tools_is_rejected_for_unsupporting_client": HANDSHAKE,
        "lowlevel/sampling::a_client_with_a_sampling_callback_declares_the_sampling_capability": HANDSHAKE,
        "mcpserver/extensions::legacy_ad_omits_claim_bearing_identifiers_but_keeps_claim_less_ones": HANDSHAKE,
    },
}
DOORS = {"stdio": DIFFERENCES, "memory": SHARED}


class Run(NamedTuple):
    """The suite, run once."""

    failed: dict[str, str]
    """Every case and how it failed; nothing if it did not."""
    expected: set[str]


@pytest.fixture(scope="module", params=DOORS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The suite, with clients that come in by one door."""
    expected = {
        f"{name}[{era}]" for cases in DOORS[request.param].values() for name, eras in cases.items() for era in eras
    }
    told = tmp_path_factory.mktemp("suite") / "outcomes.json"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(peers.HERE / "suite"), str(peers.ROOT / "src"))),
        "MUXWAY_DOOR": request.param,
        "MUXWAY_EXPECTED": json.dumps(sorted(expected)),
        "MUXWAY_OUTCOMES": str(told),
    }
    plain = ["-q", "--tb=native", "--inline-snapshot=disable", "-p", "no:cacheprovider", "-W", "ignore"]
    where = ["-c", os.devnull, "--rootdir", ".", "-o", "faulthandler_timeout=30", "-p", "through_muxway"]
    parts = ["tests/interaction/lowlevel", "tests/interaction/mcpserver"]
    done = subprocess.run(
        [peers.python("suite"), "-m", "pytest", *plain, *where, *parts],
        cwd=peers.ENVS / "suite" / "sdk",
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert told.exists(), done.stdout[-5000:] + done.stderr[-5000:]
    return Run(json.loads(told.read_text()), expected)


def test_clients_and_servers_of_the_sdk_see_the_same_of_each_other_as_without_muxway(run: Run) -> None:
    """docs/names.md#one-server, but for what is named above."""
    assert len(run.failed) == 228
    assert {name: why for name, why in run.failed.items() if why and name not in run.expected} == {}


def test_what_is_named_as_a_difference_is_one(run: Run) -> None:
    """Ours: a difference that is gone is taken off the list."""
    assert sorted(run.expected - {name for name, why in run.failed.items() if why}) == []
