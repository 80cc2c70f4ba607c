"""The field table as JSON Schema, for editors, and as text, for `muxway config explain`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from muxway.config.access import RULE
from muxway.config.auth import AUTH, CLAIMS, INTROSPECTION, OWN_SERVER, SIGN_ON
from muxway.config.dialects import CONTAINERS, TOOL_MARKS, TOP_LEVEL
from muxway.config.documents import MINIMAL
from muxway.config.kinds import STRING
from muxway.config.model import CUSTOM_TOOL, EXAMPLE, GATEWAY, SECTIONS, SERVER, STEP, SUBTOOL, VIEW
from muxway.config.oauth import IDP, OAUTH
from muxway.config.programs import ARGUMENT as PROGRAM_ARGUMENT
from muxway.config.programs import COMMAND as PROGRAM_COMMAND
from muxway.config.report import nearest
from muxway.config.shaping import ARGUMENT, SHAPE
from muxway.config.tls import LISTENER_TLS, SERVER_TLS
from muxway.errors import ConfigError, Problem

if TYPE_CHECKING:
    from muxway.config.fields import Field, Section

SCHEMA_ID = "urn:muxway:config:v1"


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a configuration, for completion and checks in editors.

    It is a little more lenient than loading: unknown keys are only warned about there, and whether a server has a
    command or a URL shows in many dialects.
    """
    container: dict[str, Any] = {
        "anyOf": [
            {"type": "object", "additionalProperties": {"$ref": "#/$defs/server"}},
            {"type": "array", "items": {"allOf": [{"$ref": "#/$defs/server"}, {"required": ["name"]}]}},
        ]
    }
    properties: dict[str, Any] = {key: {"description": doc} for key, doc in TOP_LEVEL.items()}
    properties["gateway"] = {"$ref": "#/$defs/gateway"}
    # Other programs keep switches of their own under `tools`; what has a key of ours is ours.
    is_ours = {"type": "object", "anyOf": [{"required": [key]} for key in sorted(TOOL_MARKS)]}
    properties["tools"] = {
        "type": "object",
        "description": CUSTOM_TOOL.doc,
        "additionalProperties": {"if": is_ours, "then": {"$ref": "#/$defs/customTool"}},
    }
    properties["access"] = {
        "type": "array",
        "description": TOP_LEVEL["access"],
        "items": {"$ref": "#/$defs/accessRule"},
    }
    properties["views"] = {
        "type": "object",
        "description": VIEW.doc,
        "additionalProperties": {"$ref": "#/$defs/view"},
    }
    for path, users in CONTAINERS:
        if path[0] in {"mcp", "extensions"}:
            properties[path[0]] = {"description": f"Servers, as kept by {users}."}
        else:
            properties[path[0]] = {"description": f"Servers by name, as kept by {users}.", **container}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "muxway configuration",
        "type": "object",
        "properties": properties,
        "$defs": {
            "server": _object(SERVER),
            "gateway": _object(GATEWAY),
            "auth": _object(AUTH),
            "claims": _object(CLAIMS),
            "introspection": _object(INTROSPECTION),
            "signOn": _object(SIGN_ON),
            "ownServer": _object(OWN_SERVER),
            "customTool": {
                **_object(CUSTOM_TOOL),
                "oneOf": [{"required": ["subtools"]}, {"required": ["steps"]}],
            },
            "step": {**_object(STEP), "required": ["tool"]},
            "example": _object(EXAMPLE),
            "shape": _object(SHAPE),
            "argument": _object(ARGUMENT),
            "programCommand": _object(PROGRAM_COMMAND),
            "programArgument": _object(PROGRAM_ARGUMENT),
            "oauth": _object(OAUTH),
            "idp": _object(IDP),
            "serverTls": _object(SERVER_TLS),
            "tls": _object(LISTENER_TLS),
            "view": _object(VIEW),
            "accessRule": _object(RULE),
            "subtools": {"type": "array", "minItems": 1, "items": {"anyOf": [STRING, _object(SUBTOOL)]}},
        },
    }


def _object(section: Section) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for row in section.fields:
        schema = _field(row)
        for spelling in row.spellings:
            same = {} if spelling == row.key else {"description": f"Same as `{row.key}`. {row.doc}"}
            properties[spelling] = {**schema, **same}
    if section is SERVER:
        # Codex keeps its approvals in a map of this name, which is no filter.
        properties["tools"] = {"anyOf": [section.by_spelling["tools"].kind.schema, {"type": "object"}]}
    schema: dict[str, Any] = {"type": "object", "description": section.doc, "properties": properties}
    required = [row.key for row in section.fields if row.required]
    return {**schema, "required": required} if required else schema


