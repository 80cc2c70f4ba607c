"""Bad input: every fault has its path, its line, its code and a remedy, and no fault hides another."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muxway.config import Config, load_config, parse_config, parse_server
from muxway.config.documents import MAX_FILE_BYTES
from muxway.errors import ConfigError, Problem

law = settings(deadline=None)
"""A busy machine is no fault."""

ENVIRON = {"HOME": "/home/me", "GITHUB_TOKEN": "s3cr3t-token"}
OK = {"command": "srv"}


def fault(data: Any, environ: dict[str, str] | None = None) -> ConfigError:
    """The error that this data must cause."""
    with pytest.raises(ConfigError) as caught:
        parse_config(data, environ=ENVIRON if environ is None else environ)
    assert "s3cr3t" not in str(caught.value)
    return caught.value


def problem(entry: Any, **environ: str) -> Problem:
    """The one problem of a server with this entry."""
    error = fault({"mcpServers": {"s": entry}}, ENVIRON | environ)
    assert len(error.details) == 1, str(error)
    return error.details[0]


def warnings(entry: Any) -> list[tuple[str, str]]:
    """Path and message of the warnings of a server with this entry."""
    config = parse_config({"mcpServers": {"s": entry}}, environ=ENVIRON)
    return [(warning.path, warning.message) for warning in config.warnings]


def load(tmp_path: Path, text: str | bytes, name: str = "muxway.json") -> ConfigError:
    """The error that this file must cause."""
    file = tmp_path / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigError) as caught:
        load_config(file, environ=ENVIRON)
    assert str(file) in str(caught.value)
    assert caught.value.details
    return caught.value


# --- the file itself ------------------------------------------------------------------------------------------------


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """docs/configuration.md#problems: `Config file not found: PATH`, code file_not_found."""
    with pytest.raises(ConfigError, match=r"Config file not found: .*none\.json.*mcpServers") as caught:
        load_config(tmp_path / "none.json")
    assert caught.value.code == "file_not_found"


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    """docs/configuration.md#problems: unreadable."""
    with pytest.raises(ConfigError, match="is a folder") as caught:
        load_config(tmp_path)
    assert caught.value.code == "file_not_found"


def test_a_file_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/configuration.md#problems.

    Unreadable. Tests may run as root, who may read everything, hence the pretence.
    """

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "x.json"
    file.touch()
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigError, match="permissions") as caught:
        load_config(file)
    assert caught.value.code == "file_not_found"


@pytest.mark.parametrize("path", ["a\x00b", "x" * 5000, "/dev/null/x.json"])
def test_an_impossible_path_is_an_error_like_any_other(path: str) -> None:
    """Ours: nothing but ConfigError may leave the loader."""
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert caught.value.code == "file_not_found"


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs an endless file")
def test_a_file_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: a wrong path must not fill the memory."""
    monkeypatch.setattr("muxway.config.documents.MAX_FILE_BYTES", 1 << 20)
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load_config("/dev/zero")
    assert MAX_FILE_BYTES > 1 << 20


@pytest.mark.parametrize("text", ["", " \n\t", "\ufeff"])
@pytest.mark.parametrize("name", ["a.json", "a.toml", "a.yaml", "a"])
def test_an_empty_file_is_called_empty(tmp_path: Path, text: str, name: str) -> None:
    """docs/configuration.md#problems: empty; the remedy is a minimal file."""
    error = load(tmp_path, text, name)
    assert error.code == "invalid_json"
    assert "is empty" in str(error)
    assert '"mcpServers"' in str(error)


def test_a_file_that_is_not_utf8_is_told_what_to_be(tmp_path: Path) -> None:
    """docs/configuration.md#problems: not UTF-8; the line helps to find the one odd letter."""
    error = load(tmp_path, b'{\n"mcpServers": "\xe4"}')
    assert error.code == "invalid_json"
    assert "not UTF-8 (line 2). Save it as UTF-8" in str(error)
    assert "UTF-16" in str(load(tmp_path, '{"a": "ä"}'.encode("utf-16")))


