"""Which MCP clients there are: where each keeps its servers, and what an entry looks like there.

Places are those of the user, not of a project, and begin at the home folder, which comes from the environment.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from muxway.config.expand import home_of
from muxway.setup import files

if TYPE_CHECKING:
    from collections.abc import Mapping

Shape = Literal["plain", "typed", "copilot", "zed", "goose", "opencode", "listed", "windsurf", "gemini", "cline", "roo"]
NAME = "muxway"
"""What the entry is called in every client."""


@dataclass(frozen=True, slots=True)
class KnownClient:
    """One client, and where its user's servers stand."""

    id: str
    """What `muxway connect` calls it."""
    title: str
    files: tuple[str, ...]
    """Where its file may be, in words of `places`. The first that is there, else the first."""
    container: tuple[str, ...] = ("mcpServers",)
    shape: Shape = "plain"
    stdio_only: bool = False
    then: str = "Restart it."
    """What makes it read its file again."""
    program: str = ""
    """Its own command, if that can add a server."""
    rewrites_file: tuple[str, ...] = ()
    """Names of its process, if it writes its file from memory while it runs."""
    marks: tuple[str, ...] = ()
    """What else shows that it is on this machine, besides its file and the folder of that."""

    @property
    def kind(self) -> str:
        """The format of its file."""
        return {".toml": "TOML", ".yaml": "YAML"}.get(Path(self.files[0]).suffix, "JSON")


_VSCODE = "{config}/Code/User/globalStorage"

CLIENTS = {
    client.id: client
    for client in (
        KnownClient(
            "claude-desktop",
            "Claude Desktop",
            ("{config}/Claude/claude_desktop_config.json",),
            stdio_only=True,
            then="Quit it completely and start it again.",
            rewrites_file=("Claude", "claude-desktop"),
        ),
        KnownClient(
            "claude-code",
            "Claude Code",
            ("{claude}/.claude.json",),
            shape="typed",
            then="Start a new session.",
            program="claude",
            marks=("{home}/.claude",),
        ),
        KnownClient("cursor", "Cursor", ("{home}/.cursor/mcp.json",), then="Reloads automatically."),
        KnownClient(
            "vscode",
            "VS Code",
            ("{config}/Code/User/mcp.json",),
            ("servers",),
            "typed",
            then="Reloads automatically.",
        ),
        KnownClient(
            "vscode-insiders",
            "VS Code Insiders",
            ("{config}/Code - Insiders/User/mcp.json",),
            ("servers",),
            "typed",
            then="Reloads automatically.",
        ),
        KnownClient(
            "copilot-jetbrains",
            "GitHub Copilot for JetBrains",
            ("{xdg}/github-copilot/intellij/mcp.json",),
            ("servers",),
            "typed",
            then="Restart the IDE.",
        ),
        KnownClient(
            "copilot-cli",
            "GitHub Copilot CLI",
            ("{copilot}/mcp-config.json",),
            shape="copilot",
            then="Start a new session.",
        ),
        KnownClient(
            "windsurf",
            "Windsurf",
            ("{home}/.codeium/windsurf/mcp_config.json",),
            shape="windsurf",
            then="Refresh its list of servers.",
        ),
        KnownClient(
            "antigravity",
            "Antigravity",
            ("{home}/.gemini/antigravity/mcp_config.json",),
            shape="windsurf",
            then="Refresh its list of servers.",
        ),
        KnownClient(
            "zed",
            "Zed",
            ("{xdg}/zed/settings.json",),
            ("context_servers",),
            "zed",
            then="Reloads automatically.",
        ),
        KnownClient(
            "codex",
            "Codex",
            ("{codex}/config.toml",),
            ("mcp_servers",),
            then="Start a new session.",
            program="codex",
        ),
        KnownClient("gemini", "Gemini CLI", ("{home}/.gemini/settings.json",), shape="gemini"),
        KnownClient(
            "goose",
            "Goose",
            ("{xdg}/goose/config.yaml",),
            ("extensions",),
            "goose",
            then="Start a new session.",
        ),
        KnownClient(
            "opencode",
            "opencode",
            ("{xdg}/opencode/opencode.json", "{xdg}/opencode/opencode.jsonc"),
            ("mcp",),
            "opencode",
        ),
        KnownClient(
            "cline",
            "Cline",
            (f"{_VSCODE}/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",),
            shape="cline",
            then="Reloads automatically.",
        ),
        KnownClient(
            "roo", "Roo Code", (f"{_VSCODE}/rooveterinaryinc.roo-cline/settings/mcp_settings.json",), shape="roo"
        ),
        KnownClient("continue", "Continue", ("{home}/.continue/config.yaml",), shape="listed"),
        KnownClient("lm-studio", "LM Studio", ("{home}/.lmstudio/mcp.json", "{home}/.cache/lm-studio/mcp.json")),
        KnownClient("kiro", "Kiro", ("{home}/.kiro/settings/mcp.json",)),
        KnownClient("junie", "Junie", ("{home}/.junie/mcp/mcp.json",), stdio_only=True),
        KnownClient("factory", "Factory", ("{home}/.factory/mcp.json",)),
        KnownClient("amazon-q", "Amazon Q", ("{home}/.aws/amazonq/mcp.json",)),
        KnownClient("trae", "Trae", ("{config}/Trae/User/mcp.json",)),
        KnownClient("amp", "Amp", ("{xdg}/amp/settings.json",), ("amp.mcpServers",)),
    )
}
"""Every client that `muxway connect` knows, by its id."""


