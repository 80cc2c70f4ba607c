"""Access rules as they are configured: who may use what."""

from __future__ import annotations

from dataclasses import field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Literal

from muxway.config import kinds
from muxway.config.fields import Section, kind, settings
from muxway.config.kinds import STRING
from muxway.config.report import as_mapping, dotted, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from muxway.config.report import Path, Report
    from muxway.config.values import Reader

HINTS: Final = ("readOnly", "destructive", "idempotent", "openWorld")
"""What tools say of themselves."""
MOST_RULES: Final = 1000
_KINDS: Final = ("tools", "prompts", "resources")
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
        "Globs of views. By default all, including callers without a view.", default=None, example=["agent"]
    )
    servers: tuple[str, ...] | None = globs(
        "Globs of servers: everything they have, or the part of it that the other keys name.",
        default=None,
        example=["github"],
    )
    tools: tuple[str, ...] | None = globs(
        "Globs of tools, by their public names, or by `server__tool` with the tool's own name. A rule with this key"
        " applies to resources and prompts only if it names them, too.",
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
        "Annotations of tools (`readOnly`, `destructive`, `idempotent`, `openWorld`). A tool without them counts as"
        " not read-only and destructive. Annotations are only what the server claims.",
        default_factory=dict[str, bool],
        example={"destructive": True},
    )
    arguments: Mapping[str, tuple[str, ...]] = argument_globs(
        "Globs of argument values, as the caller passes them, by name. For a list or an object all its contents "
        "count: for `allow` all must match, for `ask` and `deny` any one.",
        default_factory=dict[str, "tuple[str, ...]"],
        example={"path": ["/etc/*"]},
    )
    do: Literal["allow", "ask", "deny"] = kinds.choice("allow", "ask", "deny")(
        "What to do: `allow`; `deny`, so that it looks as if it did not exist; or `ask`, so that each use waits for"
        " approval.",
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


# --- rules that never match -------------------------------------------------------------------------------------------


def check_rules(rules: Sequence[AccessRule], servers: Collection[str], views: Collection[str], report: Report) -> None:
    """Warn of rules that nothing can match: they name what is not there, or one before them matches all the same."""
    for number, rule in enumerate(rules):
        place = tuple(int(part) if part.isdecimal() else part for part in rule.where.split("."))
        for key, texts, there, what in (
            ("servers", rule.servers, servers, "server"),
            ("views", rule.views, views, "view"),
        ):
            for text in texts or ():
                if not any(fnmatchcase(name, text) for name in there):
                    near = nearest(text, there)
                    hint = f'; did you mean "{near}"?' if near else ""
                    report.warn((*place, key), f'there is no {what} "{text}", so that this matches nothing{hint}')
        first = next((one for one in rules[:number] if _covers(one, rule)), None)
        if first is not None:
            line = "" if first.line is None else f" (line {first.line})"
            report.warn(place, f"never matches: {first.where}{line} matches all that it would, and comes first")


def _covers(first: AccessRule, other: AccessRule) -> bool:
    """Whether whatever the other rule matches is matched by the first one. No where it cannot be told by the texts."""
    who = ("users", "groups", "keys", "clients", "views", "servers")
    if first.arguments or not all(_covers_texts(getattr(first, key), getattr(other, key)) for key in who):
        return False
    if not first.annotations.items() <= other.annotations.items():
        return False
    named = {key: getattr(first, key) for key in _KINDS if getattr(first, key) is not None}
    if not named and not first.annotations:
        return True
    about = {key: getattr(other, key) for key in _KINDS if getattr(other, key) is not None}
    if other.annotations or other.arguments:
        about = {"tools": other.tools}
    if not about or not (named or {"tools": None}).keys() >= about.keys():
        return False
    return all(_covers_texts(named.get(key), texts) for key, texts in about.items())


def _covers_texts(first: tuple[str, ...] | None, other: tuple[str, ...] | None) -> bool:
    if first is None:
        return True
    return other is not None and all(any(_covers_text(glob, text) for glob in first) for text in other)


def _covers_text(glob: str, text: str) -> bool:
    if text == glob or glob == "*":
        return True
    # A `*` takes whatever a pattern may mean; a `?` or a set does not.
    return "[" not in text and not set("?[") & set(glob) and fnmatchcase(text, glob)
