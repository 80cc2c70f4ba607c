"""What to make of tools: `shape` of a server or of a view, read and checked as far as that goes without the tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from muxway.config.fields import ARGUMENT, SHAPE
from muxway.config.model import ArgumentShape, ToolShape
from muxway.regexes import BadPattern, Regex

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.config.fields import Field
    from muxway.config.model import ExposedTool
    from muxway.config.report import Path, Report
    from muxway.config.values import Reader

_OF_VISIBLE = ("rename", "default", "description", "enum", "pattern")


def is_pattern(name: str) -> bool:
    """Whether it may mean several tools."""
    return any(character in name for character in "*?[")


def read_shapes(reader: Reader, _row: Field, path: Path, raw: object) -> tuple[ToolShape, ...] | None:
    """Shapes by the name of their tool, or a pattern of names."""
    entries = reader.entries(path, raw, "an object: name or glob of tools → what to make of them")
    if entries is None:
        return None
    shapes: list[ToolShape] = []
    names: dict[str, str] = {}
    for match, entry in entries.items():
        place = (*path, match)
        if not match.strip():
            reader.report.error(place, "the name of a tool must not be empty")
            continue
        shape = ToolShape(match=match, **reader.section(SHAPE, place, entry))
        shapes.append(shape)
        if shape.name is None:
            continue
        if is_pattern(match):
            reader.report.error((*place, "name"), "a pattern may mean several tools, which cannot all have one name")
        elif shape.name in names:
            reader.report.error((*place, "name"), f'"{names[shape.name]}" is given the same name; choose another')
        names[shape.name] = match
    return tuple(shapes)


def read_arguments(reader: Reader, _row: Field, path: Path, raw: object) -> dict[str, ArgumentShape] | None:
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
            report.warn((*place, key), "has no effect on an argument that nobody sees")


def read_pattern(reader: Reader, _row: Field, path: Path, raw: object) -> str | None:
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


def read_expression(reader: Reader, _row: Field, path: Path, raw: object) -> str | None:
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
