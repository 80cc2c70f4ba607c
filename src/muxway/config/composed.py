"""Composed tools as they are configured: their steps, examples, and what can be proved about them without a server.

Every reference must lead to something there is: to a step, to a property of the input schema, to an item where there
are items. Steps must not wait for each other in a circle, and tools not for themselves.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from muxway.config.model import EXAMPLE, STEP, CustomTool, Example, Step
from muxway.config.report import as_list, as_mapping, nearest
from muxway.config.templates import NAME, Reference, references

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from muxway.config.model import ServerConfig
    from muxway.config.report import Path, Report
    from muxway.config.values import Reader

MOST_STEPS: Final = 100
MOST_ITEMS: Final = 1000
DEEPEST: Final = 3
"""How deep composed tools may use each other, the outermost counted."""
DRY_RUN: Final = "dryRun"
"""The argument that asks what would be done."""
_SEPARATORS: Final = ("__", ":", ".")
_NOT_PORTABLE: Final = re.compile(r"[^A-Za-z0-9_-]")
Located: TypeAlias = "list[tuple[Path, Step]]"
"""Steps, and where each of them stands."""


def read_composed(
    name: str,
    values: dict[str, Any],
    place: Path,
    servers: Mapping[str, ServerConfig | None],
    tools: Iterable[str],
    longest: float,
    reader: Reader,
) -> CustomTool:
    """A composed tool, with whatever is wrong with it reported.

    Args:
        name: its name.
        values: what its section gave; the steps and examples in it not yet read.
        place: where it stands.
        servers: every configured server, None for one that is wrong or ignored.
        tools: the names of all custom tools.
        longest: seconds that any call may take.
        reader: reads and reports.
    """
    report = reader.report
    if values.pop("subtools", None):
        report.error((*place, "subtools"), "a tool has either `subtools` or `steps`; make two tools of it")
    located = [*_read_steps((*place, "steps"), values.pop("steps", None), reader)]
    examples = tuple(_read_examples((*place, "examples"), values.pop("examples", ()), reader))
    steps = tuple(step for _, step in located)
    values.setdefault("description", "")
    tool = CustomTool(name=name, steps=steps, examples=examples, **values)
    if tool.deadline > longest:
        report.error((*place, "deadline"), f"must not be longer than any call may take (callMax, {longest:g} s)")
    _check_schema(tool, place, report)
    _check_tools(located, servers, [*tools], report)
    _check_references(tool, located, place, report)
    _check_order(tool, place, report)
    return tool


# --- reading ----------------------------------------------------------------------------------


def _read_steps(path: Path, raw: object, reader: Reader) -> Iterator[tuple[Path, Step]]:
    if raw is None:
        return  # wrong, and reported as such
    report = reader.report
    named = as_mapping(raw)
    listed: list[tuple[Path, object]] = []
    if named is not None:
        for name, entry in named.items():
            fields = as_mapping(entry)
            listed.append(((*path, str(name)), entry if fields is None else {"name": name, **fields}))
    else:
        listed = [((*path, index), entry) for index, entry in enumerate(as_list(raw) or [])]
    if not 0 < len(listed) <= MOST_STEPS:
        report.error(path, f"must have 1 to {MOST_STEPS} steps, found {len(listed)}")
        return
    names: set[str] = set()
    for place, entry in listed:
        values = reader.section(STEP, place, entry)
        if "name" not in values or "tool" not in values:
            continue  # reported
        if as_mapping(values.get("arguments", {})) is None:
            report.error((*place, "arguments"), "must be an object: name → value")
            del values["arguments"]
        step = Step(**values)
        if NAME.fullmatch(step.name) is None:
            report.error((*place, "name"), "must begin with a letter or _ and have only letters, digits, _ and -")
        if step.name in names:
            report.error(place, f'there are two steps called "{step.name}"')
        if step.for_each is not None and not isinstance(step.for_each, Reference | tuple):
            report.error((*place, "forEach"), "must be one reference to an array, or an array")
        if step.max_items > MOST_ITEMS:
            report.error((*place, "maxItems"), f"must not be more than {MOST_ITEMS}")
        names.add(step.name)
        yield place, step


def _read_examples(path: Path, raw: object, reader: Reader) -> Iterator[Example]:
    for index, entry in enumerate(as_list(raw) or []):
        values = reader.section(EXAMPLE, (*path, index), entry)
        if "name" in values:
            if "expect" in values and "fails" in values:
                reader.report.error((*path, index), "either `expect`s something or `fails`")
            yield Example(**values)


# --- proving ----------------------------------------------------------------------------------


def _check_schema(tool: CustomTool, place: Path, report: Report) -> None:
    schema = tool.input_schema or {}
    if schema.get("type", "object") != "object":
        report.error((*place, "inputSchema", "type"), 'must be "object": arguments have names')
    for key in ("properties", "required"):
        fits = as_mapping if key == "properties" else as_list
        if key in schema and fits(schema[key]) is None:
            report.error(
                (*place, "inputSchema", key), "must be " + ("an object" if key == "properties" else "an array")
            )
    if tool.dry_run and DRY_RUN in (as_mapping(schema.get("properties")) or {}):
        report.error((*place, "inputSchema", "properties", DRY_RUN), "is what `dryRun` adds; rename yours")


def _check_tools(
    located: Located, servers: Mapping[str, ServerConfig | None], tools: list[str], report: Report
) -> None:
    """Whether each step's tool can belong to somebody. Whether it exists is known only to the servers."""
    for place, step in located:
        where = (*place, "tool")
        owner = next((name for name in sorted(servers, key=len, reverse=True) if _may_have(name, servers, step)), None)
        if owner is None and step.tool not in tools:
            known = [*servers, *tools]
            near = nearest(step.tool, known) or nearest(re.split(r"__|:|\.", step.tool)[0], known)
            hint = f'did you mean "{near}"?' if near else f"servers are {', '.join(servers) or 'none'}"
            report.error(where, f'no server can have a tool called "{step.tool}": write server__tool; {hint}')
        server = servers.get(owner or "")
        if server is not None and not server.enabled:
            report.warn(where, f'the server "{owner}" is off, so this step cannot run')


