"""One sample of every file shape people have, and what it must become.

The duty is docs/configuration.md#shapes: by structure, no format flag. Each sample is also
checked against the JSON Schema, so that editors never mark a file that loads.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from muxway.config import Config, ExposedTool, ServerConfig, json_schema, load_config
from muxway.config.documents import read_document
from muxway.config.oauth import OAuthConfig
from muxway.config.tls import ServerTls

if TYPE_CHECKING:
    from pathlib import Path

ENVIRON = {"HOME": "/home/me", "TOKEN": "s3cr3t-token", "API_KEY": "k3y-of-the-api", "EMPTY": ""}
NO_VALUES = {"args": (), "env": {}, "headers": {}, "oauth": OAuthConfig(), "tls": ServerTls()}
BASE = {attribute.name: attribute.default for attribute in fields(ServerConfig)} | NO_VALUES
NOT_COMPARED = {"written", "extra", "secrets"}


@dataclass(frozen=True)
class Sample:
    """A file, and the servers it must give: name → the attributes that are not at their default."""

    client: str
    file: str
    text: str
    servers: dict[str, dict[str, Any]]
    extra: dict[str, dict[str, Any]] = field(default_factory=dict)


SAMPLES = [
    Sample(
        "Claude Desktop",
        "claude_desktop_config.json",
        """{"mcpServers": {"files": {"command": "npx", "args": ["-y", "server-filesystem", "/home/user"],
                                    "env": {"LOG_LEVEL": "info"}}}}""",
        {
            "files": {
                "transport": "stdio",
                "command": "npx",
                "args": ("-y", "server-filesystem", "/home/user"),
                "env": {"LOG_LEVEL": "info"},
            }
        },
    ),
    Sample(
        "mcp-coordinator (seed)",
        "config.json",
        """{"mcpServers": {
             "S1": {"command": "/srv/index.js",
                    "exposedTools": ["tool1", {"original": "tool2", "exposed": "renamed_tool2"}]},
             "S2": {"command": "npx", "args": ["@example/mcp-server"], "hiddenTools": ["tool3"]},
             "S3": {"type": "sse", "url": "http://example.com/mcp"}}}""",
        {
            "S1": {
                "transport": "stdio",
                "command": "/srv/index.js",
                "exposed_tools": (
                    ExposedTool(original="tool1"),
                    ExposedTool(original="tool2", exposed="renamed_tool2"),
                ),
            },
            "S2": {
                "transport": "stdio",
                "command": "npx",
                "args": ("@example/mcp-server",),
                "hidden_tools": ("tool3",),
            },
            "S3": {"transport": "sse", "url": "http://example.com/mcp"},
        },
    ),
    Sample(
        "multi-MCP client (seed)",
        "servers.json",
        """{"servers": {"database": {"transport": "sse", "endpoint": "http://localhost:8000/sse"},
                        "github": {"transport": "stdio", "command": ["npx", "-y", "server-github"]}}}""",
        {
            "database": {"transport": "sse", "url": "http://localhost:8000/sse"},
            "github": {"transport": "stdio", "command": "npx", "args": ("-y", "server-github")},
        },
    ),
    Sample(
        "Claude Code",
        ".mcp.json",
        """{"mcpServers": {"api": {"type": "http", "url": "${API_BASE:-https://api.example.com}/mcp",
             "headers": {"Authorization": "Bearer ${TOKEN}"}, "timeout": 120000, "alwaysLoad": true}}}""",
        {
            "api": {
                "transport": "http",
                "url": "https://api.example.com/mcp",
                "headers": {"Authorization": "Bearer s3cr3t-token"},
                "call_timeout": 120.0,
            }
        },
        {"api": {"alwaysLoad": True}},
    ),
    Sample(
        "Cursor",
        "mcp.json",
        """{"mcpServers": {"remote": {"url": "https://x.example/mcp"},
             "local": {"command": "uvx", "args": ["thing"], "env": {"KEY": "${env:API_KEY}"}, "cwd": "sub"}}}""",
        {
            "remote": {"transport": "auto", "url": "https://x.example/mcp"},
            "local": {
                "transport": "stdio",
                "command": "uvx",
                "args": ("thing",),
                "env": {"KEY": "k3y-of-the-api"},
                "cwd": "{folder}/sub",
            },
        },
    ),
    Sample(
        "VS Code",
        ".vscode/mcp.json",
        """{
             // comments and trailing commas are normal here
             "inputs": [{"type": "promptString", "id": "key", "description": "Key", "password": true}],
             "servers": {
               "play": {"type": "stdio", "command": "npx", "args": ["${workspaceFolder}/run.js", "${userHome}"],
                        "env": {"PORT": 3000, "DEBUG": null}, "dev": {"watch": "**/*.ts"},},
               "web": {"type": "http", "url": "https://v.example/mcp"},
             },
           }""",
        {
            "play": {
                "transport": "stdio",
                "command": "npx",
                "args": ("{folder}/run.js", "/home/me"),
                "env": {"PORT": "3000"},
            },
            "web": {"transport": "http", "url": "https://v.example/mcp"},
        },
        {"play": {"dev": {"watch": "**/*.ts"}}},
    ),
    Sample(
        "Copilot CLI",
        "mcp-config.json",
        """{"mcpServers": {"a": {"type": "local", "command": "node", "args": ["a.js"], "tools": ["*"]},
                           "b": {"type": "sse", "url": "https://b.example/sse", "tools": ["one", "two"]}}}""",
        {
            "a": {"transport": "stdio", "command": "node", "args": ("a.js",)},
            "b": {
                "transport": "sse",
                "url": "https://b.example/sse",
                "exposed_tools": (ExposedTool(original="one"), ExposedTool(original="two")),
            },
        },
    ),
    Sample(
        "Windsurf",
        "mcp_config.json",
        """{"mcpServers": {"w": {"serverUrl": "https://w.example/mcp", "headers": {"X-Api-Key": "${API_KEY}"},
                                 "disabled": false, "disabledTools": ["rm"]},
                           "off": {"serverUrl": "https://${NOT_SET}/mcp", "disabled": true}}}""",
        {
            "w": {
                "transport": "http",
                "url": "https://w.example/mcp",
                "headers": {"X-Api-Key": "k3y-of-the-api"},
                "hidden_tools": ("rm",),
            },
            "off": {"transport": "http", "enabled": False},
        },
    ),
    Sample(
        "Zed, old and new",
        "settings.json",
        """{"theme": "One Dark", "context_servers": {
             "old": {"source": "custom", "command": {"path": "/bin/srv", "args": ["-v"], "env": {"A": "1"}}},
             "new": {"enabled": true, "url": "https://z.example/mcp", "timeout": 30},
             "ext": {"source": "extension", "enabled": true, "settings": {}}}}""",
        {
            "old": {"transport": "stdio", "command": "/bin/srv", "args": ("-v",), "env": {"A": "1"}},
            "new": {"transport": "auto", "url": "https://z.example/mcp", "call_timeout": 30.0},
        },
        {"old": {"source": "custom"}},
    ),
    Sample(
        "Gemini CLI",
        "settings.json",
        """{"mcp": {"allowed": ["g"]}, "tools": {"sandbox": "docker", "shell": {"showColor": true}},
            "mcpServers": {
             "g": {"httpUrl": "https://g.example/mcp", "timeout": 600000, "trust": true,
                   "includeTools": ["a"], "excludeTools": ["b"]},
             "s": {"command": "$HOME/bin/srv", "env": {"T": "$TOKEN"}, "cwd": "/abs"}}}""",
        {
            "g": {
                "transport": "http",
                "url": "https://g.example/mcp",
                "call_timeout": 600.0,
                "exposed_tools": (ExposedTool(original="a"),),
                "hidden_tools": ("b",),
            },
            "s": {"transport": "stdio", "command": "/home/me/bin/srv", "env": {"T": "s3cr3t-token"}, "cwd": "/abs"},
        },
        {"g": {"trust": True}},
    ),
    Sample(
        "Codex",
        "config.toml",
        """
