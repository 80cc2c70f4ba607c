"""`muxway read` and `muxway prompt`: resources and prompts, listed and used."""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

PICTURE = b"\x89PNG\r\n\x00\xff"

LIBRARY = """
import json, sys

PICTURE, BROKEN = sys.argv[1:3]

def answer(method, params):
    if method == "initialize":
        has = {"resources": {}, "prompts": {}}
        return {"protocolVersion": "2025-06-18", "capabilities": has, "serverInfo": {"name": "library", "version": "1"}}
    if method == "resources/list":
        return {"resources": [
            {"uri": "book:///otters", "name": "otters", "description": "All about\\notters."},
            {"uri": "book:///cover", "name": "cover"},
        ]}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "page:///{number}", "name": "page"}]}
    if method == "resources/read":
        uri = params["uri"]
        if uri == "book:///cover":
            return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PICTURE}]}
        if uri == "page:///broken":
            return {"contents": [{"uri": uri, "blob": BROKEN}]}
        if uri == "page:///silent":
            return None
        return {"contents": [{"uri": uri, "text": f"text of {uri}\\n"}]}
    if method == "prompts/list":
        wants = [{"name": "topic", "required": True}, {"name": "length"}]
        return {"prompts": [{"name": "summary", "description": "Sum it up.", "arguments": wants}, {"name": "talk"}]}
    if method == "prompts/get" and params["name"] == "summary":
        text = json.dumps(params["arguments"])
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
    if method == "prompts/get":
        return {"messages": [
            {"role": "user", "content": {"type": "text", "text": "Hello."}},
            {"role": "assistant", "content": {"type": "image", "mimeType": "image/png", "data": PICTURE}},
        ]}
    raise LookupError(method)

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    try:
        outcome = {"result": answer(message["method"], message.get("params"))}
    except LookupError:
        outcome = {"error": {"code": -32601, "message": "unknown method"}}
    if outcome != {"result": None}:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)
"""


@pytest.fixture
def library(write: Callable[..., Path]) -> Path:
    """A config with a server that has resources and prompts, and one that does not exist."""
    picture = base64.b64encode(PICTURE).decode()
    server = {"command": sys.executable, "args": ["-c", LIBRARY, picture, "no base64!"]}
    return write({"mcpServers": {"library": server, "missing": {"command": "no-such-program"}}})


def test_resources_are_listed_with_templates_and_failures(muxway: Callable[..., Result], library: Path) -> None:
    """Ours: `muxway read` without a URI; a server that fails does not hide the others, nor itself."""
    result = muxway("read", "--config", library)
    assert result.exit_code == 0
    assert [line.split(maxsplit=1) for line in result.stdout.splitlines()] == [
        ["book:///otters", "All about otters."],
        ["book:///cover", "[library] cover"],
        ["page:///{number}", "[library] page"],
    ]
    assert '✗ failed  server "missing" could not be started' in result.stderr


def test_resources_as_json_have_their_whole_definition(muxway: Callable[..., Result], library: Path) -> None:
    """Ours: one stable document."""
    told = json.loads(muxway("read", "-o", "json", "--config", library).stdout)
    assert [(one["uri"], one["server"]) for one in told["resources"]] == [
        ("book:///otters", "library"),
        ("book:///cover", "library"),
    ]
    assert told["resourceTemplates"][0]["definition"]["uriTemplate"] == "page:///{number}"
    assert [*told["failed"]] == ["missing"]


@pytest.mark.parametrize("uri", ["book:///otters", "page:///7"])
def test_a_text_is_printed_as_it_is(uri: str, muxway: Callable[..., Result], library: Path) -> None:
    """Ours: `muxway read URI`, also of what only a template covers; no second newline at the end."""
    result = muxway("read", uri, "--config", library)
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"text of {uri}\n", "")


def test_what_is_no_text_goes_to_a_pipe_byte_for_byte(muxway: Callable[..., Result], library: Path) -> None:
    """Ours: `muxway read URI > file` gives the file."""
    result = muxway("read", "book:///cover", "--config", library)
    assert (result.exit_code, result.stdout_bytes) == (0, PICTURE)


def test_a_broken_blob_is_told(muxway: Callable[..., Result], library: Path) -> None:
    """Ours: nothing half decoded is passed off as the resource."""
    result = muxway("read", "page:///broken", "--config", library)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no proper base64" in result.stderr