@pytest.mark.parametrize(
    ("name", "text", "kind", "line"),
    [
        ("a.json", '{"mcpServers": {\n "a": {"command": "x" "args": []}}}', "JSON", 2),
        ("a.toml", '[mcp_servers.a]\ncommand = x"', "TOML", 2),
        ("a.yaml", "mcpServers:\n  a: {command: [x}\n", "YAML", 2),
        ("a.yml", "mcpServers:\n\ta: 1\n", "YAML", 2),
        ("a.yaml", "mcpServers: &a [*a]", "YAML", 1),
        ("a.yaml", "mcpServers: !!python/object:os.system x", "YAML", 1),
        ("a.yaml", "mcpServers: {? [a] : b}", "YAML", 1),
        ("a.yaml", "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
        ), "YAML", None),
        ("a.yaml", "a: \x01", "YAML", None),
        ("a.yaml", "[" * 5000, "YAML", None),
        ("a.toml", "a = " + "[" * 5000, "TOML", None),
        ("a.toml", "a = " + "1" * 5000, "TOML", None),
        ("a.yaml", "a: " + "1" * 5000, "YAML", 1),
        ("a.yaml", "a:\n  - !!bool x", "YAML", 2),
        ("a", '{"mcpServers": }', "JSON", 1),
        ("a", "[mcp_servers]\nx = ", "TOML", 2),
        ("a", "mcpServers: [", "YAML", None),
    ],
)  # fmt: skip
def test_text_that_does_not_parse_is_told_with_format_and_line(
    tmp_path: Path, name: str, text: str, kind: str, line: int | None
) -> None:
    """docs/configuration.md#problems: wrong JSON, and its relatives; code invalid_json whatever the format."""
    error = load(tmp_path, text, name)
    assert error.code == "invalid_json"
    assert f"not valid {kind}" in str(error)
    assert line is None or error.details[0].line == line


def test_a_yaml_error_does_not_show_what_may_be_a_password(tmp_path: Path) -> None:
    """docs/configuration.md#secrets.

    Secrets never appear in errors; `*` starts an alias in YAML and many a password.
    """
    assert "hunter2" not in str(load(tmp_path, "servers: {a: {env: {PW: *hunter2}}}", "a.yaml"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"mcpServers": {\n "a": {"command": "x"},\n "a": {"command": "y"}}}'),
        ("a.yaml", "mcpServers:\n  a: {command: x}\n  a: {command: y}\n"),
    ],
)
def test_the_same_server_twice_in_one_object_is_told_with_both_lines(tmp_path: Path, name: str, text: str) -> None:
    """docs/configuration.md#formats: duplicate names."""
    error = load(tmp_path, text, name)
    assert "mcpServers.a (line 3): the same key stands on lines 2 and 3" in str(error)
    assert error.code == "invalid_schema"


def test_yaml_merge_keys_are_no_duplicates(tmp_path: Path) -> None:
    """YAML 1.1 merge: a mapping's own keys win over those it takes over."""
    file = tmp_path / "a.yaml"
    file.write_text(
        "x-base: &base {command: srv, env: {A: 1}}\nmcpServers:\n  a: &a {<<: *base, command: other}\n"
        "  b: *a\n  c: {<<: [*a, *base], args: [on, 2024-01-01]}\n"
    )
    servers = load_config(file).servers
    assert [server.command for server in servers.values()] == ["other", "other", "other"]
    assert servers["c"].args == ("true", "2024-01-01")


# --- servers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [{}, {"other": 1}, {"mcp": {"allowed": []}}, {"extensions": ["a.b"]}])
def test_a_file_without_servers_shows_a_minimal_one(data: Any) -> None:
    """docs/configuration.md#problems: `Missing required field: mcpServers`."""
    error = fault(data)
    assert error.details[0].path == "mcpServers"
    assert "Missing required field: mcpServers" in str(error)
    assert '{"mcpServers": {"time":' in str(error)


def test_a_misspelt_container_is_recognised() -> None:
    """docs/configuration.md#shapes: a `servers` file read as “no servers” is a known pain."""
    assert "`mcpserver`" in str(fault({"mcpserver": {"a": OK}}))