def places(environ: Mapping[str, str], platform: str = sys.platform) -> dict[str, str]:
    """What the words in `KnownClient.files` stand for."""
    home = home_of(environ)
    given = environ.get("XDG_CONFIG_HOME", "")
    # XDG: a relative path is invalid and to be ignored.
    xdg = given if given.startswith("/") else f"{home}/.config"
    config = f"{home}/Library/Application Support" if platform == "darwin" else xdg
    # What came from Linux to macOS has its file where it was.
    dotted = f"{home}/.config" if platform == "darwin" else xdg
    return {
        "home": home,
        "xdg": dotted,
        "config": config,
        "claude": environ.get("CLAUDE_CONFIG_DIR") or home,
        "codex": environ.get("CODEX_HOME") or f"{home}/.codex",
        "copilot": environ.get("COPILOT_HOME") or f"{home}/.copilot",
    }


def file_of(client: KnownClient, environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """The client's file: the first of its places that is there, else the first."""
    words = places(environ, platform)
    candidates = [Path(file.format(**words)) for file in client.files]
    return next((file for file in candidates if files.is_there(file)), candidates[0])


def is_there(client: KnownClient, environ: Mapping[str, str]) -> bool:
    """Whether this user has the client: its file, or the folder made for it."""
    file = file_of(client, environ)
    words = places(environ)
    folders = {Path(folder) for folder in (words["home"], words["xdg"], words["config"])}
    marks = [file, *(Path(mark.format(**words)) for mark in client.marks)]
    if file.parent not in folders:
        marks.append(file.parent)
    return any(map(files.is_there, marks))


def stdio_entry(client: KnownClient, command: str, args: list[str]) -> dict[str, object]:
    """What makes the client start this program."""
    plain: dict[str, object] = {"command": command, "args": args}
    match client.shape:
        case "typed":
            return {"type": "stdio", **plain}
        case "copilot":
            return {"type": "local", **plain, "tools": ["*"]}
        case "zed":
            return {"source": "custom", **plain}
        case "goose":
            return {"type": "stdio", "name": NAME, "enabled": True, "cmd": command, "args": args, "timeout": 300}
        case "opencode":
            return {"type": "local", "command": [command, *args], "enabled": True}
        case _:
            return plain


def url_entry(client: KnownClient, url: str) -> dict[str, object]:
    """What makes the client connect to this address."""
    match client.shape:
        case "typed":
            return {"type": "http", "url": url}
        case "copilot":
            return {"type": "http", "url": url, "tools": ["*"]}
        case "goose":
            return {"type": "streamable_http", "name": NAME, "enabled": True, "uri": url, "timeout": 300}
        case "opencode":
            return {"type": "remote", "url": url, "enabled": True}
        case "windsurf":
            return {"serverUrl": url}
        case "gemini":
            return {"httpUrl": url}
        case "cline":
            return {"type": "streamableHttp", "url": url}
        case "roo" | "listed":
            return {"type": "streamable-http", "url": url}
        case _:
            return {"url": url}