def test_the_whole_answer_can_be_had_as_json(muxway: Callable[..., Result], library: Path) -> None:
    """Ours: `-o json`, as `call` has it."""
    result = muxway("read", "book:///otters", "-o", "json", "--config", library)
    assert json.loads(result.stdout)["contents"] == [{"uri": "book:///otters", "text": "text of book:///otters\n"}]


def test_an_unknown_resource_is_refused_with_what_to_do(muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: exit 1, as for an unknown tool."""
    result = muxway("read", "book:///none", "--config", servers)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "✗ error" in result.stderr
    assert f"`muxway read -c {servers}` without a URI lists what there is." in result.stderr


def test_a_server_that_does_not_answer_ends_with_7(muxway: Callable[..., Result], library: Path) -> None:
    """Ours: the exit codes of `call`."""
    result = muxway("read", "page:///silent", "--timeout", "0.3", "--config", library)
    assert (result.exit_code, result.stdout) == (7, "")


def test_prompts_are_listed_with_their_arguments(muxway: Callable[..., Result], library: Path) -> None:
    """Ours: `muxway prompt` without a name; what may be left out stands in brackets."""
    result = muxway("prompt", "--config", library)
    assert result.exit_code == 0
    first, second = result.stdout.splitlines()
    assert first.split()[:3] == ["library__summary", "topic=", "[length=]"]
    assert second.split()[0] == "library__talk"
    assert '✗ failed  server "missing"' in result.stderr


def test_prompts_as_json_have_their_whole_definition(muxway: Callable[..., Result], library: Path) -> None:
    """Ours: one stable document."""
    told = json.loads(muxway("prompt", "-o", "json", "--config", library).stdout)
    assert [(one["name"], one["server"], one["originalName"]) for one in told["prompts"]] == [
        ("library__summary", "library", "summary"),
        ("library__talk", "library", "talk"),
    ]


@pytest.mark.parametrize("name", ["library__summary", "library:summary", "library.summary"])
def test_a_prompt_is_filled_in(name: str, muxway: Callable[..., Result], library: Path) -> None:
    """Ours: arguments of prompts are text, whatever they look like; only the server of the name is started."""
    result = muxway("prompt", name, "topic=a=b", "length=7", "--config", library)
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {"topic": "a=b", "length": "7"}


def test_of_several_messages_each_has_its_role(muxway: Callable[..., Result], library: Path) -> None:
    """Ours: who says what, and what is no text in a few words."""
    result = muxway("prompt", "library__talk", "--config", library)
    assert result.stdout == "user:\nHello.\nassistant:\n[image image/png, 9 bytes]\n"


def test_an_unknown_prompt_gets_the_nearest_one(muxway: Callable[..., Result], library: Path) -> None:
    """Ours: nearest-name suggestions on typos."""
    result = muxway("prompt", "library__sumary", "--config", library)
    assert result.exit_code == 1
    assert "Did you mean library__summary" in result.stderr


def test_a_prompt_of_a_server_that_is_not_there(muxway: Callable[..., Result], library: Path) -> None:
    """Ours: exit 4, with the reason."""
    result = muxway("prompt", "missing__hello", "--config", library)
    assert result.exit_code == 4
    assert "no-such-program: command not found" in result.stderr


@pytest.mark.parametrize("word", ["topic", "=otters"])
def test_what_is_no_argument_is_told_before_anything_starts(
    word: str, muxway: Callable[..., Result], library: Path
) -> None:
    """Ours: wrong usage is exit 2."""
    result = muxway("prompt", "library__summary", word, "--config", library)
    assert result.exit_code == 2
    assert "write KEY=VALUE" in result.stderr


@pytest.mark.parametrize("verb", ["read", "prompt", "call"])
def test_a_config_in_the_place_of_the_name_is_noticed(verb: str, muxway: Callable[..., Result], library: Path) -> None:
    """Ours: `check` and `list` take a file there, so people write it here, too."""
    result = muxway(verb, library)
    assert result.exit_code == 2
    assert f"write --config {library}." in result.stderr


@pytest.mark.parametrize(("verb", "noun"), [("read", "resources"), ("prompt", "prompts")])
def test_nothing_to_list_is_told_on_stderr(verb: str, noun: str, muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: data → stdout, remarks → stderr."""
    result = muxway(verb, "--config", servers)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"there are no {noun}\n")
