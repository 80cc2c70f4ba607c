"""Figures on the pages are those of the code: defaults, limits, exit codes.

A figure of the code is found by the name that it has there, wherever that is; `file.NAME` where several have one name.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from typing import TYPE_CHECKING

import click
import pytest

from muxway.cli import cli, exits
from muxway.config.model import GATEWAY, SECTIONS, SERVER, STEP
from tests.docs.pages import ROOT, name_of, pages

if TYPE_CHECKING:
    from collections.abc import Iterator

UNITS = {"KiB": 1024, "MiB": 1024**2, "ms": 0.001, "s": 1, "m": 60, "min": 60, "minutes": 60, "%": 0.01}
_FIGURE = re.compile(rf"(?<![\w.-])(\d[\d,]*(?:\.\d+)?)(?: ?({'|'.join(UNITS)}))?(?![\w-])")
_LINK = re.compile(r"\[([^\]]*)\]\([^)\s]*\)")

_HELD = ["MOST_EACH", "holding.MOST", "MOST_BYTES_EACH", "holding.MOST_BYTES"]

LIMITS: dict[str, dict[str, list[str]]] = {
    "docs/behaviour.md#size-limits": {
        "the body of a POST to `muxway serve`": ["max_body_bytes"],
        "the body of a form for a web page, or of a request to the authorization server": ["_LONGEST_FORM"],
        "one message, either side": ["maxMessageBytes"],
        "waiting for a server that does not read": ["_QUEUE_LIMIT"],
        "waiting for a client that does not read": ["_PAUSE_ABOVE"],
        "a notification or request of a server": ["large.LARGE_MESSAGE", "LARGEST_REQUEST"],
        "the id or method of a message of more than 1 MiB; a batch of a server, or of a client on stdio": [
            "envelopes.LONGEST_ID", "large.LARGE_MESSAGE",
        ],
        "in such a message, the names of its members, and of those of `params`, `_meta` and `error`; blanks in a row, "
        "or digits of one number": ["envelopes.LONGEST_ID", "reading._LONGEST_BLANK"],
        "`name`, `uri`, `ref`, `cursor`, `_meta` of a message of a client on stdio": ["large.LARGE_MESSAGE"],
        "items of an array that `redact`, `secrets` and `truncate` look at one by one": ["MOST_LOOKED_INTO"],
        "the message of a server's error, where it is not passed on but told to logs and middleware": [
            "envelopes._LONGEST_TOLD", "large.LARGE_MESSAGE",
        ],
        "members of a result of more than 128 KiB that middleware looks into": ["MOST_MEMBERS"],
        "levels of arrays and objects in a message": ["depth.MOST"],
        "members of a message, of its `params`, of `_meta`": ["MOST_MEMBERS"],
        "messages of a batch": ["MOST_IN_A_BATCH"],
        "capabilities of a client; its `clientInfo`": ["MOST_INTRODUCTION"],
        "open questions of a server": ["MOST_OPEN", "_MOST_QUESTIONS"],
        "tools of one server": ["maxTools"],
        "one server's list": ["_MAX_PAGES", "_MAX_BYTES"],
        "sessions of `muxway serve`": ["max_sessions", "max_sessions_each"],
        "connections of clients": ["connections"],
        "child processes": ["maxProcesses"],
        "connections to one server beside its first": ["maxInstances", "pool._MOST_EACH"],
        "links of one result that are looked up": ["MOST_LINKS"],
        "calls that wait for answers of stateless clients": _HELD,
        "tasks": [],
        "a log or progress message that `redact` or `secrets` search": [
            "masking._LONG", "_MOST_STRINGS", "masking._LONGER",
        ],
        "arguments of a call that is made again with answers": ["_MOST_FOLDED"],
        "what follows a body in chunks, or what a chunk says of itself": ["header_bytes"],
        "subscriptions of a client": ["subscriptions.MOST"],
        "stderr kept of a child": ["journal._MOST_BYTES", "_LINE_BYTES"],
        "stderr in the log": ["_LINES_PER_SECOND"],
        "headers that a tool asks for (`x-mcp-header`)": ["MOST_ANNOTATIONS"],
        "URIs that filters look at": ["uris.LONGEST", "_MOST_WRAPPINGS"],
        "URIs of resources": ["uris.LONGEST"],
        "resource templates": ["MOST_EXPRESSIONS", "LONGEST_TEMPLATE", "MOST_ALIKE"],
        "the definition of a tool, prompt or resource": ["hygiene.MOST_BYTES"],
        "names in error messages": ["likeness._LONGEST_SHOWN", "LONGEST_COMPARED"],
        "config file": [
            "MAX_FILE_BYTES", "MAX_VALUES", "MAX_TOML_BYTES", "MAX_KEY_PARTS", "MAX_YAML_BYTES", "MAX_ANCHORS",
            "MAX_SERVERS",
        ],
    },
    "docs/questions.md#limits": {
        "a question waits for its answer": ["_ANSWER_SECONDS"],
        "rounds of questions in one call": ["MOST_ROUNDS"],
        "calls waiting for stateless clients": _HELD,
        "open questions": ["MOST_OPEN", "_MOST_QUESTIONS"],
        "what a stateless client keeps (`requestState`)": ["seal._LARGEST"],
    },
    "docs/subscriptions.md#limits": {
        "URIs that a client may be subscribed to": ["subscriptions.MOST"],
        "characters of such a URI": ["_MOST_CHARACTERS"],
        "`subscriptions/listen` open on one pipe": ["_MOST_LISTENS"],
        "a server may take to agree": ["_CONFIRM"],
        "waiting for a client that does not read": ["unsent._ENOUGH"],
    },
    "docs/tasks.md#for-clients-with-the-extension": {
        "the outcome is kept": ["KEPT"],
        "tasks": _HELD,
        "outcomes that are kept": ["MOST_BYTES_EACH", "holding.MOST_BYTES"],
        "a question waits": ["LIFETIME"],
    },
    "docs/configuration.md#timeouts": {
        "`startTimeout`": ["_START", "_FETCHING_START"],
        "`listWait`": [],
        "`listTimeout`": ["listTimeout"],
        "`callTimeout`": ["callTimeout"],
        "`callMax`": ["callMax"],
    },
}  # fmt: skip
"""Table of a page → its rows → the names of the figures in its second column, in their order."""

MEASURED = {"work on one message", "work on many messages at once"}
"""Rows whose figures are those of their tests."""

DEFAULTS_IN_WORDS = {
    "mcpServers.*.isolation": [],
    "mcpServers.*.startTimeout": ["_START", "_FETCHING_START"],
    "mcpServers.*.idleStop": ["_LAZY_IDLE"],
    "gateway.maxNameLength": ["_PORTABLE_LIMIT", "_PLAIN_LIMIT"],
    "gateway.listWait": ["first_listing.LONGEST", "STRAGGLER", "FETCHED"],
    "gateway.stateKey": [],
    "gateway.maxMemory": [],
}
"""Keys whose default depends on something, and the names of the figures in what is said of it."""


def _constants() -> dict[str, set[float]]:
    """Every number that has a name in a module or class, by that name and by `file.NAME`."""
    found: dict[str, set[float]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        bodies = [module.body, *(node.body for node in module.body if isinstance(node, ast.ClassDef))]
        for name, number in (pair for body in bodies for pair in _numbers(body)):
            for known in (name, f"{path.stem}.{name}"):
                found.setdefault(known, set()).add(number)
    return found


def _numbers(body: list[ast.stmt]) -> Iterator[tuple[str, float]]:
    for node in body:
        if isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            parts = [part for part in ast.walk(node.value) if isinstance(part, ast.expr)]
            if isinstance(target, ast.Name) and all(isinstance(part, ast.Constant | ast.BinOp) for part in parts):
                value = eval(compile(ast.Expression(node.value), "", "eval"))
                if isinstance(value, int | float):
                    yield target.id, float(value)


CONSTANTS = _constants()


def figure(name: str) -> float:
    """The figure of the code that has this name: that of a constant, or the default of a key."""
    row = GATEWAY.by_spelling.get(name) or SERVER.by_spelling.get(name)
    if row is not None:
        assert isinstance(row.default, int | float)
        return float(row.default)
    values = CONSTANTS.get(name, set())
    assert len(values) == 1, f"{name} is the name of {sorted(values)}: write `file.NAME`"
    return next(iter(values))


def figures(text: str) -> list[float]:
    """The figures in a text, in bytes and seconds."""
    plain = _LINK.sub(r"\1", text)
    return [float(number.replace(",", "")) * UNITS.get(unit, 1) for number, unit in _FIGURE.findall(plain)]


def rows(place: str) -> Iterator[list[str]]:
    """The rows of the tables below a heading, as cells."""
    page, _, heading = place.partition("#")
    text = (ROOT / page).read_text(encoding="utf-8")
    for part in re.split(r"^##+ ", text, flags=re.MULTILINE)[1:]:
        if part.partition("\n")[0].lower().replace(" ", "-") == heading:
            yield from (
                _LINK.sub(r"\1", line).strip("| ").split(" | ") for line in part.splitlines() if line[:1] == "|"
            )


@pytest.mark.parametrize("place", LIMITS)
def test_a_documented_limit_is_that_of_the_code(place: str) -> None:
    """Ours: a figure on a page is a promise. A row that is added to such a table needs its name here."""
    head = {"Limit", "Key", "---"}
    documented = {cells[0]: figures(cells[1]) for cells in rows(place) if len(cells) > 1 and cells[0] not in head}
    ours = {row: [figure(name) for name in names] for row, names in LIMITS[place].items()}
    with_figures = {row: found for row, found in documented.items() if found or row in ours}
    assert {row: found for row, found in with_figures.items() if row not in MEASURED} == ours


@pytest.mark.parametrize(
    ("place", "doc"),
    [
        (f"{section.name}.{row.key}", row.doc)
        for section in SECTIONS
        for row in section.fields
        if "Default: " in row.doc
    ],
)
def test_a_default_that_is_told_in_words_is_that_of_the_code(place: str, doc: str) -> None:
    """Ours: other defaults are written by `docs/generate.py`, which asks the code."""
    told = doc.partition("Default: ")[2]
    assert figures(told) == [figure(name) for name in DEFAULTS_IN_WORDS[place]]


def test_a_figure_in_the_documentation_of_a_key_is_that_of_the_code() -> None:
    """Ours: what is no default."""
    assert figures(GATEWAY.by_spelling["maxMemory"].doc) == [figure("SHED_SESSIONS"), figure("SHED_CALLS")]
    assert figures(STEP.by_spelling["maxItems"].doc) == [figure("MOST_ITEMS")]


def test_a_figure_beside_its_key_is_the_default_of_that_key() -> None:
    """Ours: "16 MiB (`maxMessageBytes`)", "`maxItems` (50, …"."""
    defaults: dict[str, list[object]] = {}
    for row in (row for section in SECTIONS for row in section.fields):
        defaults.setdefault(row.key, []).append(row.default)
    found: list[tuple[str, str, str]] = []
    for page in pages():
        if "decisions" in page.parts:
            continue  # what was decided then
        text = page.read_text(encoding="utf-8")
        before = re.findall(r"(\d[\d,.]*(?: ?[A-Za-z]+)?)(?: [a-z ]{,20})? \(`(\w+)`\)", text)
        after = re.findall(r"`(\w+)` \((\d[\d,.]*(?: ?[A-Za-z]+)?)[,;)]", text)
        found += [(name_of(page), told, key) for told, key in before + [(told, key) for key, told in after]]
    wrong = [one for one in found if one[2] in defaults and figures(one[1])[0] not in defaults[one[2]]]
    assert wrong == []
    assert len(found) > 5


def test_the_exit_codes_are_those_of_the_code() -> None:
    """docs/cli.md: what programs go by. 2 is click's own."""
    known = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)} | {0, 2}
    documented = re.findall(r"^\| (\d+) \| ", (ROOT / "docs/cli.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [*map(int, documented)] == sorted(known)
    told = {
        int(code) for page in pages() for code in re.findall(r"\b[Ee]xits? (\d+)", page.read_text(encoding="utf-8"))
    }
    assert told <= known


@pytest.mark.parametrize("verb", ["stdio", "serve"])
def test_the_options_of_a_verb_tell_the_defaults_of_their_keys(verb: str) -> None:
    """docs/cli.md: an option wins over a key of the config, and without either the default of the key applies."""
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    compared: list[str] = []
    for option in command.params:
        row = GATEWAY.by_spelling.get(option.name or "")
        told = re.search(r"default: ([^\]]+)\]", getattr(option, "help", None) or "")
        if row is not None and told is not None and isinstance(row.default, str | int | float):
            default = row.default if isinstance(row.default, str) else f"{row.default:g}"
            assert told[1].split(" or ")[-1] == default
            compared.append(row.key)
    assert {"name", "separator", "callTimeout"} <= {*compared}


def test_the_time_that_calls_get_at_the_end_is_that_of_the_code() -> None:
    """docs/cli.md: at Ctrl-C and SIGTERM."""
    told = re.findall(r"Running calls get (\d+)\s+seconds", (ROOT / "docs/cli.md").read_text(encoding="utf-8"))
    assert {*map(float, told)} == {figure("ending.DRAIN")}


OPTIONS = [page.stem for page in pages() if "| Option | Default |" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", OPTIONS)
def test_the_options_of_a_middleware_are_those_of_the_code(name: str) -> None:
    """docs/middleware: every option, and its default where that is a value."""
    kind = getattr(importlib.import_module(f"muxway.middleware.builtin.{name}"), name.capitalize())
    given = inspect.signature(kind).parameters
    page = (ROOT / f"docs/middleware/{name}.md").read_text(encoding="utf-8")
    table = page.partition("| Option | Default |")[2].partition("\n\n")[0]
    documented = dict(re.findall(r"^\| `(\w+)` \| (.*?) ?\| ", table, re.MULTILINE))
    assert documented.keys() == given.keys() - {"known_secrets"}
    for option, told in documented.items():
        default = figure("_TOKENS") if (name, option) == ("truncate", "tokens") else given[option].default
        if default is inspect.Parameter.empty:
            assert told == "must be given"
        elif re.fullmatch(r"`[^`]+`", told):
            assert json.loads(told.strip("`")) == (list(default) if isinstance(default, tuple) else default)
        elif told == "none":
            assert not default
