"""What to show of a server or in a view, and what to make of it: checked as far as that goes without the tools."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from muxway.config import kinds
from muxway.config.fields import FieldKind, Section, kind, settings
from muxway.config.report import as_mapping
from muxway.config.values import shorten
from muxway.regexes import BadPattern, Regex

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.config.report import Path, Report
    from muxway.config.values import Reader

_OF_VISIBLE = ("rename", "default", "description", "enum", "pattern")


def is_pattern(name: str) -> bool:
    """Whether it may mean several tools."""
    return any(character in name for character in "*?[")


# --- what to show -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposedTool:
    """One entry of `exposedTools` or `exposedPrompts`: what to show, perhaps under another name."""

    original: str
    """The name the server gives it."""
    exposed: str | None = None
    """The name to publish instead (before the prefix), if it is renamed."""


def _names(what: str) -> FieldKind[tuple[str, ...]]:
    def read(reader: Reader, path: Path, raw: object) -> tuple[str, ...] | None:
        names = reader.items(path, raw, reader.named, f"an array of {what} names")
        return None if names is None else tuple(dict.fromkeys(names))

    return FieldKind(f"array of {what} names", kinds.NAMES, read)


def _exposed(what: str) -> FieldKind[tuple[ExposedTool, ...]]:
    renamed = {
        "type": "object",
        "properties": {"original": kinds.STRING, "exposed": kinds.STRING},
        "required": ["original"],
    }

    def read(reader: Reader, path: Path, raw: object) -> tuple[ExposedTool, ...] | None:
        one = partial(_read_exposed, reader, what)
        tools = reader.items(path, raw, one, f"an array of {what} names")
        if tools is None:
            return None
        if any(tool.original == "*" for tool in tools):
            if len(tools) > 1:
                hidden = f"hidden{what.title()}s"
                reader.report.error(path, f'"*" means all {what}s and must stand alone; to hide some use `{hidden}`')
            return None
        tools = tuple(dict.fromkeys(tools))
        public_names: set[str] = set()
        for tool in tools:
            public = tool.exposed or tool.original
            if public in public_names:
                reader.report.error(path, f'two {what}s would have the name "{shorten(public)}"; rename one of them')
            public_names.add(public)
        return tools

    schema = {"type": "array", "items": {"anyOf": [kinds.FILLED, renamed]}}
    return FieldKind(f"array of {what} names or {{original, exposed}}", schema, read)


def _read_exposed(reader: Reader, what: str, place: Path, item: object) -> ExposedTool | None:
    if as_mapping(item) is None:
        name = reader.named(place, item, f"a {what} name or {{original, exposed}}")
        return ExposedTool(original=name) if name is not None else None
    entries = reader.entries(place, item) or {}
    for key in entries.keys() - {"original", "exposed"}:
        reader.report.warn((*place, key), "is unknown here; a rename has `original` and `exposed`")
    if "original" not in entries:
        reader.report.error(place, f"needs `original`, the {what}'s own name")
        return None
    original = reader.named((*place, "original"), entries["original"])
    exposed = entries.get("exposed")
    public = reader.named((*place, "exposed"), exposed) if exposed is not None else None
    if public is not None and original is not None and is_pattern(original):
        reader.report.error(place, f"a pattern may mean several {what}s, which cannot all have one name")
    return ExposedTool(original=original, exposed=public) if original is not None else None


tool_names: Final = _names("tool")
prompt_names: Final = _names("prompt")
exposed_tools: Final = _exposed("tool")
exposed_prompts: Final = _exposed("prompt")


# --- what to make of it -----------------------------------------------------------------------


@kind("regular expression", {"type": "string", "format": "regex"})
def pattern(reader: Reader, path: Path, raw: object) -> str | None:
    """A regular expression."""
    # No variables: a `$` is part of the expression.
    if not isinstance(raw, str):
        reader.wrong(path, "a regular expression", raw)
        return None
    try:
        Regex(raw)
    except BadPattern as error:
        reader.report.error(path, str(error))
        return None
    return raw


@kind("JMESPath expression", kinds.FILLED)
def expression(reader: Reader, path: Path, raw: object) -> str | None:
    """A JMESPath expression."""
    if not isinstance(raw, str):
        reader.wrong(path, "a JMESPath expression", raw)
        return None
    # Only for those who have one.
    import jmespath
    import jmespath.exceptions
    from jmespath.functions import Functions

    try:
        parsed = cast("dict[str, Any]", jmespath.compile(raw).parsed)
    except (jmespath.exceptions.JMESPathError, RecursionError) as error:
        first = str(error).partition("\n")[0]
        reader.report.error(path, f"is no JMESPath expression: {first}")
        return None
    known = cast("Mapping[str, object]", Functions.FUNCTION_TABLE)
    for name in dict.fromkeys(_functions(parsed)):
        if name not in known:
            reader.report.error(path, f"JMESPath has no function `{name}`; there are {', '.join(sorted(known))}")
            return None
    return raw


def _functions(node: Mapping[str, Any]) -> list[str]:
    """The functions that an expression calls."""
    here = [str(node["value"])] if node["type"] == "function_expression" else []
    # The children of a slice are its numbers.
    children = cast("Sequence[dict[str, Any] | int | None]", node.get("children", ()))
    nodes = [child for child in children if isinstance(child, dict) and "type" in child]
    return here + [name for child in nodes for name in _functions(child)]


@settings
class ArgumentShape:
    """What to make of one argument of a tool."""

    hide: bool = kinds.flag(
        "Whether the argument is hidden: callers do not see it and may not pass it. With `value` or `env` it always"
        " has that value.",
        default=False,
        example=True,
    )
    value: object = kinds.value(
        "Fixed value of a hidden argument. Variables in its text are expanded.",
        default=None,
        repr=False,
        example="acme",
    )
    env: str | None = kinds.variable_name(
        "Name of the environment variable that holds the fixed value of a hidden argument; converted if the "
        "argument is a number or boolean.",
        default=None,
        repr=False,
        example="API_TOKEN",
    )
    rename: str | None = kinds.name("Name of the argument for callers.", default=None, example="query")
    default: object = kinds.value(
        "Value if the caller does not pass one. The argument is then not required.", default=None, example=20
    )
    description: str | None = kinds.name("Description for the model.", default=None, example="Words to look for")
    enum: tuple[object, ...] | None = kinds.values(
        "The only allowed values. Other values are refused before the server is called.",
        default=None,
        example=["open", "closed"],
    )
    pattern: str | None = pattern(
        "Regular expression that must match somewhere in the text; write `^` and `$` to match all of it. Other "
        "values are refused before the server is called.",
        default=None,
        example="^acme/",
    )


ARGUMENT: Final = Section("mcpServers.*.shape.*.arguments.*", ArgumentShape)


@kind(
    "object: name of the argument → shape",
    {"type": "object", "additionalProperties": {"$ref": "#/$defs/argument"}},
)
def argument_shapes(reader: Reader, path: Path, raw: object) -> dict[str, ArgumentShape] | None:
    """What becomes of arguments, by their own names."""
    entries = reader.entries(path, raw, "an object: name of the argument → what to make of it")
    if entries is None:
        return None
    arguments: dict[str, ArgumentShape] = {}
    renamed: dict[str, str] = {}
    for name, entry in entries.items():
        place = (*path, name)
        values = reader.section(ARGUMENT, place, entry)
        one = arguments[name] = ArgumentShape(**values)
        _check_argument(one, values, place, reader.report)
        if one.rename is not None and not one.hide:
            if one.rename in renamed:
                why = f'"{renamed[one.rename]}" is given the same name; choose another'
                reader.report.error((*place, "rename"), why)
            renamed[one.rename] = name
    return arguments


def _check_argument(one: ArgumentShape, values: Mapping[str, Any], place: Path, report: Report) -> None:
    if not one.hide:
        for key in values.keys() & {"value", "env"}:
            report.error(
                (*place, key), "callers could give another value; write `hide: true` too, or `default` instead"
            )
        default = one.default
        if default is not None and one.enum is not None and default not in one.enum:
            report.error((*place, "default"), "is not one of `enum`, so that calls without the argument would fail")
        text = default if isinstance(default, str) else ""
        if default is not None and one.pattern is not None and not Regex(one.pattern).fits(text):
            report.error((*place, "default"), "does not match `pattern`, so that calls without the argument would fail")
        return
    if "value" in values and "env" in values:
        report.error(place, "has both `value` and `env`; keep one of the two")
    for key in _OF_VISIBLE:
        if key in values:
            report.warn((*place, key), "has no effect on a hidden argument")


@settings
class ToolShape:
    """What to make of a tool, or of all whose names match a glob."""

    match: str
    """The tool's name, or the pattern."""
    name: str | None = kinds.name("Public name, used as it is: without prefix.", default=None, example="search")
    title: str | None = kinds.name("Title of the tool, for people.", default=None, example="Search our code")
    description: str | None = kinds.name(
        "Description for the model, instead of the server's.",
        default=None,
        example="Search the code of all our repositories",
    )
    annotations: Mapping[str, object] | None = kinds.mapping(
        "Annotations to set; the others stay.", default=None, example={"readOnlyHint": True}
    )
    arguments: Mapping[str, ArgumentShape] = argument_shapes(
        "Changes to arguments, by their own names.",
        default_factory=dict[str, ArgumentShape],
        example={"org": {"hide": True, "value": "acme"}, "q": {"rename": "query"}},
    )
    result: str | None = expression(
        "JMESPath expression that selects from the structured content, or from the JSON in the text of the result. "
        "The tool is then listed without an output schema.",
        default=None,
        example="items[].{path: path, url: html_url}",
    )