model = "o5"

[tools]
web_search = true

[mcp_servers.local]
command = "npx"
args = ["-y", "thing"]
env_vars = ["TOKEN", { name = "API_KEY", source = "local" }]
startup_timeout_sec = 20
tool_timeout_sec = 45.5
enabled_tools = ["a"]
disabled_tools = ["b"]
supports_parallel_tool_calls = true

[mcp_servers.local.env]
API_KEY = "explicit"

[mcp_servers.local.tools.a]
approval_mode = "auto"

[mcp_servers.remote]
url = "https://c.example/mcp"
bearer_token_env_var = "TOKEN"
http_headers = { "X-Team" = "blue" }
env_http_headers = { "X-Api-Key" = "API_KEY" }
enabled = true
startup_timeout_ms = 1500
""",
        {
            "local": {
                "transport": "stdio",
                "command": "npx",
                "args": ("-y", "thing"),
                "env": {"TOKEN": "s3cr3t-token", "API_KEY": "explicit"},
                "start_timeout": 20.0,
                "call_timeout": 45.5,
                "exposed_tools": (ExposedTool(original="a"),),
                "hidden_tools": ("b",),
            },
            "remote": {
                "transport": "auto",
                "url": "https://c.example/mcp",
                "headers": {"X-Team": "blue", "X-Api-Key": "k3y-of-the-api", "Authorization": "Bearer s3cr3t-token"},
                "start_timeout": 1.5,
            },
        },
        {"local": {"supports_parallel_tool_calls": True, "tools": {"a": {"approval_mode": "auto"}}}},
    ),
    Sample(
        "Cline and Roo",
        "cline_mcp_settings.json",
        """{"mcpServers": {
             "cli": {"transport": {"type": "streamableHttp", "url": "https://cl.example/mcp", "headers": {"A": "b"}},
                     "autoApprove": ["x"], "timeout": 60, "disabled": false},
             "roo": {"type": "streamable-http", "url": "https://r.example/mcp", "alwaysAllow": ["y"],
                     "watchPaths": ["a"]},
             "legacy": {"transportType": "stdio", "command": "node", "args": ["x.js"]}}}""",
        {
            "cli": {
                "transport": "http",
                "url": "https://cl.example/mcp",
                "headers": {"A": "b"},
                "call_timeout": 60.0,
            },
            "roo": {"transport": "http", "url": "https://r.example/mcp"},
            "legacy": {"transport": "stdio", "command": "node", "args": ("x.js",)},
        },
        {"cli": {"autoApprove": ["x"]}, "roo": {"alwaysAllow": ["y"], "watchPaths": ["a"]}},
    ),
    Sample(
        "LibreChat",
        "librechat.yaml",
        """
