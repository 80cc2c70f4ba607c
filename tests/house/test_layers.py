"""Who may know whom inside the large folders, and what the pure ones get to know by way of others."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
HOME = SOURCE / "muxway"

CONNECTION_PARTS = (
    *("attribution", "call_queue", "circuit", "connection", "counters", "deadlines", "junk", "limits"),
    *("notices", "odd_frames", "own_requests", "pending", "questions"),
)
ALL_SERVERS = ("servers.servers", "servers.sources", "servers.users", "servers.factory", "servers.draining")
RULES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "transports towards servers know no connection": (
        ("servers.transports",),
        ("servers", "!servers.transports"),
    ),
    "a connection and its parts know no slot, pool or server": (
        tuple(f"servers.{part}" for part in CONNECTION_PARTS),
        (
            *("servers.slot", "servers.start", "servers.supervision", "servers.lists", "servers.pool"),
            *("servers.instance", "servers.managed_server", *ALL_SERVERS, "servers.dialing"),
        ),
    ),
    "the table of states knows nobody": (("servers.state",), ("servers",)),
    "a slot knows no pool": (
        ("servers.slot", "servers.start", "servers.supervision", "servers.lists", "servers.notifications"),
        ("servers.pool", "servers.managed_server", *ALL_SERVERS),
    ),
    "a pool knows not whose it is": (("servers.pool",), ("servers.managed_server", *ALL_SERVERS)),
    "strategies know the exchange, not the other way": (
        ("exchange.exchange", "exchange.task_poller", "exchange.tasks", "exchange.holding", "exchange.seal"),
        ("exchange.strategies", "exchange.parking", "exchange.forwarding"),
    ),
    "what an exchange needs knows no dispatcher": (
        (
            *("exchange.exchange", "exchange.strategies", "exchange.parking", "exchange.task_poller"),
            *("exchange.tasks", "exchange.holding", "exchange.seal", "exchange.admission", "exchange.log_levels"),
        ),
        ("exchange.dispatcher", "routing.router", "exchange.runtime", "exchange.subscriptions"),
    ),
    "a session knows no transport": (
        (
            *("clients.session", "clients.backlog", "clients.changes", "clients.listen_request"),
            *("clients.notifications", "clients.questions", "clients.unsent"),
        ),
        ("clients.transports", "clients.stateless"),
    ),
    "stateless requests know only how an HTTP answer is written": (
        ("clients.stateless",),
        ("clients.session", "clients.transports", "!clients.transports.http_response"),
    ),
    "the engine knows no middleware that is built in": (("middleware.engine",), ("middleware.builtin",)),
    "the reaper is a program of its own": (("net.processes.reaper",), ("net", "log", "errors", "wire")),
}
"""Rule → those whom it is for, and those whom they must not know, not even for types. `!`: but this one."""


def modules() -> dict[str, Path]:
    """Every module by its name, without `muxway.` in front."""
    found = {".".join(path.relative_to(HOME).with_suffix("").parts): path for path in sorted(HOME.rglob("*.py"))}
    return {name.removesuffix(".__init__"): path for name, path in found.items()}


@cache
def known_by(path: Path) -> dict[str, bool]:
    """The modules of muxway that a file imports, anywhere in it → whether that is for types only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    names = modules()
    found: dict[str, bool] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = (node.module or "").removeprefix("muxway").removeprefix(".")
            said = [".".join(filter(None, (module, alias.name))) for alias in node.names]
            reached = [one if one in names else module for one in said] if _is_ours(node.module) else []
        elif isinstance(node, ast.Import):
            reached = [alias.name.removeprefix("muxway.") for alias in node.names if _is_ours(alias.name)]
        else:
            continue
        for name in reached:
            found[name] = found.get(name, True) and id(node) in for_types
    return found


def _is_ours(name: str | None) -> bool:
    return name is not None and name.partition(".")[0] == "muxway"


def is_of(name: str, parts: tuple[str, ...]) -> bool:
    """Whether a module is one of these, or in one of these folders."""
    spared = [part[1:] for part in parts if part.startswith("!")]
    return any(_under(name, part) for part in parts) and not any(_under(name, part) for part in spared)


def _under(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.")


@pytest.mark.parametrize("rule", RULES)
def test_imports_point_one_way_inside_folders(rule: str) -> None:
    """docs/design/README.md#folders: inside the large folders, too."""
    whose, unknown = RULES[rule]
    concerned = {name: path for name, path in modules().items() if is_of(name, whose)}
    assert {part for part in whose if not any(_under(name, part) for name in concerned)} == set(), "is gone"
    assert [
        f"{name} must not import {other}"
        for name, path in concerned.items()
        for other in known_by(path)
        if is_of(other, unknown) and other != name
    ] == []


def test_what_verbs_share_knows_no_verb() -> None:
    """docs/design/README.md#folders: but for types, as a verb is loaded only when it is used."""
    assert [
        f"{name} must not import {other}"
        for name, path in modules().items()
        if _under(name, "cli") and not _under(name, "cli.verbs")
        for other, for_types in known_by(path).items()
        if _under(other, "cli.verbs") and not for_types
    ] == []


# --- purity ---------------------------------------------------------------------------------------

PURE = ("wire", "calls", "catalog", "routing")
BORDERS = {"calls.ports", "calls.incidents"}
"""What has the timers and makes ids; what writes a fault inside into the log."""
WORLD = frozenset(
    (
        *("asyncio", "datetime", "logging", "os", "random", "secrets", "socket", "subprocess"),
        *("tempfile", "threading", "time"),
    )
)
"""Modules that know what the arguments of a function do not tell, or do what its result does not show."""


def outside(path: Path) -> set[str]:
    """What a file imports that is not ours, but for types; the first part of each name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in _run(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _run(tree: ast.AST) -> list[ast.AST]:
    """What of a file is run: all but what is for the type checker."""
    nodes: list[ast.AST] = []
    for child in ast.iter_child_nodes(tree):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            nodes += [child, *_run(child)]
    return nodes


def reached(name: str, by: str) -> dict[str, str]:
    """Every module that one gets to know, with all that these know → by way of whom. Borders are not crossed."""
    names, found, ahead = modules(), {name: by}, [name]
    while ahead:
        one = ahead.pop()
        for other, for_types in known_by(names[one]).items():
            if not for_types and other in names and other not in found and other not in BORDERS:
                found[other] = f"{found[one]} → {other}"
                ahead.append(other)
    return found


def test_the_pure_parts_know_no_world_by_a_side_door() -> None:
    """docs/design/README.md#folders: no clock, log, randomness or socket, nor by way of another module."""
    assert [
        f"{way} imports {word}"
        for name in modules()
        if is_of(name, PURE) and name not in BORDERS
        for other, way in reached(name, name).items()
        for word in sorted(outside(modules()[other]) & WORLD)
    ] == []


# --- sizes ----------------------------------------------------------------------------------------

MOST_ATTRIBUTES = 40


def attributes(node: ast.ClassDef) -> set[str]:
    """What the instances of a class have: fields, and whatever a method assigns to `self`."""
    fields = {
        child.target.id
        for child in node.body
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name)
    }
    stored = {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and ast.unparse(part.value) == "self"
    }
    return fields | stored


def test_no_class_is_several_classes() -> None:
    """docs/design/README.md#figures: a class with more than forty attributes is several.

    But for the table of keys, which has one for each key that a config file may have.
    """
    large = {
        f"{name}.{node.name}": len(attributes(node))
        for name, path in modules().items()
        if name != "config.model"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and len(attributes(node)) > MOST_ATTRIBUTES
    }
    assert large == {}