@pytest.mark.parametrize("key", ["mcpServers", "servers", "context_servers", "mcp_servers"])
def test_an_empty_container_is_told(key: str) -> None:
    """docs/configuration.md#problems: no servers."""
    error = fault({key: {}})
    assert error.details[0].path == key
    assert "holds no server" in str(error)


@pytest.mark.parametrize("data", [None, [], "x", 3, [{"command": "x"}]])
def test_a_config_must_be_an_object(data: Any) -> None:
    """docs/configuration.md#problems: path `$`, `Config must be an object`."""
    error = fault(data)
    assert error.details[0].path == "$"
    assert "Config must be an object" in str(error)


def test_servers_of_one_project_are_not_read_but_mentioned() -> None:
    """docs/configuration.md#shapes: Claude Code keeps servers per project in its state file."""
    config = parse_config({"mcpServers": {"a": OK}, "projects": {"/p": {"mcpServers": {"b": OK}}, "/q": {}}})
    assert list(config.servers) == ["a"]
    assert [(w.path, "top-level `mcpServers`" in w.message) for w in config.warnings] == [
        ("projects./p.mcpServers", True)
    ]


def test_the_same_name_in_two_containers_is_told_with_both_places(tmp_path: Path) -> None:
    """docs/configuration.md#shapes: duplicate names."""
    error = load(tmp_path, '{"mcpServers": {\n"a": {"command": "x"}},\n"servers": {"a": {"command": "x"}}}')
    assert 'servers.a (line 3): server "a" is already configured at mcpServers.a (line 2)' in str(error)
    listed = fault({"mcpServers": [{"name": "a", **OK}, {"name": "a", **OK}]})
    assert [detail.path for detail in listed.details] == ["mcpServers.1"]


