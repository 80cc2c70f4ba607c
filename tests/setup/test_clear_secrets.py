"""Secrets in clients' files, wherever people put them: never shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muxway.setup.clear_secrets import clear_secrets, mask_of
from muxway.setup.env_files import moved

SECRET = "abcdef0123456789xyz"


@pytest.mark.parametrize(
    "entry",
    [
        {"args": ["mcp-remote", "https://x", "--header", f"Authorization: Bearer {SECRET}"]},
        {"args": ["-H", f"X-Api-Key:{SECRET}"]},
        {"args": [f"--header=Authorization: Bearer {SECRET}"]},
        {"args": ["run", "-e", f"API_TOKEN={SECRET}", "image"]},
        {"args": ["-c", f"TOKEN={SECRET} npx x --header 'Authorization: Basic {SECRET}'"]},
        {"args": ["--api-key", SECRET]},
        {"args": [f"--api-key={SECRET}"]},
        {"command": f"docker run -e TOKEN={SECRET} image"},
        {"url": f"https://example.com/mcp?key={SECRET}"},
        {"url": f"https://user:{SECRET}@example.com/mcp"},
        {"headers": {"Authorization": f"Bearer {SECRET}"}},
    ],
)
def test_a_secret_is_found_and_never_shown(entry: dict[str, Any]) -> None:
    """docs/setup.md: in a change that is shown, `***` stands for it; and the user hears that it is there."""
    assert SECRET not in mask_of({"mcpServers": {"x": entry}})(json.dumps(entry))
    assert len(clear_secrets(entry)) == 1


@pytest.mark.parametrize(
    "variables",
    [{"DATABASE_URL": f"postgres://user:{SECRET}@host/db"}, {"HEADERS": f'{{"Authorization": "Bearer {SECRET}"}}'}],
)
def test_a_part_of_a_variable_is_masked_and_the_variable_stays_whole(variables: dict[str, str]) -> None:
    """Ours: what is moved to a file of secrets is the value of a variable, never a piece of it."""
    shown = mask_of({"mcpServers": {"x": {"env": variables}}})(json.dumps(variables))
    assert SECRET not in shown
    assert "host" in shown or "Authorization" in shown
    assert moved("x", {"command": "c", "env": variables})[1] == {}


@pytest.mark.parametrize(
    "text", ["author: Christopher Marlowe", "https://example.com/docs?page=authentication", "--verbose"]
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    """Ours: a change must stay readable."""
    assert mask_of({"x": {"args": [text]}})(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer ${HUB_TOKEN_OF_MINE}",
        "Authorization:${secret:hub.Authorization}",
        "API_KEY=${input:key-of-the-hub}",
        "https://example.com/mcp?api_key=${secret:hub.url}",
    ],
)
def test_a_reference_is_no_secret(text: str) -> None:
    """docs/setup.md#secrets: it is neither told of nor moved, and is shown; a default in it is not shown."""
    assert clear_secrets({"args": ["--header", text]}) == {}
    assert mask_of({"x": {"args": [text]}})(text) == text
    default = f"Authorization: Bearer ${{HUB_TOKEN:-{SECRET}}}"
    assert SECRET not in mask_of({"x": {"args": [default]}})(default)
    assert clear_secrets({"args": [default]}) == {}
