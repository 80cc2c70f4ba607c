"""Whether values fit JSON Schemas: the few keywords that say what kind of value is wanted, and no others. Pure.

What a schema says in other ways (`$ref`, `anyOf`, patterns) is left to the tool that wrote it: nothing here ever calls
a good value wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from muxway.composed.evaluation import same
from muxway.config.composed import DRY_RUN
from muxway.config.templates import Reference, Template, Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muxway.config.model import CustomTool, Step

Schema = Mapping[str, Any]
Place = tuple[str | int, ...]
Definitions = Mapping[str, Schema | None]
"""Tool, as a step names it → its definition; None if its server says that there is none. Others are not known."""

_OPEN: Final = frozenset(("$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "not", "if"))
"""Keywords by which a schema may say more than is looked at here."""


def kind_of(value: object) -> str:
    """What JSON Schema calls the type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case Mapping():
            return "object"
        case _:
            return "array"


def kinds(schema: object) -> frozenset[str] | None:
    """The types a schema allows; None if it does not say, or says it in a way that is not looked at."""
    if not isinstance(schema, Mapping):
        return None
    fields = cast("Schema", schema)
    if not _OPEN.isdisjoint(fields):
        return None
    if "enum" in fields and isinstance(fields["enum"], list):
        return frozenset(map(kind_of, cast("list[Any]", fields["enum"])))
    named = fields.get("type")
    if isinstance(named, str):
        return frozenset((named,))
    return frozenset(map(str, cast("list[Any]", named))) if isinstance(named, list) else None


def _overlap(given: frozenset[str], wanted: frozenset[str]) -> bool:
    """Whether a value of one of these types may be of one of those: a whole number is a number."""
    return bool(given & wanted) or ("integer" in given and "number" in wanted)


