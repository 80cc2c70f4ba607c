"""Five revisions on one pipe: which one a request is written in, and which one we answer in."""

from __future__ import annotations

import pytest
from msgspec import Raw

from muxway.errors import InvalidParams, UnsupportedVersion
from muxway.wire import envelopes, revisions
from muxway.wire.revisions import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION, REVISIONS

HANDSHAKE = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
ALL = [*HANDSHAKE, "2026-07-28"]


def envelope(**keys: bytes) -> dict[str, Raw]:
    """A good 2026-07-28 `_meta`, with these of its keys changed."""
    names = {"version": PROTOCOL_VERSION, "capabilities": CLIENT_CAPABILITIES, "info": CLIENT_INFO, "level": LOG_LEVEL}
    good = {PROTOCOL_VERSION: b'"2026-07-28"', CLIENT_CAPABILITIES: b"{}"}
    return {name: Raw(raw) for name, raw in (good | {names[key]: raw for key, raw in keys.items()}).items()}


@pytest.mark.parametrize(
    ("date", "stateless", "batches", "progress_message", "unknown_tool_code"),
    [
        ("2024-11-05", False, False, False, -32601),
        ("2025-03-26", False, True, True, -32601),
        ("2025-06-18", False, False, True, -32601),
        ("2025-11-25", False, False, True, -32601),
        ("2026-07-28", True, False, True, -32602),
    ],
)
def test_each_revision_is_told_from_the_others(
    date: str, stateless: bool, batches: bool, progress_message: bool, unknown_tool_code: int
) -> None:
    """The table of revisions: batches only in 2025-03-26, stateless since 2026-07-28; docs/errors.md has the code."""
    revision = REVISIONS[date]
    assert revision.date == date
    assert (revision.stateless, revision.batches) == (stateless, batches)
    assert revision.progress_message is progress_message
    assert revision.unknown_tool_code == unknown_tool_code


def test_all_five_revisions_are_offered_newest_first() -> None:
    """MCP 2026-07-28, server/discover: what is supported. Ours: all five, newest first."""
    assert list(revisions.SUPPORTED) == sorted(ALL, reverse=True)
    assert revisions.NEWEST.date == "2026-07-28"
    assert revisions.NEWEST_HANDSHAKE.date == "2025-11-25"


@pytest.mark.parametrize(
    ("requested", "answered"),
    [
        *((date, date) for date in HANDSHAKE),
        ("2026-07-28", "2025-11-25"),
        ("2024-10-07", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
        ("latest", "2025-11-25"),
        ("", "2025-11-25"),
        (None, "2025-11-25"),
    ],
)
def test_initialize_is_answered_with_the_same_revision_or_our_newest(requested: str | None, answered: str) -> None:
    """MCP 2025-11-25, basic/lifecycle: the same version if we speak it, else our newest that has a handshake."""
    assert revisions.negotiate(requested).date == answered


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {},
        {"progressToken": Raw(b"1")},
        {"com.example/x": Raw(b"{}"), "traceparent": Raw(b'"00-1"')},
        {CLIENT_CAPABILITIES: Raw(b"{}"), CLIENT_INFO: Raw(b"{}")},
    ],
)
def test_a_request_that_names_no_revision_is_of_the_handshake_era(meta: dict[str, Raw] | None) -> None:
    """MCP 2026-07-28, basic/versioning: only the version in `_meta` makes a request stateless."""
    assert revisions.read_envelope(meta) is None


@pytest.mark.parametrize("date", ALL)
def test_only_the_stateless_revision_can_be_named_in_an_envelope(date: str) -> None:
    """MCP 2026-07-28, basic/versioning: -32022 for what has no stateless form here."""
    meta = envelope(version=envelopes.encode(date))
    if date == "2026-07-28":
        assert revisions.read_envelope(meta) is not None
        return
    with pytest.raises(UnsupportedVersion) as caught:
        revisions.read_envelope(meta)
    assert caught.value.code == -32022
    assert caught.value.data == {"supported": list(reversed(ALL)), "requested": date}
    assert date in caught.value.message


def test_an_unknown_revision_is_refused_with_what_is_supported() -> None:
    """MCP 2026-07-28, basic/versioning: -32022 with data {supported, requested}."""
    with pytest.raises(UnsupportedVersion) as caught:
        revisions.read_envelope(envelope(version=b'"2027-01-01"'))
    assert caught.value.data == {"supported": list(reversed(ALL)), "requested": "2027-01-01"}


@pytest.mark.parametrize("capabilities", [None, b"null", b"[]", b'"{}"', b"1", b"true"])
@pytest.mark.parametrize("date", ["2026-07-28", "2025-11-25", "2099-01-01"])
def test_an_envelope_without_capabilities_is_wrong_before_its_version_is_looked_at(
    capabilities: bytes | None, date: str
) -> None:
    """MCP 2026-07-28, basic/index: what lacks a required key is malformed (-32602) before its version counts."""
    meta = envelope(version=envelopes.encode(date))
    del meta[CLIENT_CAPABILITIES]
    if capabilities is not None:
        meta[CLIENT_CAPABILITIES] = Raw(capabilities)
    with pytest.raises(InvalidParams) as caught:
        revisions.read_envelope(meta)
    assert caught.value.code == -32602
    assert CLIENT_CAPABILITIES in caught.value.message


@pytest.mark.parametrize("version", [b"null", b"20260728", b"{}", b"[]", b"true"])
def test_a_version_that_is_no_text_is_wrong(version: bytes) -> None:
    """MCP 2026-07-28, basic/index: a string, required."""
    with pytest.raises(InvalidParams) as caught:
        revisions.read_envelope(envelope(version=version))
    assert PROTOCOL_VERSION in caught.value.message


def test_what_the_caller_says_of_itself_stays_as_it_came() -> None:
    """MCP 2026-07-28, basic/index: clientInfo and logLevel are optional; nothing may be refused for lack of them."""
    plain = revisions.read_envelope(envelope())
    assert plain is not None
    assert (bytes(plain.capabilities), plain.client_info, plain.log_level) == (b"{}", None, None)
    full = revisions.read_envelope(
        envelope(capabilities=b'{"elicitation":{"form":{}}, "x":1E5}', info=b'{"name":"desk"}', level=b'"debug"')
    )
    assert full is not None
    assert bytes(full.capabilities) == b'{"elicitation":{"form":{}}, "x":1E5}'
    assert bytes(full.client_info or b"") == b'{"name":"desk"}'
    assert full.log_level == 0


def test_keys_of_one_hop_are_those_and_no_others() -> None:
    """docs/behaviour.md#what-passes-untouched: envelope and token speak of one hop; trace and vendor keys travel on."""
    assert {
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientInfo",
        "io.modelcontextprotocol/clientCapabilities",
        "io.modelcontextprotocol/logLevel",
        "progressToken",
    } == revisions.HOP_KEYS