def _field(row: Field) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": row.doc, **row.kind.schema, "examples": [row.example]}
    return schema if row.default is None else {**schema, "default": row.default}


def explain(key: str | None = None) -> str:
    """The documentation of one key (`callTimeout`, `gateway.callTimeout`, `mcpServers.github.env`), or of all.

    Raises:
        ConfigError: there is no such key; the message names the nearest.
    """
    if key is None:
        return _overview()
    head, _, last = key.strip().rpartition(".")
    rows = [
        (section, section.by_spelling[last])
        for section in SECTIONS
        if last in section.by_spelling and _is_within(head, section)
    ]
    sections = [section for section in SECTIONS if key in {section.name, section.name.removesuffix(".*")}]
    if rows and head:
        sections = []  # a path is of one key; a name like `views` is a section first, and a key of others, too
    if sections or rows:
        return "\n\n".join((*map(_explain_section, sections), *(_explain_row(one, row, last) for one, row in rows)))
    if key in TOP_LEVEL:
        return f"{key}\n  {TOP_LEVEL[key]}"
    containers = [users for path, users in CONTAINERS if key == ".".join(path)]
    if containers:
        return f"{key}\n  Servers by name, as kept by {containers[0]}.\n\n{_explain_section(SERVER)}"
    spellings = [spelling for section in SECTIONS for spelling in section.by_spelling]
    near = nearest(last, [*spellings, *TOP_LEVEL, *(path[0] for path, _ in CONTAINERS)])
    hint = f"did you mean `{near}`?" if near else "`muxway config explain` lists all."
    message = f"no configuration key is called `{key}`; {hint}"
    raise ConfigError("invalid_schema", message, (Problem(path=key, message=message),))


def _is_within(head: str, section: Section) -> bool:
    """Whether a path before the key can mean this section: `mcpServers.github`, `servers`, `gateway`, or nothing."""
    first = head.split(".", maxsplit=1)[0]
    if not first:
        return True
    parts = head.split(".")
    if section in (SHAPE, ARGUMENT):
        return "shape" in parts and ("arguments" in parts) == (section is ARGUMENT)
    if section in (OAUTH, IDP):
        return "oauth" in parts and ("idp" in parts) == (section is IDP)
    if section in (PROGRAM_COMMAND, PROGRAM_ARGUMENT):
        return "commands" in parts and ("arguments" in parts) == (section is PROGRAM_ARGUMENT)
    if section is SERVER_TLS:
        return first != "gateway" and "tls" in parts
    if section in (SERVER, VIEW) and not {"shape", "oauth", "tls", "commands"}.isdisjoint(parts):
        return False
    if section is VIEW:
        return first == "views"
    if section is RULE:
        return "access" in parts[:2]
    if section is SERVER:
        return first in {"amp", *(path[0] for path, _ in CONTAINERS)}
    inner = {"subtools": SUBTOOL, "steps": STEP, "examples": EXAMPLE}
    if section in (CUSTOM_TOOL, *inner.values()):
        return first == "tools" and section is inner.get(parts[2] if len(parts) > 2 else "", CUSTOM_TOOL)
    return section.name in (first, head)


def _overview() -> str:
    containers = "\n".join(f"  {'.'.join(path):<17} {users}" for path, users in CONTAINERS)
    return "\n\n".join(
        [
            f"A minimal file:\n  {MINIMAL}",
            f"Servers may stand under any of these keys:\n{containers}",
            *map(_explain_section, SECTIONS),
            "Each key may also be written in snake_case. `muxway config explain KEY` tells more about one.",
        ]
    )


def _explain_section(section: Section) -> str:
    width = max(len(row.key) for row in section.fields)
    rows = [f"  {row.key:<{width}}  {_first_sentence(row.doc)}" for row in section.fields]
    return "\n".join([f"{section.name}", f"  {section.doc}", *rows])


def _first_sentence(doc: str) -> str:
    return doc.split(". ", maxsplit=1)[0].rstrip(".") + "."


def _explain_row(section: Section, row: Field, asked: str) -> str:
    facts = {
        "Type": row.kind.words,
        "Default": "none, it is required" if row.required else "" if row.default is None else json.dumps(row.default),
        "Also": ", ".join(spelling for spelling in row.spellings if spelling != row.key),
        "Example": json.dumps({row.key: row.example}, ensure_ascii=False)[1:-1],
    }
    lines = [f"{section.name}.{row.key}", f"  {row.doc}"]
    if asked != row.key:
        lines.insert(1, f"  (`{asked}` is another spelling of `{row.key}`)")
    return "\n".join(lines + [f"  {name + ':':<9}{fact}" for name, fact in facts.items() if fact])