version: 1.2.8
mcpServers:
  everything:
    type: streamable-http
    url: https://l.example/mcp
    headers:
      X-Key: "${API_KEY}"
    initTimeout: 10000
    timeout: 30000
    chatMenu: false
    serverInstructions: true
""",
        {
            "everything": {
                "transport": "http",
                "url": "https://l.example/mcp",
                "headers": {"X-Key": "k3y-of-the-api"},
                "start_timeout": 10.0,
                "call_timeout": 30.0,
            }
        },
        {"everything": {"chatMenu": False, "serverInstructions": True}},
    ),
    Sample(
        "Goose",
        "config.yaml",
        """
GOOSE_MODEL: gpt
extensions:
  developer: {type: builtin, name: developer, enabled: true, bundled: true}
  git:
    type: stdio
    name: git
    cmd: uvx
    args: [mcp-server-git, --port, 22:22]
    envs: {A: 1}
    env_keys: [TOKEN]
    enabled: true
    timeout: 300
    available_tools: [log]
  web: {type: streamable_http, uri: "https://go.example/mcp", enabled: false}
""",
        {
            "git": {
                "transport": "stdio",
                "command": "uvx",
                "args": ("mcp-server-git", "--port", "22:22"),
                "env": {"A": "1", "TOKEN": "s3cr3t-token"},
                "call_timeout": 300.0,
                "exposed_tools": (ExposedTool(original="log"),),
            },
            "web": {"transport": "http", "url": "https://go.example/mcp", "enabled": False},
        },
    ),
    Sample(
        "opencode 1",
        "opencode.jsonc",
        """{"$schema": "https://opencode.ai/config.json", "tools": {"bash": false}, "mcp": {
             "l": {"type": "local", "command": ["bun", "x", "srv"], "environment": {"T": "{env:TOKEN}"},
                   "enabled": true},
             "r": {"type": "remote", "url": "https://o.example/mcp", "headers": {"A": "Bearer {env:TOKEN}"},
                   "timeout": 5000},
             "gone": {"enabled": false}}}""",
        {
            "l": {
                "transport": "stdio",
                "command": "bun",
                "args": ("x", "srv"),
                "env": {"T": "s3cr3t-token"},
            },
            "r": {
                "transport": "auto",
                "url": "https://o.example/mcp",
                "headers": {"A": "Bearer s3cr3t-token"},
                "call_timeout": 5.0,
            },
        },
    ),
    Sample(
        "opencode 2",
        "opencode.json",
        """{"mcp": {"timeout": 5, "servers": {"l": {"type": "local", "command": ["srv"], "disabled": true}}}}""",
        {"l": {"transport": "stdio", "command": "srv", "enabled": False}},
    ),
    Sample(
        "Continue",
        "config.yaml",
        """
