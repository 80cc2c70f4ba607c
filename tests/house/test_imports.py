"""Imports point one way. Move the shared thing down a floor instead of adding an exception here."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[2] / "src"

FLOORS = (
    {"errors", "log", "regexes", "likeness"},
    {"wire", "tracebacks"},
    {"calls", "net"},
    {"config"},
    {"catalog"},
    {"access"},
    {"search"},
    {"routing"},
    {"composed"},
    {"exchange"},
    {"middleware", "servers", "clients"},
    {"identity"},
    {"results", "opening", "publisher", "layering"},
    {"gateway"},
    {"sync", "chaining"},
    {"control"},
    {"setup"},
    {"demo", "testing"},
    {"cli"},
    {"__main__"},
)
"""From the ground up. A part may import what is below it, and itself; parts of one floor never import each other."""

PURE = {"wire", "calls", "catalog", "access", "search", "routing", "composed", "exchange"}
"""What a message means is decided without waiting (docs/design/README.md#folders)."""
MAY_WAIT = {"muxway/calls/ports.py"}


def floor_of(part: str) -> int:
    """The number of a part's floor."""
    return next((number for number, parts in enumerate(FLOORS) if part in parts), -1)


def part_of(path: Path) -> str:
    """`muxway/calls/call.py` → `calls`."""
    return path.relative_to(SOURCE / "muxway").parts[0].removesuffix(".py")


def sources() -> list[Path]:
    """Every module of muxway but `__init__`, which re-exports from everywhere, on first use."""
    return [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "muxway" / "__init__.py"]


def imports(path: Path) -> Iterator[str]:
    """Every module a file imports, anywhere in it: at the top, in functions, for types only."""
    package = path.relative_to(SOURCE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (above, node.module)))
            # `from muxway import app` names a module too.
            yield from (f"muxway.{alias.name}" for alias in node.names) if module == "muxway" else (module,)


def muxway_imports() -> Iterator[tuple[Path, str, str]]:
    """(File, its part, the part it imports), for every import of one part by another."""
    for path in sources():
        for name in imports(path):
            first, _, rest = name.partition(".")
            part = rest.partition(".")[0]
            if first == "muxway" and part not in ("", "__version__"):
                yield path, part_of(path), part


def test_every_part_has_its_floor() -> None:
    """Ours: whoever adds a part decides who may know it."""
    parts = {part_of(path) for path in sources()}
    assert sorted(f"{part} stands on no floor; add it to FLOORS" for part in parts if floor_of(part) < 0) == []


def test_imports_point_one_way() -> None:
    """docs/design/README.md#folders: imports point one way, from the bottom of the list to its top."""
    assert [
        f"{path.relative_to(SOURCE)} must not import muxway.{name}"
        for path, part, name in muxway_imports()
        if part != name and floor_of(part) <= floor_of(name)
    ] == []


def test_the_pure_parts_never_wait() -> None:
    """docs/design/README.md#folders.

    No await, clock, socket or log where meaning is decided; `calls/ports.py` is the border.
    """
    banned = {"asyncio", "socket", "time", "threading", "subprocess", "logging", "muxway.log", "muxway.net.pipes"}
    assert [
        f"{path.relative_to(SOURCE)} must not import {name}"
        for path in sources()
        if part_of(path) in PURE and str(path.relative_to(SOURCE).as_posix()) not in MAY_WAIT
        for name in imports(path)
        if name in banned
    ] == []


def test_only_messages_knows_the_json_library() -> None:
    """docs/design/README.md#wire.

    wire/envelopes is the only place that decodes; others may hold its raw values and structs.
    """
    offenders = [
        f"{path.relative_to(SOURCE)} line {node.lineno} must leave JSON to wire/envelopes.py"
        for path in sources()
        if part_of(path) in PURE and path.name != "envelopes.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Attribute) and ast.unparse(node) == "msgspec.json")
        or (isinstance(node, ast.Import) and any(alias.name == "json" for alias in node.names))
    ]
    assert offenders == []