@pytest.mark.parametrize(
    ("entry", "path", "message"),
    [
        ("npx", "", "Server config must be an object"),
        (None, "", "Server config must be an object"),
        ({}, ".command", "Missing `command`"),
        ({"comand": "x"}, ".command", "`comand` is not a known key"),
        ({"type": "sse"}, ".url", "Missing `command`"),
        ({"type": "stdio", "url": "http://x"}, ".command", "the type is `stdio`"),
        ({"type": "http", "command": "x"}, ".url", "the type is `http`"),
        ({"command": "x", "url": "http://x"}, "", "has both `command` and `url`"),
        ({"command": 3}, ".command", "command must be a string, or an array of the program and its arguments"),
        ({"command": ""}, ".command", "must not be empty"),
        ({"command": []}, ".command", "found an empty array"),
        ({"command": ["x", {}]}, ".command.1", "command[1] must be a string, number or boolean, found an object"),
        ({"command": "x\0"}, ".command", "NUL"),
        ({"command": "x", "args": "-y"}, ".args", "args must be an array"),
        ({"command": "x", "args": ["a", None]}, ".args.1", "args[1] must be a string, number or boolean, found null"),
        ({"command": "x", "env": []}, ".env", "env must be an object"),
        ({"command": "x", "env": {"A": []}}, ".env.A", "A must be a string, number, boolean or null, found an array"),
        ({"command": "x", "env": {"A=B": "1"}}, ".env.A=B", "must not be empty or contain `=`"),
        ({"command": "x", "cwd": 1}, ".cwd", "must be a path"),
        ({"command": "x", "envFile": "none.env"}, ".envFile", "none.env cannot be read: No such file"),
        ({"command": "x", "inheritEnv": 1}, ".inheritEnv", "true, false or an array"),
        ({"command": "x", "envVars": "A"}, ".envVars", "an array of variable names"),
        ({"url": "example.com"}, ".url", "http:// or https://"),
        ({"url": "ftp://x"}, ".url", "http:// or https://"),
        ({"url": "http://a b"}, ".url", "without blanks"),
        ({"url": "https://h]mcp"}, ".url", "must have a host"),
        ({"url": "https://[::1/mcp"}, ".url", "must have a host"),
        ({"url": "https://:80/mcp"}, ".url", "must have a host"),
        ({"url": "https://h:99999/mcp"}, ".url", "from 1 to 65535"),
        ({"url": "https://h:x/mcp"}, ".url", "from 1 to 65535"),
        ({"url": "https://h:0/mcp"}, ".url", "from 1 to 65535"),
        ({"url": "http://x", "type": "websocket"}, ".type", "WebSocket"),
        ({"url": "http://x", "type": "htp"}, ".type", "use stdio, http or sse"),
        ({"url": "http://x", "headers": "A: b"}, ".headers", "must be an object"),
        ({"url": "http://x", "headers": {"A": "b\r\nC: d"}}, ".headers.A", "must be one line"),
        ({"url": "http://x", "headers": {"A b": "c"}}, ".headers.A b", "not the name of an HTTP header"),
        ({"url": "http://x", "headers": [{"value": "c"}]}, ".headers.0", "needs `name`"),
        ({"command": "x", "enabled": "maybe"}, ".enabled", "must be true or false, found 'maybe'"),
        ({"command": "x", "enabled": True, "disabled": True}, "", "contradict"),
        ({"command": "x", "callTimeout": 0}, ".callTimeout", "positive number of seconds"),
        ({"command": "x", "callTimeout": True}, ".callTimeout", "found true"),
        ({"command": "x", "callTimeout": "soon"}, ".callTimeout", "found 'soon'"),
        ({"command": "x", "callTimeout": float("nan")}, ".callTimeout", "positive number of seconds"),
        ({"command": "x", "callTimeout": 10**400}, ".callTimeout", "positive number of seconds"),
        ({"command": "x", "timeout": -1}, ".timeout", "found -1"),
        ({"command": "x", "maxMessageBytes": 1}, ".maxMessageBytes", "1024 or more, found 1"),
        ({"command": "x", "maxMessageBytes": 1.5e6}, ".maxMessageBytes", "whole number"),
        ({"command": "x", "era": "old"}, ".era", '"auto", "modern", "legacy", found \'old\''),
        ({"command": "x", "exposedTools": "a"}, ".exposedTools", "an array of tool names"),
        ({"command": "x", "exposedTools": ["*", "a"]}, ".exposedTools", "must stand alone"),
        ({"command": "x", "exposedTools": [{"exposed": "a"}]}, ".exposedTools.0", "needs `original`"),
        (
            {"command": "x", "exposedTools": ["a", {"original": "b", "exposed": "a"}]},
            ".exposedTools",
            'two tools would have the name "a"',
        ),
        ({"command": "x", "hiddenTools": [""]}, ".hiddenTools.0", "hiddenTools[0] must not be empty"),
        ({"command": "x", "callTimeout": 1, "call_timeout": 2}, ".call_timeout", "means the same as `callTimeout`"),
        ({"command": "${vault:key}"}, ".command", "${vault:key} cannot be expanded. Write ${NAME}"),
        ({"command": "x", "args": ["${A%/}"]}, ".args.0", "${A%/} cannot be expanded. Write ${NAME}"),
    ],
)
def test_each_fault_has_a_path_and_a_remedy(entry: Any, path: str, message: str) -> None:
    """docs/configuration.md#problems: wrong types, each with place and remedy."""
    found = problem(entry)
    assert found.path == f"mcpServers.s{path}"
    assert found.code == "invalid_schema"
    assert message in found.message


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x00", "\ud800", 7])
def test_a_server_needs_a_printable_name(name: Any) -> None:
    """Ours: the name becomes a prefix, a log field and a path."""
    error = fault({"mcpServers": {name: OK}})
    assert "the name of a server must" in str(error)
    str(error).encode()


@pytest.mark.parametrize("name", ["my server", "a.b", "a:b", "ünï", "$A", "@scope/x"])
def test_any_other_name_is_fine(name: str) -> None:
    """Ours: files in use have all of these; public names are made legal in the catalog."""
    assert parse_config({"mcpServers": {name: OK}}).servers[name].where == f"mcpServers.{name}"


def test_servers_in_an_array_need_names() -> None:
    """Continue and Mistral Vibe: arrays with `name`."""
    error = fault({"mcpServers": [OK, "x", {"name": 3, **OK}]})
    assert [detail.path for detail in error.details] == ["mcpServers.0", "mcpServers.1", "mcpServers.2.name"]


