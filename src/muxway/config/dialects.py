"""What stands in files of other programs: where their servers are, and what in them is not for us."""

from __future__ import annotations

from muxway.config.model import CUSTOM_TOOL, GATEWAY, VIEW

CONTAINERS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("mcpServers",), "Claude, Cursor, Windsurf, Gemini CLI and most others; an array with `name` in Continue"),
    (("amp.mcpServers",), "Amp"),
    (("context_servers",), "Zed"),
    (("mcp_servers",), "Codex; an array with `name` in Mistral Vibe"),
    (("extensions",), "Goose"),
    (("mcp", "servers"), "opencode 2, VS Code settings"),
    (("mcp",), "opencode 1, Crush"),
    (("servers",), "VS Code, multi-MCP client"),
    (("cli",), "muxway, for programs of the command line"),
)
"""Where a file may keep its servers, and who keeps them there. All are read; the same name twice is an error."""

TOP_LEVEL: dict[str, str] = {
    "$schema": "Address of the JSON Schema, for editors.",
    "gateway": GATEWAY.doc,
    "tools": CUSTOM_TOOL.doc,
    "views": VIEW.doc,
    "access": "The same as `gateway.access`, which comes after it.",
    "middleware": "The same as `gateway.middleware`, which comes after it.",
    "inputs": "VS Code's prompts, for `${input:ID}`: `id`, `description`, `password`, `default`, `options`.",
    "sandbox": "VS Code's sandbox. Not used.",
    "projects": "Claude Code's per-project state. Not read.",
}
"""Top-level keys beside the containers."""

TOOL_MARKS = frozenset({"description", "subtools", "steps"})
"""Keys by which an entry under `tools` is known as ours: other programs keep switches of their own there."""

CLIENT_KEYS = frozenset(
    {
        "alwaysAllow", "alwaysLoad", "approval_mode", "autoApprove", "bundled", "chatMenu", "customUserVars",
        "default_tools_approval_mode", "description", "dev", "display_name", "displayName", "environment_id",
        "gallery", "icon", "iconPath", "id", "name", "omit_tools_from", "remote", "required", "sandboxEnabled",
        "serverInstructions", "settings", "source", "startup", "stderr", "supports_parallel_tool_calls", "title",
        "trust", "version", "watchPaths",
    }
)  # fmt: skip
"""Keys of a server entry that only a client acts on. Kept as they are, never acted upon."""

UNSUPPORTED_KEYS = frozenset(
    {
        "apiKey", "auth", "authProviderType", "headersHelper", "http_headers_helper", "oauth_headers",
        "oauth_resource", "obo", "requiresOAuth", "scopes", "targetAudience",
    }
)  # fmt: skip
"""Keys that change how a client connects and that muxway does not act on: kept, with a warning."""