SHAPE: Final = Section("mcpServers.*.shape.*", ToolShape)


@kind("object: name or glob of tools → shape", {"type": "object", "additionalProperties": {"$ref": "#/$defs/shape"}})
def shapes(reader: Reader, path: Path, raw: object) -> tuple[ToolShape, ...] | None:
    """Shapes by the name of their tool, or a pattern of names."""
    entries = reader.entries(path, raw, "an object: name or glob of tools → what to make of them")
    if entries is None:
        return None
    read: list[ToolShape] = []
    names: dict[str, str] = {}
    for match, entry in entries.items():
        place = (*path, match)
        if not match.strip():
            reader.report.error(place, "the name of a tool must not be empty")
            continue
        shape = ToolShape(match=match, **reader.section(SHAPE, place, entry))
        read.append(shape)
        if shape.name is None:
            continue
        if is_pattern(match):
            reader.report.error((*place, "name"), "a pattern may mean several tools, which cannot all have one name")
        elif shape.name in names:
            reader.report.error((*place, "name"), f'"{names[shape.name]}" is given the same name; choose another')
        names[shape.name] = match
    return tuple(read)


def check_names(exposed: Sequence[ExposedTool] | None, shapes: Sequence[ToolShape], path: Path, report: Report) -> None:
    """A tool has one public name, and no other tool of its server has it."""
    renamed = {tool.original: tool.exposed for tool in exposed or () if tool.exposed is not None}
    for shape in shapes:
        place = (*path, "shape", shape.match, "name")
        if shape.name is None or is_pattern(shape.match):
            continue
        if shape.match in renamed and renamed[shape.match] != shape.name:
            report.error(place, "is given another name in `exposedTools`; keep one of the two")
        for original, public in renamed.items():
            if public == shape.name and original != shape.match:
                report.error(place, f'"{original}" is given the same name in `exposedTools`; choose another')