@pytest.mark.parametrize(
    ("entry", "path", "message"),
    [
        ({"command": "x", "expose_tools": ["a"]}, "expose_tools", "did you mean `exposed_tools`?"),
        ({"command": "x", "zzz": 1}, "zzz", "`muxway config explain`"),
        ({"command": "npx -y thing"}, "command", "put its arguments into `args`"),
        ({"command": "x", "env": {"A": "b "}}, "env.A", "begins or ends with blanks"),
        ({"url": " http://x"}, "url", "blanks around the URL"),
        ({"url": "http://x", "apiKey": {}}, "apiKey", "not supported by muxway"),
        ({"command": "x", "tools": {"a": {"name": "b"}}}, "tools", "`shape` renames"),
        ({"command": "x", "tools": {"a": {"approval_mode": "auto"}, "b": {"enabled": False}}}, "tools", "`shape`"),
        ({"type": "stdio", "command": "x", "url": "http://x"}, "", "`url` has no effect"),
    ],
)
def test_doubtful_things_are_warnings(entry: Any, path: str, message: str) -> None:
    """docs/configuration.md#shapes: unknown keys do not prevent loading; the nearest known key is named."""
    assert [(f"mcpServers.s.{path}".rstrip("."), True)] == [(where, message in text) for where, text in warnings(entry)]


def test_keys_that_only_clients_act_on_are_kept_in_silence() -> None:
    """docs/configuration.md#shapes: kept verbatim, never acted upon."""
    entry = {
        "command": "x",
        "alwaysAllow": ["a"],
        "trust": True,
        "x-note": "hi",
        "tools": {"a": {"approval_mode": "auto"}},
    }
    assert warnings(entry) == []
    assert parse_server("s", entry).extra == {key: value for key, value in entry.items() if key != "command"}


def test_null_means_left_out() -> None:
    """Ours: generators write null for every key they do not use."""
    assert warnings({"command": "x", "url": None, "env": None, "args": None, "type": None}) == []


# --- variables ------------------------------------------------------------------------------------------------------


def test_every_missing_variable_is_reported_with_its_path(tmp_path: Path) -> None:
    """docs/configuration.md#variables: a missing one is named with its place, and all are at once."""
    error = load(
        tmp_path,
        """{"mcpServers": {
          "postgres": {"command": "node", "args": ["$ONE"],
                       "env": {"DATABASE_URL": "${DATABASE_URL}"}},
          "web": {"url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${GITHUB_TOKN}"}},
          "codex": {"url": "http://x", "bearer_token_env_var": "TWO"}}}""",
    )
    assert error.code == "missing_env_var"
    assert [(detail.path, detail.variable, detail.line) for detail in error.details] == [
        ("mcpServers.postgres.args.0", "ONE", 2),
        ("mcpServers.postgres.env.DATABASE_URL", "DATABASE_URL", 3),
        ("mcpServers.web.url", "HOST", 4),
        ("mcpServers.web.headers.Authorization", "GITHUB_TOKN", 4),
        ("mcpServers.codex.bearer_token_env_var", "TWO", 5),
    ]
    assert {detail.code for detail in error.details} == {"missing_env_var"}
    assert str(error).startswith(f"{tmp_path / 'muxway.json'}: 5 problems\n")
    assert "Missing environment variable: DATABASE_URL" in str(error)
    assert "GITHUB_TOKEN is set: is that the one?" in str(error)


def test_with_any_other_problem_the_code_is_that_of_the_schema() -> None:
    """Ours: `missing_env_var` promises that setting variables is enough."""
    error = fault({"mcpServers": {"a": {"command": "$NONE"}, "b": {"command": 1}}})
    assert error.code == "invalid_schema"
    assert [detail.code for detail in error.details] == ["missing_env_var", "invalid_schema"]


def test_a_server_that_is_off_needs_no_variables() -> None:
    """Ours: switching a server off is how one gets rid of its missing token."""
    entry = {"command": "${NONE}", "envFile": "none.env", "env": {"A": "$NONE"}, "envVars": ["NONE"], "enabled": False}
    server = parse_server("s", entry, environ={})
    assert (server.enabled, server.transport) == (False, "stdio")