name: My agent
mcpServers:
  - name: docs
    type: sse
    url: https://co.example/sse
  - name: sql
    command: npx
    args: [-y, sql]
""",
        {
            "docs": {"transport": "sse", "url": "https://co.example/sse"},
            "sql": {"transport": "stdio", "command": "npx", "args": ("-y", "sql")},
        },
        {"docs": {"name": "docs"}},
    ),
    Sample(
        "Mistral Vibe",
        "config.toml",
        """
[[mcp_servers]]
name = "one"
transport = "streamable-http"
url = "https://m.example/mcp"

[[mcp_servers]]
name = "two"
transport = "stdio"
command = "srv"
""",
        {
            "one": {"transport": "http", "url": "https://m.example/mcp"},
            "two": {"transport": "stdio", "command": "srv"},
        },
    ),
    Sample(
        "Amp",
        "settings.json",
        """{"amp.mcpServers": {"a": {"command": "~/bin/a"}}, "amp.tools.disable": []}""",
        {"a": {"transport": "stdio", "command": "/home/me/bin/a"}},
    ),
    Sample(
        "Crush",
        "crush.json",
        """{"lsp": {"go": {"command": "go"}}, "mcp": {"c": {"type": "stdio", "command": "node", "args": ["s.js"]}}}""",
        {"c": {"transport": "stdio", "command": "node", "args": ("s.js",)}},
    ),
    Sample(
        "muxway, every key of ours",
        "muxway.toml",
        """
[gateway]
name = "tools"
separator = "."

[mcpServers.full]
command = "srv"
inheritEnv = ["HTTPS_PROXY"]
prefix = ""
era = "legacy"
startTimeout = "500ms"
call_timeout = "2m"
callMax = "1h"
max_message_bytes = 2048
""",
        {
            "full": {
                "transport": "stdio",
                "command": "srv",
                "inherit_env": ("HTTPS_PROXY",),
                "prefix": "",
                "era": "legacy",
                "start_timeout": 0.5,
                "call_timeout": 120.0,
                "call_max": 3600.0,
                "max_message_bytes": 2048,
            }
        },
    ),
    Sample(
        "several containers in one file, and headers as a list",
        "muxway.yaml",
        """
mcpServers: {a: {command: a}}
servers: {b: {url: "http://b.example", headers: [{name: X-A, value: 1}]}}
context_servers: {c: {command: c}}
""",
        {
            "a": {"transport": "stdio", "command": "a"},
            "c": {"transport": "stdio", "command": "c"},
            "b": {"transport": "auto", "url": "http://b.example", "headers": {"X-A": "1"}},
        },
    ),
]

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.client)


def write(sample: Sample, folder: Path) -> Path:
    """Put the sample where a client would have it."""
    file = folder / sample.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(sample.text, "utf-8")
    return file


def load(sample: Sample, folder: Path) -> Config:
    """Load the sample with an environment of its own."""
    return load_config(write(sample, folder), environ=ENVIRON)


def resolved(value: object, folder: Path) -> object:
    """The expected value, with the test's folder put in."""
    if isinstance(value, str):
        return value.replace("{folder}", str(folder))
    return tuple(resolved(item, folder) for item in value) if isinstance(value, tuple) else value


