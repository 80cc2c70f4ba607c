"""Access rules as they are configured: who may use what."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Literal

from muxway.config import kinds
from muxway.config.fields import Section, kind, settings
from muxway.config.kinds import STRING
from muxway.config.report import as_mapping, dotted, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.config.report import Path
    from muxway.config.values import Reader

HINTS: Final = ("readOnly", "destructive", "idempotent", "openWorld")
"""What tools say of themselves."""
MOST_RULES: Final = 1000
_TEXTS: Final[Mapping[str, Any]] = {
    "anyOf": [STRING, {"type": "array", "items": {"type": ["string", "number", "boolean"]}}]
}


@kind("text, or array of text", _TEXTS)
def globs(reader: Reader, place: Path, raw: object) -> tuple[str, ...] | None:
    """Names and patterns of names; one may stand alone."""
    alone = isinstance(raw, str)
    read = reader.items(place, [raw] if alone else raw, reader.scalar, 'an array of globs like ["github__*"]')
    if read == ():
        # Whoever writes this means something, and it is not "all".
        reader.report.error(place, "is empty, so that the rule never matches; leave it out for all")
    return read


@kind(
    "object: readOnly, destructive, idempotent or openWorld → true or false",
    {"type": "object", "additionalProperties": {"type": ["boolean", "string"]}},
)
def hints(reader: Reader, place: Path, raw: object) -> dict[str, bool] | None:
    """What tools must say of themselves."""
    entries = reader.entries(place, raw, 'an object like {"destructive": true}')
    if entries is None:
        return None
    wanted: dict[str, bool] = {}
    for name, value in entries.items():
        short = name.removesuffix("Hint")
        if short not in HINTS:
            near = nearest(short, HINTS)
            hint = f"did you mean `{near}`?" if near else f"known are {', '.join(HINTS)}"
            reader.report.error((*place, name), f"tools say nothing of this kind; {hint}")
        elif (read := kinds.flag.read(reader, (*place, name), value)) is not None:
            wanted[short] = read
    return wanted


@kind(
    "object: argument → text, or array of text",
    {"type": "object", "additionalProperties": _TEXTS},
)
def argument_globs(reader: Reader, place: Path, raw: object) -> dict[str, tuple[str, ...]] | None:
    """What arguments must be."""
    entries = reader.entries(place, raw, 'an object like {"path": ["/etc/*"]}')
    if entries is None:
        return None
    read = {name: globs.read(reader, (*place, name), value) for name, value in entries.items()}
    return {name: texts for name, texts in read.items() if texts is not None}


@settings
class AccessRule:
    """One rule on who may use what. The first rule that matches decides; what none matches is allowed."""

    where: str = field(default="", compare=False)
    """Where it was configured."""
    line: int | None = field(default=None, compare=False)
    """Line in the file, where known."""
    users: tuple[str, ...] | None = globs(
        "Globs of users, as `gateway.auth` names them.", default=None, example=["ann@example.com"]
    )
    groups: tuple[str, ...] | None = globs(
        "Globs of groups, as the issuer names them; one of the caller's is enough.", default=None, example=["eng"]
    )
    keys: tuple[str, ...] | None = globs("Globs of the names of API keys.", default=None, example=["ci"])
    clients: tuple[str, ...] | None = globs(
        "Globs of client ids at the issuer: the programs that access tokens were given to.",
        default=None,
        example=["claude-*"],
    )
    views: tuple[str, ...] | None = globs(
        "Globs of views. By default all, and callers who use none.", default=None, example=["agent"]
    )
    servers: tuple[str, ...] | None = globs(
        "Globs of servers: all that they have, or what of it the other keys name.", default=None, example=["github"]
    )
    tools: tuple[str, ...] | None = globs(
        "Globs of tools, by their public names, or by `server__tool` with the tool's own name. With this, resources "
        "and prompts are not meant unless they are named, too.",
        default=None,
        example=["*__delete_*"],
    )
    prompts: tuple[str, ...] | None = globs(
        "Globs of prompts, by their public names, or by `server__prompt`.", default=None, example=["github__*"]
    )
    resources: tuple[str, ...] | None = globs(
        "Globs of resources and templates, by their URIs as their servers write them.",
        default=None,
        example=["file:///secret/*"],
    )
    annotations: Mapping[str, bool] = hints(
        "What tools say of themselves (`readOnly`, `destructive`, `idempotent`, `openWorld`); one that does not say "
        "it may change things, and may be destructive. It is the word of their server.",
        default_factory=dict[str, bool],
        example={"destructive": True},
    )
    arguments: Mapping[str, tuple[str, ...]] = argument_globs(
        "Globs of what arguments are, as the caller gives them, by name. A list, or an object, counts by all that is "
        "in it: for `allow` all of it must match, for `ask` and `deny` any of it.",
        default_factory=dict[str, "tuple[str, ...]"],
        example={"path": ["/etc/*"]},
    )
    do: Literal["allow", "ask", "deny"] = kinds.choice("allow", "ask", "deny")(
        "What to do: `allow`; `deny`, so that it looks as if it were not there; or `ask`, so that each use waits "
        "until somebody agrees.",
        example="deny",
    )


RULE: Final = Section("access.*", AccessRule)


@kind("array of rules", {"type": "array", "items": {"$ref": "#/$defs/accessRule"}})
def access_rules(reader: Reader, path: Path, raw: object) -> tuple[AccessRule, ...] | None:
    """Rules in their order."""

    def one(place: Path, item: object) -> AccessRule | None:
        if as_mapping(item) is None:
            reader.wrong(place, 'a rule like {"tools": ["*__delete_*"], "do": "deny"}', item)
            return None
        known = len(reader.report.errors)
        values = reader.section(RULE, place, item)
        unknown = [key for key in as_mapping(item) or {} if key not in RULE.by_spelling]
        for key in unknown:
            # What would only be a warning elsewhere would make this rule mean more than was written.
            reader.report.error((*place, str(key)), "a rule may have no key that is not known: it would match too much")
        if len(reader.report.errors) > known or "do" not in values:
            return None
        return AccessRule(where=dotted(place), line=reader.report.line(place), **values)

    rules = reader.items(path, raw, one, "an array of rules")
    if rules is not None and len(rules) > MOST_RULES:
        reader.report.error(path, f"has more than {MOST_RULES:,} rules")
    return rules