def test_a_switch_may_be_a_variable() -> None:
    """docs/configuration.md#variables: expansion in every string value; variables can only hold text."""
    entry = {"command": "x", "enabled": "${ON:-false}", "callTimeout": "${T}", "maxMessageBytes": "${N}"}
    server = parse_server("s", entry, environ={"T": "90", "N": "4096"})
    assert (server.enabled, server.call_timeout, server.max_message_bytes) == (False, 90.0, 4096)


def test_secrets_are_remembered_and_never_shown() -> None:
    """docs/configuration.md#secrets: secrets never appear in logs, errors or reprs."""
    entry = {
        "url": "https://x/$GITHUB_TOKEN",
        "headers": {"Authorization": "Bearer literal-token", "X-Team": "blue-team", "X-Flag": "${FLAG}"},
    }
    server = parse_server("s", entry, environ={"GITHUB_TOKEN": "s3cr3t-token", "FLAG": "1"})
    assert server.secrets == {"s3cr3t-token", "Bearer literal-token", "literal-token"}
    assert "s3cr3t" not in repr(server)
    error = fault(
        {"mcpServers": {"s": {"url": "$GITHUB_TOKEN", "callTimeout": "$GITHUB_TOKEN", "era": "$GITHUB_TOKEN"}}}
    )
    assert len(error.details) == 3
    assert "s3cr3t" not in repr(error.details)


def test_an_env_file_is_read_and_explicit_variables_win(tmp_path: Path) -> None:
    """docs/configuration.md#servers: explicit `env` wins over the file; the file is found beside the config."""
    (tmp_path / ".env").write_text("A=file\nAPI_TOKEN=from-file\nDROP=1\n")
    file = tmp_path / "muxway.json"
    entry = {"command": "x", "envFile": ".env", "env": {"A": "explicit", "DROP": None}}
    file.write_text(json.dumps({"mcpServers": {"s": entry}}))
    server = load_config(file).servers["s"]
    assert server.env == {"A": "explicit", "API_TOKEN": "from-file"}
    assert server.secrets == {"from-file"}
    (tmp_path / ".env").write_text("nonsense s3cr3t\n")
    assert ".env line 1 is not `KEY=value`" in str(load(tmp_path, file.read_text()))


# --- custom tools and gateway ---------------------------------------------------------------------------------------


def custom(**tool: Any) -> dict[str, Any]:
    """A configuration with one server and one custom tool."""
    return {"mcpServers": {"github": OK, "off": {**OK, "disabled": True}}, "tools": {"T": tool}}


def test_a_custom_tool_is_read_as_the_seed_writes_it() -> None:
    """docs/configuration.md#compound-tools: description and subtools, by server."""
    subtools = {"github": {"tools": [{"name": "a", "description": "does a"}, "b"]}}
    config = parse_config(custom(description="All", subtools=subtools))
    tool = config.tools["T"]
    assert (tool.name, tool.description) == ("T", "All")
    assert [(sub.name, sub.description) for sub in tool.subtools["github"]] == [("a", "does a"), ("b", "")]


@pytest.mark.parametrize(
    ("tool", "path", "message"),
    [
        ({"description": "d"}, ".subtools", "Missing required field: subtools"),
        ({"subtools": {"github": ["a"]}}, ".description", "Missing required field: description"),
        ({"description": 1, "subtools": {"github": ["a"]}}, ".description", "must be a string"),
        ({"description": "d", "subtools": {}}, ".subtools", "at least one server"),
        ({"description": "d", "subtools": []}, ".subtools", "must be an object"),
        ({"description": "d", "subtools": {"gihub": ["a"]}}, ".subtools.gihub", 'did you mean "github"?'),
        ({"description": "d", "subtools": {"qqq": ["a"]}}, ".subtools.qqq", "configured are github, off"),
        ({"description": "d", "subtools": {"github": {}}}, ".subtools.github.tools", "must be an array"),
        ({"description": "d", "subtools": {"github": {"tools": []}}}, ".subtools.github.tools", "at least one tool"),
        ({"description": "d", "subtools": {"github": [{"name": ""}]}}, ".subtools.github.0.name", "must not be empty"),
        ({"description": "d", "subtools": {"github": [{}]}}, ".subtools.github.0.name", "Missing required field: name"),
        ({"description": "d", "subtools": {"github": ["a", "a"]}}, ".subtools.github", "listed twice"),
    ],
)
def test_a_wrong_custom_tool_is_told(tool: Any, path: str, message: str) -> None:
    """docs/configuration.md#compound-tools: only existing servers, named tools."""
    error = fault(custom(**tool))
    assert [f"tools.T{path}"] == [detail.path for detail in error.details]
    assert message in str(error)


