"""One entry goes in and out again; every other byte stays. 1,000 generated files, and those that people broke."""

from __future__ import annotations

import time
import tomllib
from typing import Any

import pytest
import yaml

from muxway.config.jsonc import parse_jsonc
from muxway.errors import ConfigError
from muxway.setup.splicing import Unspliceable, entries_in, with_entry, without_entry
from tests.setup.making import Maker

ENTRY = {"command": "/opt/muxway", "args": ["stdio", "--keep-going", "/home/user/größe.json"]}
KINDS = {"JSON": "mcpServers", "TOML": "mcp_servers", "YAML": "extensions", "YAML list": "mcpServers"}


def made(kind: str, seed: int) -> str:
    maker, container = Maker(seed), KINDS[kind]
    match kind:
        case "JSON":
            return maker.json(container)
        case "TOML":
            return maker.toml(container)
        case _:
            return maker.yaml(container, listed=kind.endswith("list"))


def parsed(kind: str, text: str) -> Any:
    """What another reader makes of it than the one that is used to prove a splice."""
    text = text.removeprefix("\ufeff")
    match kind:
        case "JSON":
            return parse_jsonc(text).value
        case "TOML":
            return tomllib.loads(text)
        case _:
            return yaml.safe_load(text)


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_thousand_files_none_is_damaged(kind: str) -> None:
    """docs/setup.md#what-is-changed-in-a-file: all else is as it was, and what was put in comes out again."""
    container = (KINDS[kind],)
    for seed in range(550 if kind == "JSON" else 150):
        text, format_ = made(kind, seed), kind.split()[0]
        before = parsed(kind, text) or {}
        after = with_entry(text, format_, container, ("muxway", ENTRY))
        now = parsed(kind, after)
        there = now[container[0]]
        ours = there[0] if isinstance(there, list) else there["muxway"]
        assert {key: ours[key] for key in ENTRY} == ENTRY, (kind, seed)
        rest = [item for item in there if item is not ours] if isinstance(there, list) else dict(there)
        if isinstance(rest, dict):
            del rest["muxway"]
        had = before.get(container[0])
        assert rest == (had or type(rest)()), (kind, seed)
        assert {k: v for k, v in now.items() if k != container[0]} == {
            k: v for k, v in before.items() if k != container[0]
        }, (kind, seed)
        assert _is_within(text, after), (kind, seed)
        back = without_entry(after, format_, container, "muxway")
        if had:
            # But for an end of the last line, if that had none.
            assert back.rstrip("\r\n") == text.rstrip("\r\n"), (kind, seed)
            assert back == text or kind == "TOML", (kind, seed)
        else:
            assert (parsed(kind, back) or {}).get(container[0]) in (None, {}, []), (kind, seed)


def _is_within(text: str, after: str) -> bool:
    """Whether all of the text is there, in its order, with one stretch and at most one comma put in."""
    start = 0
    while start < len(text) and text[start] == after[start]:
        start += 1
    # The comma behind the value before it may stand apart from the entry.
    if after[start : start + 1] == "," and start < len(text):
        after, start = after[:start] + after[start + 1 :], start
        while start < len(text) and text[start] == after[start]:
            start += 1
    return after.endswith(text[start:])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("JSON", '{"mcpServers": {'),
        ("JSON", '{"mcpServers": []x}'),
        ("JSON", "[]"),
        ("JSON", '{"mcpServers": "x"}'),
        ("JSON", '{"mcpServers": {}, "mcpServers": {}}'),
        ("JSON", '{"mcpServers": {"muxway": {}}}'),
        ("JSON", "[" * 200),
        ("TOML", "mcp_servers = {}\n"),
        ("TOML", "mcp_servers = 3\n"),
        ("TOML", "a = \n"),
        ("YAML", "a: [\n"),
        ("YAML", "extensions: 3\n"),
        ("YAML", "- a\n"),
        ("YAML", "extensions: {a: b}\n---\nb: 1\n"),
    ],
)
def test_what_cannot_be_spliced_is_refused(kind: str, text: str) -> None:
    """docs/setup.md#what-is-left-alone: with a reason, instead of a guess."""
    with pytest.raises((Unspliceable, ConfigError)):
        with_entry(text, kind, (KINDS[kind],), ("muxway", ENTRY))


def test_comments_stay_where_they_are() -> None:
    """docs/setup.md#what-is-changed-in-a-file: one behind a server stays behind that server."""
    text = '{\n\t"mcpServers": {\n\t\t"a": {"command": "x"} // mine\n\t}\n}\n'
    after = with_entry(text, "JSON", ("mcpServers",), ("muxway", {"command": "m"}))
    assert after == (
        '{\n\t"mcpServers": {\n\t\t"a": {"command": "x"}, // mine\n'
        '\t\t"muxway": {\n\t\t\t"command": "m"\n\t\t}\n\t}\n}\n'
    )


def test_a_file_of_megabytes_takes_no_time() -> None:
    """Ours: Claude Code keeps all it knows in the same file."""
    text = '{"projects": {' + ",".join(f'"/p{n}": {{"history": ["x{n}", {{}}]}}' for n in range(60_000)) + "}}"
    began = time.process_time()
    after = with_entry(text, "JSON", ("mcpServers",), ("muxway", ENTRY))
    assert time.process_time() - began < 10
    assert entries_in(after, "JSON", ("mcpServers",)) == {"muxway": ENTRY}
    assert after.startswith(text.removesuffix("}"))


@pytest.mark.parametrize(
    "text", ["extensions: {}\n", "extensions: {a: {x: 1}}\n", "extensions: {\n  a: 1, # mine\n  b: 2\n}\nc: 3\n"]
)
def test_what_was_put_into_a_flow_mapping_comes_out_again(text: str) -> None:
    """docs/setup.md#the-way-back: also once somebody has written elsewhere in the file."""
    put_in = with_entry(text, "YAML", ("extensions",), ("muxway", ENTRY))
    assert without_entry(put_in + "more: 1\n", "YAML", ("extensions",), "muxway") == text + "more: 1\n"