@every_sample
def test_every_dialect_becomes_the_same_model(sample: Sample, tmp_path: Path) -> None:
    """docs/configuration.md#shapes: the file shapes of all clients, by structure."""
    config = load(sample, tmp_path)
    assert list(config.servers) == list(sample.servers)
    for name, given in sample.servers.items():
        expected = BASE | {"name": name} | {key: resolved(value, tmp_path) for key, value in given.items()}
        actual = {key: getattr(config.servers[name], key) for key in BASE}
        assert {key: actual[key] for key in actual if key not in NOT_COMPARED} == {
            key: expected[key] for key in expected if key not in NOT_COMPARED
        }
    for name, extra in sample.extra.items():
        assert extra.items() <= dict(config.servers[name].extra).items()


@every_sample
def test_every_sample_is_valid_for_editors(sample: Sample, tmp_path: Path) -> None:
    """docs/cli.md#muxway-config-schema.

    The schema comes from the same table, so a file that loads is never marked as wrong.
    """
    document = read_document(write(sample, tmp_path))
    errors = [
        f"{error.instance_path}: {error.message}" for error in jsonschema_rs.iter_errors(json_schema(), document.value)
    ]
    assert errors == []


@every_sample
def test_every_server_knows_its_line(sample: Sample, tmp_path: Path) -> None:
    """docs/configuration.md#problems: the line where known, which is in every format we read."""
    lines = sample.text.splitlines()
    for name, server in load(sample, tmp_path).servers.items():
        assert server.line is not None
        assert name in lines[server.line - 1] or lines[server.line - 1].strip() == "[[mcp_servers]]"


@every_sample
def test_no_sample_shows_a_secret(sample: Sample, tmp_path: Path) -> None:
    """docs/configuration.md#secrets: secrets never appear; a repr or a warning ends up in a log."""
    config = load(sample, tmp_path)
    shown = repr(config) + "".join(map(str, config.warnings))
    assert "s3cr3t" not in shown
    assert "k3y" not in shown
    for server in config.servers.values():
        values = [*server.args, *server.env.values(), *server.headers.values()]
        assert all(any(secret in value for secret in server.secrets) for value in values if "s3cr3t" in value)


def test_what_a_client_keeps_inside_itself_is_left_out_with_a_warning(tmp_path: Path) -> None:
    """Ours: Goose's built-ins and Zed's extensions cannot be started by anyone else, and are no mistake either."""
    samples = {sample.client: sample for sample in SAMPLES}
    goose = load(samples["Goose"], tmp_path)
    assert [w.path for w in goose.warnings if "cannot be started" in w.message] == ["extensions.developer"]
    zed = load(samples["Zed, old and new"], tmp_path)
    assert [w.path for w in zed.warnings if "cannot be started" in w.message] == ["context_servers.ext"]


def test_the_unit_of_an_imported_timeout_is_told(tmp_path: Path) -> None:
    """docs/configuration.md#timeouts: clients disagree on milliseconds and seconds, so say what was understood."""
    samples = {sample.client: sample for sample in SAMPLES}
    told = [warning.message for warning in load(samples["Claude Code"], tmp_path).warnings]
    assert any("understood as 120 s" in message and '"callTimeout": "120s"' in message for message in told)


def test_a_gateway_section_is_read_beside_any_dialect(tmp_path: Path) -> None:
    """docs/configuration.md#gateway: our own keys live beside the container."""
    samples = {sample.client: sample for sample in SAMPLES}
    gateway = load(samples["muxway, every key of ours"], tmp_path).gateway
    assert (gateway.name, gateway.separator, gateway.call_timeout) == ("tools", ".", 60.0)