def test_a_custom_tool_of_a_server_that_is_off_is_a_warning() -> None:
    """Ours: switching a server off must not make the file unusable."""
    config = parse_config(custom(description="d", subtools={"off": ["a"]}))
    assert [warning.path for warning in config.warnings] == ["tools.T.subtools.off"]


@pytest.mark.parametrize(
    ("gateway", "path", "message"),
    [
        ([], "", "must be an object"),
        ({"separator": "-"}, ".separator", 'one of "__", ":", "."'),
        ({"pageSize": 0}, ".pageSize", "1 or more, found 0"),
        ({"page_size": "many"}, ".page_size", "whole number"),
        ({"name": ""}, ".name", "must not be empty"),
        ({"callTimeout": 1, "call_timeout": 1}, ".call_timeout", "means the same as `callTimeout`"),
        ({"name": "$NONE"}, ".name", "Missing environment variable: NONE"),
    ],
)
def test_a_wrong_gateway_section_is_told(gateway: Any, path: str, message: str) -> None:
    """docs/configuration.md#problems: validation reports every problem with path and message."""
    error = fault({"mcpServers": {"a": OK}, "gateway": gateway})
    assert [f"gateway{path}"] == [detail.path for detail in error.details]
    assert message in str(error)


def test_slips_outside_the_servers_are_warnings() -> None:
    """docs/configuration.md#shapes: the nearest key; foreign keys of a client's settings file are nobody's business."""
    data = {"mcpServers": {"a": OK}, "gatway": {}, "theme": "dark", "gateway": {"pagesize": 1, "callMax": 5}}
    assert [
        (warning.path, hint)
        for warning, hint in zip(parse_config(data).warnings, ["gateway", "pageSize", "ends after 5 s"], strict=True)
        if hint in warning.message
    ] == [("gatway", "gateway"), ("gateway.pagesize", "pageSize"), ("gateway.callMax", "ends after 5 s")]


def test_a_single_server_is_checked_like_those_of_a_file() -> None:
    """docs/library.md#servers-that-come-and-go: `gateway.add` takes the same entries."""
    assert parse_server("x", {"command": ["a", "b"]}).args == ("b",)
    with pytest.raises(ConfigError, match=r'server "x": 1 problem\n  x\.args: args must be an array'):
        parse_server("x", {"command": "a", "args": 1})
    with pytest.raises(ConfigError, match="cannot be started from outside"):
        parse_server("x", {"type": "builtin"})


def test_a_message_stays_readable_with_very_many_problems() -> None:
    """Ours: the terminal shows the first fifty, `details` has them all."""
    error = fault({"mcpServers": {str(number): {} for number in range(120)}})
    assert len(error.details) == 120
    assert str(error).splitlines()[0].endswith("120 problems")
    assert str(error).endswith("… and 70 more")


# --- anything at all ------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(
    ["mcpServers", "servers", "mcp", "extensions", "mcp_servers", "projects", "tools", "gateway", "command", "args",
     "env", "url", "headers", "type", "transport", "enabled", "exposedTools", "hiddenTools", "timeout", "callTimeout",
     "envFile", "envVars", "inheritEnv", "name", "description", "subtools", "a"]
) | st.text(max_size=3)  # fmt: skip
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["$A", "${A", "stdio", "http://x", "*", "\ud800", "\x00", 10**400, "1e5", "5s"])
)  # fmt: skip
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=25
)


def config_or_error(data: Any) -> Config | ConfigError:
    """Whichever the data gives."""
    try:
        return parse_config(data, environ=ENVIRON)
    except ConfigError as error:
        return error