def _may_have(name: str, servers: Mapping[str, ServerConfig | None], step: Step) -> bool:
    server = servers[name]
    starts = {name, (server.prefix or name) if server is not None else name}
    starts |= {_NOT_PORTABLE.sub("_", start) for start in starts}
    if any(step.tool.startswith(start + separator) for start in starts for separator in _SEPARATORS):
        return True
    if server is None:
        return False
    renamed = {shown.exposed for shown in server.exposed_tools or ()} | {shape.name for shape in server.shape}
    return server.prefix == "" or step.tool in renamed


def _check_references(tool: CustomTool, located: Located, place: Path, report: Report) -> None:
    names = [step.name for step in tool.steps]
    known = as_mapping((tool.input_schema or {}).get("properties"))

    def check(where: Path, reference: Reference, *, items: bool, within: str) -> None:
        if reference.root in ("item", "index"):
            if not items:
                report.error(where, f"{reference.written}: there are no items here; it needs `forEach`")
        elif reference.root == "steps":
            if reference.step not in names:
                near = nearest(reference.step, names)
                hint = f'did you mean "{near}"?' if near else f"there are {', '.join(names)}"
                report.error(where, f'{reference.written}: there is no step "{reference.step}"; {hint}')
            elif reference.step == within:
                report.error(where, f"{reference.written}: a step cannot use what it gives itself")
        elif reference.path and known is not None and reference.path[0] not in known:
            near = nearest(str(reference.path[0]), map(str, known))
            hint = f"did you mean `{near}`?" if near else "inputSchema has no such property"
            report.error(where, f"{reference.written}: there is no such input; {hint}")

    for inside, step in located:
        many = step.for_each is not None
        for key, node, items in (
            ("arguments", step.arguments, many),
            ("when", step.when, many),
            ("forEach", step.for_each, False),
        ):
            for where, reference in references(node, (*inside, key)):
                check(where, reference, items=items, within=step.name)
        for number, name in enumerate(step.after):
            if name not in names:
                report.error((*inside, "after", number), f'there is no step "{name}"; there are {", ".join(names)}')
    for where, reference in references(tool.output, (*place, "output")):
        check(where, reference, items=False, within="")


def needs(step: Step) -> set[str]:
    """The steps that must be over before this one."""
    used = (references(step.arguments), references(step.when), references(step.for_each))
    return {reference.step for some in used for _, reference in some if reference.step} | {*step.after}


def uses(step: Step) -> set[str]:
    """The steps whose results it works with."""
    used = (references(step.arguments), references(step.when), references(step.for_each))
    return {ref.step for some in used for _, ref in some if ref.step and ref.part == "result"}


def _check_order(tool: CustomTool, place: Path, report: Report) -> None:
    circle = _circle({step.name: needs(step) - {step.name} for step in tool.steps})
    if circle:
        report.error((*place, "steps"), f"these steps wait for each other: {' → '.join((*circle, circle[0]))}")


def _circle(waits: Mapping[str, set[str]]) -> list[str]:
    """Names that wait for each other in a circle, in their order; empty if there is none."""
    left = dict(waits)
    while free := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in free:
            del left[name]
    if not left:
        return []
    # Each one left waits for another one left, so that going on long enough ends in a circle.
    path = [next(iter(left))]
    while True:
        following = min(left[path[-1]] & left.keys())
        if following in path:
            return path[path.index(following) :]
        path.append(following)


def check_nesting(tools: Mapping[str, CustomTool], report: Report) -> None:
    """Composed tools may use each other, but not in a circle and not too deep."""
    waits = {name: {step.tool for step in tool.steps} & tools.keys() for name, tool in tools.items()}
    circle = _circle(waits)
    if circle:
        report.error(("tools", circle[0]), f"these tools use each other: {' → '.join((*circle, circle[0]))}")
        return
    deep = {name for name, tool in tools.items() if tool.steps}
    for _ in range(DEEPEST):
        deep = {name for name in deep if waits[name] & deep}
    for name in sorted(deep):
        report.error(("tools", name), f"uses composed tools more than {DEEPEST} deep")
