"""Counts how large and how winding the code is: lines, classes, words, and the way of a call through the files.

    .venv/bin/python docs/design/figures.py [--src PATH]

With `--src` the source of another checkout is counted by the same rules. The way of a call is not read but measured: a
gateway runs with a profiler, peers of `tests/golden` call through it, and what it enters between the first byte of a
request and the last of its answer counts. What comes by chance, like a timer, is not in each of several calls, and so
does not.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import argparse
import ast
import asyncio
import atexit
import json
import os
import re
import runpy
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import FrameType

ROOT: Final = Path(__file__).resolve().parents[2]
CALLS: Final = 100
"""How often a call is made: so often that what is done every few milliseconds is not in each of them. On a busy
machine it may be all the same, so compare figures of one quiet run."""
WARM_UPS: Final = 3
"""Calls on a new connection that do not count: what is found out with the first of them holds for the others."""
BOTH: Final = "application/json, text/event-stream"
PARKED: Final = 20
"""How often one is made that is parked for a moment, and so is longer than a timer's pause."""
TOP: Final = 10
WIRE: Final = ("protocol/", "wire/")
"""Where it is known how messages are written: who is on the way asks there."""


# --- read from the source -------------------------------------------------------------------------


@dataclass(frozen=True)
class Class:
    """What is counted of a class."""

    name: str
    file: str
    attributes: int
    methods: int


