"""The field table, and what is made from it: schema and explanations."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import jsonschema_rs
import pytest

import muxway.config
from muxway.config import (
    explain,
    json_schema,
    kinds,
    middlewares,
    oauth,
    parse_config,
    parse_server,
    programs,
    shaping,
    tls,
)
from muxway.config.dialects import CLIENT_KEYS, UNSUPPORTED_KEYS
from muxway.config.documents import MINIMAL
from muxway.config.fields import FieldKind, Section, snake_case
from muxway.config.model import SECTIONS, SERVER
from muxway.errors import ConfigError

EVERY_ROW = [
    pytest.param(section, row, id=f"{section.name}.{row.key}") for section in SECTIONS for row in section.fields
]


def test_every_kind_is_that_of_a_key() -> None:
    """Ours: one table per kind of knowledge, and nothing in it that nobody needs."""
    used = [row.kind for section in SECTIONS for row in section.fields]
    made = {
        name: one
        for module in (kinds, shaping, middlewares, oauth, programs, tls)
        for name, one in vars(module).items()
    }
    assert [name for name, one in made.items() if isinstance(one, FieldKind) and one not in used] == []
    assert all(one.words for one in used)


def test_a_key_is_named_like_the_attribute_that_it_fills() -> None:
    """Ours: who knows the key finds the attribute. `type` is what clients call the transport."""
    rows = [row for section in SECTIONS for row in section.fields if row.attribute is not None]
    assert {row.key for row in rows if snake_case(row.key) != row.attribute} == {"type"}


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_every_spelling_means_one_thing(section: Section) -> None:
    """Ours: a spelling in two rows would make the second unreachable."""
    spellings = [spelling for row in section.fields for spelling in row.spellings]
    assert sorted(spellings) == sorted(section.by_spelling)
    if section is SERVER:
        assert not section.by_spelling.keys() & (CLIENT_KEYS | UNSUPPORTED_KEYS)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_every_setting_of_the_model_has_a_key(section: Section) -> None:
    """Ours: an attribute nobody can set is a mistake. The others are put together from several keys, or are facts."""
    composed = {"transport", "command", "args", "env", "url", "headers"} if section is SERVER else set()
    facts = {"name", "secrets", "written", "env_file", "extra", "unusable"} if section is SERVER else set()
    named = {
        "tools.*": {"name"},
        "views.*": {"name", "secrets"},
        "mcpServers.*.shape.*": {"match"},
        "access.*": {"where", "line"},
    }.get(section.name, set())
    attributes = {attribute.name for attribute in fields(section.model)}
    assert attributes == {row.attribute for row in section.fields if row.attribute} | composed | facts | named


@pytest.mark.parametrize(("section", "row"), EVERY_ROW)
def test_every_key_is_explained_with_an_example_that_is_valid(section: Section, row: object) -> None:
    """Ours: the documentation of a field is the only source for schema, `explain` and docs."""
    text = explain(f"{section.name}.{row.key}")
    assert text.startswith(f"{section.name}.{row.key}\n  {row.doc}")
    assert json.dumps({row.key: row.example}, ensure_ascii=False)[1:-1] in text
    assert row.doc.endswith(".")
    names = {
        "mcpServers.*": "server", "gateway": "gateway", "tools.*": "customTool",
        "tools.*.steps.*": "step", "tools.*.examples.*": "example", "views.*": "view",
        "mcpServers.*.shape.*": "shape", "mcpServers.*.shape.*.arguments.*": "argument",
        "access.*": "accessRule",
        "gateway.auth": "auth", "gateway.auth.claims": "claims", "gateway.auth.introspection": "introspection",
        "gateway.auth.signOn": "signOn", "gateway.auth.server": "ownServer",
        "mcpServers.*.oauth": "oauth", "mcpServers.*.oauth.idp": "idp",
        "mcpServers.*.tls": "serverTls", "gateway.tls": "tls",
        "cli.*.commands.*": "programCommand", "cli.*.commands.*.arguments.*": "programArgument",
    }  # fmt: skip
    schema = json_schema()["$defs"][names.get(section.name, "subtools")]
    properties = (schema if "properties" in schema else schema["items"]["anyOf"][1])["properties"]
    root = {**json_schema(), "properties": {"x": properties[row.key]}}
    assert [error.message for error in jsonschema_rs.iter_errors(root, {"x": row.example})] == []


@pytest.mark.parametrize("row", [row for row in SERVER.fields if row.key != "envFile"], ids=lambda row: row.key)
def test_every_example_of_a_server_key_loads(row: object) -> None:
    """Ours: an example that does not work is worse than none."""
    base = (
        {}
        if row.key in {"command", "url", "httpUrl"}
        else {"url": "http://x"}
        if row.key == "type"
        else {"command": "x"}
    )
    environ = dict.fromkeys(("GITHUB_TOKEN", "API_TOKEN", "API_KEY", "GITHUB_CLIENT_SECRET"), "value")
    parse_server("s", {**base, row.key: row.example}, environ=environ)


def test_the_schema_is_a_valid_schema_and_refuses_wrong_types() -> None:
    """docs/cli.md#muxway-config-schema: good enough for completion and for checks in editors."""
    validator = jsonschema_rs.Draft202012Validator(json_schema())
    assert validator.is_valid(json.loads(MINIMAL))
    for wrong in (
        [],
        {"mcpServers": 3},
        {"mcpServers": {"a": {"command": 3}}},
        {"mcpServers": {"a": {"args": "x"}}},
        {"mcpServers": {"a": {"era": "old"}}},
        {"servers": [{"command": "x"}]},
        {"gateway": {"separator": "-"}},
        {"tools": {"T": {"description": "d"}}},
        {"tools": {"T": {"description": "d", "subtools": {}}}},
        {"mcpServers": {"a": {"command": "x", "shape": {"t": {"arguments": []}}}}},
        {"mcpServers": {"a": {"command": "x", "shape": {"t": {"arguments": {"q": {"enum": []}}}}}}},
        {"views": {"v": {"tools": 3}}},
        {"views": []},
    ):
        assert not validator.is_valid(wrong), wrong