def misfits(value: object, schema: object, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Where and why a value does not fit a schema."""
    wanted = kinds(schema)
    if not isinstance(schema, Mapping):
        return
    fields = cast("Schema", schema)
    if wanted is not None and not _overlap(frozenset((kind_of(value),)), wanted):
        yield place, f"must be {_or(wanted)}, found {kind_of(value)}"
        return
    if "enum" in fields and isinstance(fields["enum"], list):
        allowed = cast("list[Any]", fields["enum"])
        if not any(same(value, one) for one in allowed):
            yield place, f"must be one of {', '.join(map(str, allowed[:20]))}"
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        yield from _missing(members, fields, place)
        for name, member in members.items():
            yield from misfits(member, _property(fields, name), (*place, name))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast("list[object]", value)):
            yield from misfits(item, fields.get("items"), (*place, index))


def _missing(members: Mapping[str, object], schema: Schema, place: Place) -> Iterator[tuple[Place, str]]:
    required = schema.get("required")
    for name in cast("list[object]", required) if isinstance(required, list) else ():
        if name not in members:
            yield (*place, str(name)), "is required"
    if schema.get("additionalProperties") is False and not schema.get("patternProperties"):
        for name in members:
            if name not in _properties(schema):
                yield (*place, name), f"is unknown; there are {', '.join(_properties(schema)) or 'none'}"


def _properties(schema: object) -> Schema:
    properties = cast("Schema", schema).get("properties") if isinstance(schema, Mapping) else None
    return cast("Schema", properties) if isinstance(properties, Mapping) else {}


def _property(schema: object, name: str) -> object:
    return _properties(schema).get(name)


def _or(names: frozenset[str]) -> str:
    return " or ".join(sorted(names))


# --- composed tools against the tools they use ------------------------------------------------


class Misfit(NamedTuple):
    """Something wrong with a step, now that its tool is known."""

    number: int
    step: Step
    place: Place
    """Where in the step."""
    why: str
    doubtful: bool = False
    """Whether it may be right all the same."""


def problems(tool: CustomTool, definitions: Definitions) -> Iterator[Misfit]:
    """What is wrong with a composed tool, now that the tools of its steps are known."""
    steps = {step.name: step for step in tool.steps}
    for index, step in enumerate(tool.steps):
        if step.tool not in definitions:
            continue
        definition = definitions[step.tool]
        if definition is None:
            yield Misfit(index, step, ("tool",), f'there is no tool "{step.tool}"')
            continue
        schema = definition.get("inputSchema")
        for where, why in _template_misfits(step.arguments, schema, tool, steps, definitions):
            yield Misfit(index, step, ("arguments", *where), why)
        for name, why in _unknown(step.arguments, schema):
            yield Misfit(index, step, ("arguments", name), why, doubtful=True)


def _unknown(arguments: Mapping[str, Template], schema: object) -> Iterator[tuple[str, str]]:
    """Arguments that the schema has no word about: most tools ignore them, so that a slip would go unnoticed."""
    known = _properties(schema)
    if known and "additionalProperties" not in cast("Schema", schema):
        for name in sorted(arguments.keys() - known.keys()):
            yield name, f"the tool names no such argument; it has {', '.join(known)}"


def _template_misfits(
    template: Template,
    schema: object,
    tool: CustomTool,
    steps: Mapping[str, Step],
    definitions: Definitions,
    place: Place = (),
) -> Iterator[tuple[Place, str]]:
    """Where and why what a template will become cannot fit a schema."""
    if isinstance(template, Reference | Text):
        given = frozenset(("string",)) if isinstance(template, Text) else _kinds_of(template, tool, steps, definitions)
        wanted = kinds(schema)
        if given is not None and "number" in given:
            given |= {"integer"}  # it may be a whole one
        if given is not None and wanted is not None and not _overlap(given, wanted):
            written = template.written if isinstance(template, Reference) else "text"
            yield place, f"must be {_or(wanted)}, but {written} is {_or(given)}"
        return
    if not isinstance(template, Mapping | tuple):
        yield from misfits(template, schema, place)
        return
    wanted, kind = kinds(schema), kind_of(template)
    if wanted is not None and kind not in wanted:
        yield place, f"must be {_or(wanted)}, found {kind}"
    elif isinstance(schema, Mapping):
        fields = cast("Schema", schema)
        if isinstance(template, Mapping):
            yield from _missing(template, fields, place)
            inner = [(name, member, _property(fields, name)) for name, member in template.items()]
        else:
            inner = [(index, item, fields.get("items")) for index, item in enumerate(template)]
        for key, part, wish in inner:
            yield from _template_misfits(part, wish, tool, steps, definitions, (*place, key))


def _kinds_of(
    reference: Reference, tool: CustomTool, steps: Mapping[str, Step], definitions: Definitions
) -> frozenset[str] | None:
    """The types that what a reference leads to can have; None if that is not known."""
    if reference.root == "index":
        return frozenset(("integer",))
    if reference.root == "input":
        return kinds(_within(tool.input_schema, reference.path))
    if reference.root == "item" or reference.part != "result":
        return {"ok": frozenset(("boolean",)), "skipped": frozenset(("boolean",))}.get(reference.part)
    step = steps[reference.step]
    if step.for_each is not None:
        return None if reference.path else frozenset(("array",))
    definition = definitions.get(step.tool)
    return None if definition is None else kinds(_within(definition.get("outputSchema"), reference.path))


def _within(schema: object, path: tuple[str | int, ...]) -> object:
    """The schema of a part."""
    for key in path:
        if not isinstance(schema, Mapping):
            return None
        fields = cast("Schema", schema)
        schema = fields.get("items") if isinstance(key, int) else _property(fields, key)
    return schema


# --- what is asked of the caller --------------------------------------------------------------


def input_schema(tool: CustomTool) -> dict[str, Any]:
    """The schema a composed tool is listed with."""
    schema: dict[str, Any] = {"type": "object", **(tool.input_schema or {})}
    if tool.dry_run:
        asks = {"type": "boolean", "description": "Only say what would be called, and call nothing."}
        schema["properties"] = {**_properties(schema), DRY_RUN: asks}
    return schema


def defaults(tool: CustomTool) -> dict[str, Any]:
    """The arguments a caller need not give."""
    listed = _properties(tool.input_schema)
    return {
        name: cast("Schema", schema)["default"]
        for name, schema in listed.items()
        if isinstance(schema, Mapping) and "default" in schema
    }
