"""Compound tools: what they look like, what they run, and what they refuse."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from muxway.catalog.build import Source, build
from muxway.catalog.model import NativeTool
from muxway.catalog.naming import Naming
from muxway.composed.own_tools import OwnTools, source
from muxway.config.model import CustomTool, SubTool
from muxway.errors import InvalidParams
from muxway.routing.subtools import Choice, choose
from muxway.wire import envelopes

from ..exchange.faking import FakeLink, World, answers, member, offer

RESEARCH = CustomTool(
    name="Research",
    description="Looks things up.",
    subtools={
        "web": (SubTool(name="search", description="Search the web."), SubTool(name="fetch")),
        "wiki": (SubTool(name="search", description="Search the wiki."),),
    },
)
TOOLS = {"Research": RESEARCH}
LISTED = "web/search, web/fetch, wiki/search"


def chosen(arguments: bytes | None) -> Choice:
    """What a call with these arguments asks for."""
    return choose(TOOLS, "Research", None if arguments is None else Raw(arguments))


def test_a_compound_tool_lists_its_subtools_and_allows_nothing_else() -> None:
    """docs/configuration.md#compound-tools: the description lists its subtools, the schema has them as enums."""
    (route,) = build(Naming(), [source([RESEARCH])]).routes.values()
    assert route.public == "Research"
    assert route.upstream == ""
    assert route.describe() == {
        "name": "Research",
        "description": "Looks things up.\n\nSubtools:\n"
        "- server web, tool search: Search the web.\n- server web, tool fetch\n"
        "- server wiki, tool search: Search the wiki.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "server": {"type": "string", "enum": ["web", "wiki"], "description": "Server that has the tool."},
                "tool": {"type": "string", "enum": ["search", "fetch"], "description": "Tool to run on that server."},
                "args": {"type": "object", "description": "Arguments of that tool."},
            },
            "required": ["server", "tool"],
        },
    }


QUERY = {"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "integer"}}, "required": ["q"]}


def servers(**schemas: object) -> list[Source]:
    """Parts of the catalog: server_tool=schema."""
    natives = {
        name: NativeTool(name.partition("_")[2], {"inputSchema": Raw(json.dumps(schema).encode())})
        for name, schema in schemas.items()
    }
    return [Source(upstream=name.partition("_")[0], tools=[tool], prefix="") for name, tool in natives.items()]


def test_the_model_is_told_what_each_subtool_takes() -> None:
    """Ours: docs/configuration.md: signatures of the subtools whose servers are known, and their schemas if small."""
    own = OwnTools([RESEARCH])
    parts = servers(web_search=QUERY, web_fetch={"type": "object"}, wiki_search=QUERY)
    [tool] = own.source(parts).tools
    description = envelopes.text(tool.members["description"]) or ""
    assert "- server web, tool search(q: string, n?: integer): Search the web." in description
    assert "- server web, tool fetch()\n" in description
    args = envelopes.value(tool.members["inputSchema"])["properties"]["args"]
    assert [one["title"] for one in args["anyOf"]] == ["web search", "web fetch", "wiki search"]
    assert args["anyOf"][0]["required"] == ["q"]
    # Nothing has changed, so nothing is made anew.
    assert own.source(parts) is own.source(parts)
    [fewer] = own.source(parts[:1]).tools
    assert "tool fetch\n" in (envelopes.text(fewer.members["description"]) or "")
    assert "anyOf" not in envelopes.value(fewer.members["inputSchema"])["properties"]["args"]


@pytest.mark.parametrize("size", [10, 1000, 5000])
def test_what_is_told_of_subtools_is_bounded(size: int) -> None:
    """Ours: a schema of any size costs the model a few lines."""
    large = {"type": "object", "properties": {f"argument_{n}": {"type": "string"} for n in range(size)}}
    [tool] = OwnTools([RESEARCH]).source(servers(web_search=large, web_fetch=large, wiki_search=large)).tools
    assert len(tool.members["description"]) < 4096
    assert len(tool.members["inputSchema"]) < 4096 + 1024


def test_compound_tools_come_first_in_the_order_of_the_configuration() -> None:
    """Ours: the owner's own tools are what the model should see first."""
    other = CustomTool(name="Other", description="", subtools={"web": (SubTool(name="fetch"),)})
    catalog = build(Naming(), [source([RESEARCH, other]), offer("web", "search")])
    assert list(catalog.routes) == ["Research", "Other", "web__search"]
    assert catalog.routes["Other"].describe()["description"] == "Subtools:\n- server web, tool fetch"


def test_the_named_subtool_is_chosen_with_its_arguments_untouched() -> None:
    """docs/configuration.md#compound-tools: runs the named subtool with its arguments, byte for byte."""
    choice = chosen(b'{"server":"wiki","tool":"search","args":{ "q" : 1E5,"n":null}}')
    assert (choice.upstream, choice.tool, bytes(choice.args)) == ("wiki", "search", b'{ "q" : 1E5,"n":null}')


def test_no_args_are_empty_args() -> None:
    """Ours: `args` is not required."""
    assert bytes(chosen(b'{"server":"web","tool":"fetch"}').args) == b"{}"


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (None, "nothing"),
        (b"{}", "nothing"),
        (b'{"server":"web"}', "nothing"),
        (b'{"tool":"search"}', "nothing"),
        (b'{"server":null,"tool":"search"}', "nothing"),
        (b'{"server":["web"],"tool":"search"}', "nothing"),
        (b'{"server":"web","tool":7}', "nothing"),
        (b'{"server":"","tool":"search"}', "nothing"),
        (b'{"server":"web","tool":"delete"}', "web/delete"),
        (b'{"server":"wiki","tool":"fetch"}', "wiki/fetch"),
        (b'{"server":"mail","tool":"search"}', "mail/search"),
        (b'{"server":"Web","tool":"search"}', "Web/search"),
    ],
)
def test_what_is_not_listed_is_refused_with_what_is(arguments: bytes | None, asked: str) -> None:
    """docs/configuration.md#compound-tools: anything else is refused with the list."""
    with pytest.raises(InvalidParams) as caught:
        chosen(arguments)
    assert str(caught.value) == (
        f"Research cannot run {asked}: give arguments.server and arguments.tool as one of: {LISTED}"
    )