def test_the_minimal_file_of_our_messages_loads() -> None:
    """Ours: what we tell people to write must work."""
    assert list(parse_config(json.loads(MINIMAL)).servers) == ["time"]


def test_explaining_everything_names_every_key() -> None:
    """docs/cli.md#muxway-config-explain: every key."""
    text = explain()
    assert all(row.key in text for section in SECTIONS for row in section.fields)
    assert MINIMAL in text


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("callTimeout", ["mcpServers.*.callTimeout", "gateway.callTimeout", "Default: 60.0"]),
        ("gateway.call_timeout", ["gateway.callTimeout", "another spelling of `callTimeout`"]),
        ("mcpServers.github.serverUrl", ["mcpServers.*.httpUrl", "another spelling"]),
        ("servers.x.env", ["mcpServers.*.env"]),
        ("gateway", ["gateway\n", "pageSize"]),
        ("mcpServers", ["command", "hiddenTools"]),
        ("views", ["views.*\n", "discovery", "access.*.views"]),
        ("context_servers", ["Zed", "command"]),
        ("inputs", ["prompts, for `${input:ID}`"]),
        ("tools.T.description", ["tools.*.description"]),
    ],
)
def test_a_key_is_explained_however_it_is_asked_for(key: str, expected: list[str]) -> None:
    """docs/cli.md#muxway-config-explain: paths as they stand in problems are understood too."""
    text = explain(key)
    assert [part for part in expected if part not in text] == []
    assert ("gateway.callTimeout" in text) == (key in {"callTimeout", "gateway.call_timeout"})


def test_an_unknown_key_is_answered_with_the_nearest() -> None:
    """docs/cli.md#muxway-config-explain: an unknown key gets the nearest one."""
    with pytest.raises(ConfigError, match="did you mean `callTimeout`"):
        explain("calTimeout")


def test_importing_the_package_stays_light() -> None:
    """Ours: `--help` under 100 ms. YAML and TOML are for files that need them, difflib for mistakes."""
    source = str(Path(muxway.config.__file__).parents[2])
    heavy = {"yaml", "tomllib", "difflib", "pydantic"}
    code = f"import sys; sys.path.insert(0, {source!r}); import muxway.config; print(sys.modules.keys() & {heavy!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"