@law
@given(data=ANYTHING | st.dictionaries(KEYS, st.dictionaries(KEYS, st.dictionaries(KEYS, ANYTHING, max_size=5))))
def test_anything_loads_or_is_a_config_error(data: Any) -> None:
    """docs/configuration.md#problems: no other exception may leave the loader, and its message can be printed."""
    outcome = config_or_error(data)
    str(outcome).encode()
    if isinstance(outcome, ConfigError):
        assert outcome.details
    else:
        assert outcome.servers


MINUTES = {
    "key.toml": ("a" + ".a" * 100 + " = 1", "parts"),
    "blanks.toml": ("a" + " . 'a'" * 50_000 + " = 1", "parts"),
    "table.toml": ("[" + "a." * 50_000 + "a]", "parts"),
    "inline.toml": ("x = {" + "a." * 50_000 + "a = 1}", "parts"),
    "large.toml": ("# " + "x" * (4 << 20), "larger than 4 MiB"),
    "large.yaml": ("# " + "x" * (1 << 20), "larger than 1 MiB"),
    "anchors.yaml": ("\n".join(f"k{n}: &a{n} 1" for n in range(1001)), "anchors"),
    "flow.yaml": ("[" + "&a 1," * 1001 + "]", "anchors"),
    "numbers.json": ("[" + "1," * 600_000 + "1]", "values"),
    "servers.json": (
        json.dumps({"mcpServers": {f"s{n}": {"command": "c"} for n in range(5_001)}}),
        "more than 5,000 servers",
    ),
}


@pytest.mark.parametrize("name", MINUTES)
def test_a_file_that_would_take_minutes_is_refused_in_moments(name: str, tmp_path: Path) -> None:
    """docs/behaviour.md#size-limits: some took gigabytes, too."""
    text, why = MINUTES[name]
    (tmp_path / name).write_text(text)
    began = time.thread_time()
    with pytest.raises(ConfigError, match=why):
        load_config(tmp_path / name)
    assert time.thread_time() - began < 10


ODD_LINES = {
    "what begins like a table": "[" + " " * 200_000,
    "a long word and many dots": "x" * 200_000 + " ." * 100,
    "what begins like a key": "'a'" * 60_000,
    "blanks": " " * 200_000,
}


@pytest.mark.parametrize("name", ODD_LINES)
def test_no_line_of_a_text_takes_long(name: str, tmp_path: Path) -> None:
    """docs/behaviour.md#size-limits: keys are looked for line by line, also in a text of many lines."""
    (tmp_path / "a.toml").write_text(f'x-note = """\n{ODD_LINES[name]}\n"""\n[mcpServers.s]\ncommand = "c"\n')
    began = time.thread_time()
    assert "s" in load_config(tmp_path / "a.toml").servers
    assert time.thread_time() - began < 5


def test_what_is_just_within_the_limits_is_read(tmp_path: Path) -> None:
    """Ours: limits are for files that nobody writes."""
    server = '[mcpServers.s]\ncommand = "c"\nargs = ["%s"]' % ("a." * 99)
    (tmp_path / "a.toml").write_text("x" + ".x" * 97 + f' = "a.b"\n{server}')
    assert "s" in load_config(tmp_path / "a.toml").servers
    anchors = "\n".join(f"  - &a{n} 1" for n in range(900))
    (tmp_path / "b.yaml").write_text(f"mcpServers:\n  s:\n    command: c\n    args: ['x&y']\nx-list:\n{anchors}\n")
    assert "s" in load_config(tmp_path / "b.yaml").servers


def test_thousands_of_unknown_keys_are_told_and_hints_given_for_the_first() -> None:
    """docs/configuration.md: an unknown key is a warning that names the nearest known one."""
    began = time.thread_time()
    config = parse_config({"mcpServers": {"s": {"command": "c", **{f"cwd{n}": 1 for n in range(5_000)}}}})
    assert time.thread_time() - began < 2
    assert len(config.warnings) == 5_000
    assert "did you mean `cwd`" in config.warnings[0].message
    assert "did you mean" not in config.warnings[-1].message