@pytest.mark.parametrize("args", [b"null", b"[]", b'"{}"', b"1"])
def test_args_that_are_no_object_are_refused(args: bytes) -> None:
    """MCP: arguments are an object."""
    with pytest.raises(InvalidParams, match=r"arguments\.args must be an object"):
        chosen(b'{"server":"web","tool":"fetch","args":%s}' % args)


def test_a_call_to_a_compound_tool_reaches_the_subtool() -> None:
    """docs/configuration.md#compound-tools: native name, only `args` as arguments, other params along."""
    link = FakeLink(answers(b'{"content":[]}'))
    world = World({"web": member(link)}, source([RESEARCH]), tools=TOOLS)
    heard = world.call("Research", arguments=b'{"server":"web","tool":"fetch","args":{"u":1.0}}', vendor=b"[ ]")
    assert heard.value == {"content": []}
    assert link.sent[0].params == {"name": b'"fetch"', "arguments": b'{"u":1.0}', "vendor": b"[ ]"}


def test_a_subtool_need_not_be_listed_by_itself() -> None:
    """docs/configuration.md#compound-tools: whether or not it is also shown alone."""
    link = FakeLink(answers(b"{}"))
    world = World({"web": member(link)}, source([RESEARCH]), offer("web"), tools=TOOLS)
    assert world.names() == ["Research"]
    assert world.call("Research", arguments=b'{"server":"web","tool":"fetch"}').value == {}


def test_a_compound_tool_whose_server_is_away_says_which_and_why() -> None:
    """docs/errors.md#-32603-the-server-gave-no-usable-answer: what happened, to whom."""
    world = World({"web": member(absence="it exited with status 1")}, source([RESEARCH]), tools=TOOLS)
    heard = world.call("Research", arguments=b'{"server":"web","tool":"fetch"}')
    assert heard.refusal.message == 'server "web" is not running: it exited with status 1'
    heard = world.call("Research", arguments=b'{"server":"wiki","tool":"search"}')
    assert heard.refusal.message == 'server "wiki" is not running: it is not configured or disabled'
    assert json.loads(json.dumps(heard.refusal.data)) == {"muxway": {"reason": "not_running", "upstream": "wiki"}}


def test_a_server_that_clashes_with_a_compound_tool_is_told_whose_the_name_is() -> None:
    """Ours: the gateway itself has no name to put there."""
    other = Source(upstream="web", tools=[NativeTool("Research", {})], prefix="")
    catalog = build(Naming(), [source([RESEARCH]), other])
    assert any("'Research' is already a tool of the gateway itself" in str(finding) for finding in catalog.findings)