def classes(source: Path) -> list[Class]:
    """Every class of muxway."""
    return [
        Class(node.name, path.relative_to(source).as_posix(), len(attributes(node)), len(list(methods(node))))
        for path in sorted(source.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]


def methods(node: ast.ClassDef) -> Iterable[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions in the body of a class, properties too."""
    return (child for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def attributes(node: ast.ClassDef) -> set[str]:
    """What the instances of a class have: fields, slots, and whatever a method assigns to `self`."""
    found: set[str] = set()
    for child in node.body:
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            if "ClassVar" not in ast.unparse(child.annotation):
                found.add(child.target.id)
        elif isinstance(child, ast.Assign) and "__slots__" in [ast.unparse(target) for target in child.targets]:
            found |= {part.value for part in ast.walk(child.value) if isinstance(part, ast.Constant)}
    for part in (part for method in methods(node) for part in ast.walk(method)):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and ast.unparse(part.value) == "self":
            found.add(part.attr)
    return found


def lines(source: Path) -> int:
    """Lines of Python."""
    return sum(len(path.read_bytes().splitlines()) for path in source.rglob("*.py"))


def changed_by_reload(source: Path) -> list[str]:
    """What `Gateway.apply` changes: each thing it assigns to or tells something, itself or in a method of its own."""
    gateways = [
        node
        for path in source.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == "Gateway"
    ]
    own = {method.name: method for node in gateways for method in methods(node)}
    found: dict[str, None] = {}
    looked: set[str] = set()

    def look(name: str) -> None:
        looked.add(name)
        for part in ast.walk(own[name]):
            if isinstance(part, ast.Assign):
                targets = [one for one in part.targets if isinstance(one, ast.Attribute | ast.Subscript)]
                found.update(dict.fromkeys(map(ast.unparse, targets)))
            elif isinstance(part, ast.Expr):
                call = part.value.value if isinstance(part.value, ast.Await) else part.value
                if not isinstance(call, ast.Call):
                    continue
                told = ast.unparse(call.func)
                if (inner := told.removeprefix("self.")) in own:
                    if inner not in looked and not inner.startswith("_check"):
                        look(inner)
                elif isinstance(call.func, ast.Attribute):
                    found[told] = None

    look("apply")
    return list(found)


def keepers_of_starting(source: Path) -> list[str]:
    """The attributes that keep whether a server is being started: a flag of that name, or a state out of a table."""
    found: dict[str, None] = {}
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef):
                continue
            for part in (part for method in methods(node) for part in ast.walk(method)):
                if isinstance(part, ast.Assign) and isinstance(target := part.targets[0], ast.Attribute):
                    value = ast.unparse(part.value)
                    flag = "starting" in target.attr and "create_task" not in value
                    if flag or re.match(r"(Status|State)\.", value):
                        found[f"{node.name}.{target.attr}"] = None
    return list(found)


def words(page: Path) -> list[str]:
    """The words of our own: the first column of the table under “Words” of the design page."""
    part = re.search(r"^## Words\n(.*?)^## ", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (.+?) \|", part[1], re.MULTILINE) if part else []
    return [word.strip() for row in rows[1:] for word in row.split(",")]


# --- measured -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """What a gateway did for a call, each time that it was made."""

    files: list[str]
    """What it entered, in the order of the first time."""
    envelopes: int
    """Envelopes it decoded."""
    decodes: int
    """JSON it decoded, of any kind."""

    @property
    def stations(self) -> int:
        """Files but for those that only know how messages are written."""
        return sum(not file.startswith(WIRE) for file in self.files)


def run_profiled(out: Path, arguments: list[str]) -> None:
    """Be `muxway ARGUMENTS`, and write down which functions of it are entered and what JSON is decoded, and when.

    The clock is that of the machine, so that another process can tell what belongs to its call.
    """
    import msgspec

    import muxway

    home = str(Path(muxway.__file__).parent) + os.sep
    entered: list[tuple[int, str, str]] = []

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_filename.startswith(home):
                entered.append((time.monotonic_ns(), "call", code.co_filename[len(home) :]))
        elif event == "c_call":
            decoder = getattr(arg, "__self__", None)
            if isinstance(decoder, msgspec.json.Decoder):
                kind = getattr(decoder.type, "__name__", "")
                entered.append((time.monotonic_ns(), "decode", kind))

    def stop() -> None:
        sys.setprofile(None)
        out.write_text(json.dumps(entered))

    atexit.register(stop)
    sys.argv = ["muxway", *arguments]
    sys.setprofile(note)
    runpy.run_module("muxway", run_name="__main__")


async def measured(walk: Callable[[Any, list[tuple[int, int]]], Awaitable[None]], envelope: str) -> Way:
    """Go a walk with a profiled gateway; the walk says when each of its calls began and ended."""
    from tests.golden.stage import a_stage

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "entered")
        spans: list[tuple[int, int]] = []
        async with a_stage("", (sys.executable, __file__, "--profiled", str(out))) as stage:
            await walk(stage, spans)
        return way(out, spans, envelope)


def way(out: Path, spans: list[tuple[int, int]], envelope: str) -> Way:
    """What was entered in every one of some spans of time."""
    entered: list[tuple[int, str, str]] = json.loads(out.read_text())
    times = [[event for event in entered if begin <= event[0] <= end] for begin, end in spans]
    always = set.intersection(*({name for _, kind, name in one if kind == "call"} for one in times))
    decoded = [[name for _, kind, name in one if kind == "decode"] for one in times]
    return Way(
        [file for file in dict.fromkeys(name for _, kind, name in times[-1] if kind == "call") if file in always],
        min(sum(bool(re.search(envelope, name)) for name in one) for one in decoded),
        min(map(len, decoded)),
    )


async def call_over_pipes(stage: Any, spans: list[tuple[int, int]]) -> None:
    """stdio → stdio"""
    from tests.golden import walks

    client, alpha = await walks.both_met(stage, "2025-11-25", "2025-11-25", walks.ECHO)
    for number in range(CALLS):
        begin = time.monotonic_ns()
        client.say(walks.raw_call(f"x{number}"))
        alpha.say(walks.raw_answer(await alpha.hear()))
        await client.hear()
        spans.append((begin, time.monotonic_ns()))


async def call_over_http(stage: Any, spans: list[tuple[int, int]]) -> None:
    """HTTP → HTTP"""
    from tests.golden import walks

    server, client = await _over_http(stage)
    await client.hello("2025-11-25")
    line = await _Line.open(stage, client.headers)
    for number in range(WARM_UPS + CALLS):
        begin = time.monotonic_ns()
        line.post(walks.raw_call(f"x{number:04}"))
        request = await server.request(of="tools/call")
        request.respond(200, walks.raw_answer(request.message))
        await line.answer()
        if number >= WARM_UPS:
            spans.append((begin, time.monotonic_ns()))
    line.close()


async def parked_over_pipes(stage: Any, spans: list[tuple[int, int]]) -> None:
    """stdio → stdio, parked"""
    from tests.golden import walks
    from tests.golden.stage import modern

    client, alpha = await _both_met(stage)
    params = modern({"name": "alpha__echo"}, walks.ASKABLE)
    for number in range(PARKED):
        begin = time.monotonic_ns()
        client.say({"jsonrpc": "2.0", "id": f"x{number}", "method": "tools/call", "params": params})
        request = await alpha.hear()
        alpha.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": walks.ELICIT})
        asked = (await client.hear())["result"]
        given = dict.fromkeys(asked["inputRequests"], walks.ANN)
        again = {**params, "inputResponses": given, "requestState": asked["requestState"]}
        client.say({"jsonrpc": "2.0", "id": f"y{number}", "method": "tools/call", "params": again})
        await alpha.hear()
        alpha.say(walks.raw_answer(request))
        await client.hear()
        spans.append((begin, time.monotonic_ns()))


async def parked_over_http(stage: Any, spans: list[tuple[int, int]]) -> None:
    """HTTP → HTTP, parked"""
    from tests.golden import walks
    from tests.golden.stage import MODERN, encoded, modern

    server, _ = await _over_http(stage)
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "alpha__echo"}
    line = await _Line.open(stage, headers)
    params = modern({"name": "alpha__echo"}, walks.ASKABLE)
    for number in range(WARM_UPS + PARKED):
        begin = time.monotonic_ns()
        line.post(encoded({"jsonrpc": "2.0", "id": f"x{number}", "method": "tools/call", "params": params}))
        request = await server.request(of="tools/call")
        request.stream()
        request.event({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": walks.ELICIT})
        asked = json.loads(await line.answer())["result"]
        given = dict.fromkeys(asked["inputRequests"], walks.ANN)
        again = {**params, "inputResponses": given, "requestState": asked["requestState"]}
        line.post(encoded({"jsonrpc": "2.0", "id": f"y{number}", "method": "tools/call", "params": again}))
        (await server.request()).respond(202)
        request.event({"jsonrpc": "2.0", "id": request.message["id"], "result": {"content": []}})
        request.end()
        await line.answer()
        if number >= WARM_UPS:
            spans.append((begin, time.monotonic_ns()))
    line.close()


class _Line:
    """A connection of a client that it keeps, with the same headers each time, as clients do.

    Those of the walks open one for each request.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        self._reader, self._writer, self._head = reader, writer, head

    @classmethod
    async def open(cls, stage: Any, headers: dict[str, str]) -> _Line:
        """Connect to the gateway."""
        every = {"Host": "127.0.0.1", "Content-Type": "application/json", "Accept": BOTH, **headers}
        head = "".join(("POST /mcp HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in every.items())))
        return cls(*await asyncio.open_connection("127.0.0.1", stage.port), head.encode())

    def post(self, body: bytes) -> None:
        """Send a message."""
        self._writer.write(b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body))

    async def answer(self) -> bytes:
        """The body of the next answer."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        return await self._reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


async def _both_met(stage: Any) -> tuple[Any, Any]:
    """A stateless client and a server with a handshake that know each other, over pipes."""
    from tests.golden import walks
    from tests.golden.stage import modern

    server = await stage.line_server("alpha")
    stage.configure({"alpha": server.entry()})
    client = await stage.stdio()
    params = modern(capabilities=walks.ASKABLE)
    client.say({"jsonrpc": "2.0", "id": "c0", "method": "tools/list", "params": params})
    alpha = await server.started()
    await walks.meet(alpha, "2025-11-25", walks.ECHO)
    # The server is asked something before its first call. Not by 0.1, which answers the client at once.
    listed, asked = asyncio.ensure_future(client.hear()), asyncio.ensure_future(alpha.hear())
    await asyncio.wait((listed, asked), return_when=asyncio.FIRST_COMPLETED)
    if asked.done():
        alpha.answer(asked.result(), {})
    else:
        asked.cancel()
        await asyncio.wait((asked,))
    await listed
    return client, alpha


async def _over_http(stage: Any) -> tuple[Any, Any]:
    """A server on loopback that is ready, and a client."""
    from tests.golden import walks

    server = await stage.http_server("alpha")
    stage.configure({"alpha": server.entry()})
    await stage.serve()
    await walks.meet_http(server, "2025-11-25", walks.ECHO)
    await stage.ready()
    return server, stage.client()


# --- shown ----------------------------------------------------------------------------------------


def report(source: Path, envelope: str) -> str:
    """Everything, as Markdown."""
    found = classes(source)
    twice = [name for name, times in Counter(one.name for one in found).items() if times > 1]
    glossary = words(source.parents[1] / "docs" / "design" / "README.md")
    most_attributes = sorted(found, key=lambda one: -one.attributes)[:TOP]
    most_methods = sorted(found, key=lambda one: -one.methods)[:TOP]
    walks = (call_over_pipes, call_over_http, parked_over_pipes, parked_over_http)
    ways = {walk.__doc__ or "": asyncio.run(measured(walk, envelope)) for walk in walks}
    pipes, http, parked, parked_http = ways.values()
    rows = {
        "files a call enters, stdio → stdio / HTTP → HTTP": f"{len(pipes.files)} / {len(http.files)}",
        "of them outside `wire` (0.1: `protocol`)": f"{pipes.stations} / {http.stations}",
        "envelope parses, stdio → stdio / HTTP → HTTP": f"{pipes.envelopes} / {http.envelopes}",
        "JSON decodes of any kind, stdio → stdio / HTTP → HTTP": f"{pipes.decodes} / {http.decodes}",
        "files a parked call enters, stdio / HTTP": f"{len(parked.files)} / {len(parked_http.files)}",
        "of these outside `wire` (0.1: `protocol`)": f"{parked.stations} / {parked_http.stations}",
        "things that a reload assigns to or tells": str(len(changed_by_reload(source))),
        "attributes that keep whether a server is starting": str(len(keepers_of_starting(source))),
        "words of our own": str(len(glossary)),
        "lines in `src`": f"{lines(source):,}",
        "files in `src`": str(len(list(source.rglob("*.py")))),
        "class with most attributes / methods": f"{most_attributes[0].attributes} / {most_methods[0].methods}",
        "class names that stand for more than one class": f"{len(twice)}",
    }
    parts = [
        _table(("", ""), rows.items()),
        _table(("Most attributes", ""), ((f"`{one.name}` ({one.file})", one.attributes) for one in most_attributes)),
        _table(("Most methods", ""), ((f"`{one.name}` ({one.file})", one.methods) for one in most_methods)),
        _table(("Name of several classes", ""), ((name, _files(found, name)) for name in sorted(twice))),
        _table(("A reload changes", ""), ((f"`{one}`", "") for one in changed_by_reload(source))),
        _table(("It is starting: who keeps it", ""), ((f"`{one}`", "") for one in keepers_of_starting(source))),
        _table(("Way of a call", "Files, in order"), ((name, ", ".join(way.files)) for name, way in ways.items())),
    ]
    return "\n\n".join(parts) + "\n"


def _files(found: list[Class], name: str) -> str:
    return ", ".join(one.file for one in found if one.name == name)


def _table(head: tuple[str, str], rows: Iterable[tuple[str, object]]) -> str:
    return "\n".join((f"| {head[0]} | {head[1]} |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)))


def main() -> None:
    """Print the figures; or be the gateway that they are measured on."""
    if sys.argv[1:2] == ["--profiled"]:
        run_profiled(Path(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--src", type=Path, default=ROOT / "src", help="the `src` to count (default: the one here)")
    parser.add_argument(
        "--envelope", default="Envelope$", help="what classes are called that envelopes are decoded to (a regex)"
    )
    given = parser.parse_args()
    source: Path = given.src.resolve()
    # For the gateways that are started; the peers are those beside this script.
    os.environ["PYTHONPATH"] = str(source)
    sys.path.insert(0, str(ROOT))
    sys.stdout.write(report(source / "muxway", given.envelope))


main()
