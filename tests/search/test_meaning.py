"""Words and their meaning in one ranking, and what is said where the model is not installed."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest

from muxway import Gateway
from muxway.config import parse_config
from muxway.errors import ConfigError
from muxway.search import meaning
from muxway.search.index import Index, SeenTools
from muxway.search.meaning import Meaning
from tests.search.making import follow, listed, tool

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence


class Likes:
    """A model that likes the tools of some names, that much."""

    def __init__(self, **names: float) -> None:
        self.names = names
        self.made = 0

    def vectors(self, definitions: Sequence[bytes]) -> Generator[None, None, Any]:
        """Count the tools."""
        self.made += len(definitions)
        yield
        return [json.loads(one)["name"] for one in definitions]

    def likeness(self, query: str, parts: Sequence[list[str]]) -> list[float]:
        """As it was told."""
        assert query
        return [] if query == "?" else [self.names.get(name, 0.0) for part in parts for name in part]


def test_words_and_meaning_are_added() -> None:
    """docs/discovery.md#meaning: what has both comes first; what is not like a query is found by its words alone."""
    model = Likes(s__remember=0.42, s__note=0.4, s__notes=-0.2, s__far=0.1)
    index = Index(cast("Meaning", model))
    tools = [tool("s", "note", "Add a note"), tool("s", "notes", "List notes"), tool("s", "remember", "Keep it")]
    far = tool("s", "far", "Something else")
    follow(index, *tools, far)
    found = index.search("note", 5)
    assert {one.name for one in found.matches} == {"s__note", "s__notes", "s__remember"}
    assert found.matches[0].name == "s__note"
    assert found.total == 3
    meant = {one.name: one.meaning for one in found.matches}
    assert meant["s__remember"] > meant["s__note"] > 0 > meant["s__notes"]
    plain = Index()
    follow(plain, *tools, far)
    words = plain.search("note", 5)
    both = {one.name: one.score - one.meaning for one in found.matches}
    assert both == pytest.approx({"s__remember": 0.0, **{one.name: one.score for one in words.matches}})
    assert [one.name for one in index.search("xylophone", 5).matches] == ["s__remember", "s__note"]
    assert [one.name for one in index.search("xylophone", 1).matches] == ["s__remember"]
    sees = SeenTools(listed(*tools, far), {"s__remember"})
    assert [one.name for one in index.search("xylophone", 5, sees).matches] == ["s__note"]
    assert index.search("?", 5).matches == []
    assert model.made == 4
    follow(index, *tools, far, tool("t", "other", "Something else"))
    assert model.made == 5, "only of the server that is new"


def test_a_meaning_finds_so_many_and_no_more() -> None:
    """docs/discovery.md#meaning: nearly every tool is a little like any query."""
    tools = [tool("s", f"t{number:02}", "Something") for number in range(80)]
    index = Index(cast("Meaning", Likes(**{one.public: 0.2 for one in tools})))
    follow(index, *tools)
    found = index.search("xylophone", 60)
    assert (len(found.matches), found.total) == (50, 50)


class Numbers(list[Any]):
    """As much of an array as is needed to compare; a matrix is one of rows."""

    def any(self) -> bool:
        return any(self)

    def tolist(self) -> list[float]:
        return [*self]

    def __matmul__(self, other: Numbers) -> Numbers:
        return Numbers(sum(one * two for one, two in zip(row, other, strict=True)) for row in self)


NUMPY = SimpleNamespace(concatenate=lambda parts: Numbers(item for part in parts for item in part))


class Seasons(Meaning):
    """A model with a vector for each of four words: how warm, and how wet."""

    TABLE: ClassVar = {"summer": (1.0, 0.0), "spring": (0.8, 0.6), "autumn": (0.0, 1.0), "desert": (0.99, -0.14)}

    def __init__(self) -> None:
        self._numpy = NUMPY
        self.steps: list[int] = []

    def embed(self, texts: Sequence[str]) -> Any:
        """By the first word that is known."""
        self.steps.append(len(texts))
        words = ([word for word in text.replace(":", " ").split() if word in self.TABLE] for text in texts)
        return Numbers(Numbers(self.TABLE[known[0]] if known else (0.0, 0.0)) for known in words)


def ended(steps: Generator[None, None, Any]) -> tuple[int, Any]:
    """How many steps there were, and what they made."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        count += 1


def test_how_much_tools_are_like_a_query() -> None:
    """docs/discovery.md#meaning: one number for each tool, in the order of the list."""
    model = Seasons()
    parts = [model.embed(["spring", "summer"]), model.embed(["autumn", "none of these"])]
    assert model.likeness("summer", parts) == [0.8, 1.0, 0.0, 0.0]
    assert model.likeness("autumn", parts) == [0.6, 0.0, 1.0, 0.0]
    assert model.likeness("desert", parts[1:]) == [-0.14, 0.0]
    assert model.likeness("unknown words", parts) == []
    assert model.likeness("summer", []) == []


def test_vectors_are_made_in_short_steps_of_what_tools_say() -> None:
    """docs/discovery.md#limits: no long step; a tool is its name, how its description begins, its parameters."""
    model = Seasons()
    tools = [{"name": f"s__tool{number}", "description": "autumn"} for number in range(35)]
    count, rows = ended(model.vectors([json.dumps(one).encode() for one in tools]))
    assert (count, model.steps[1:]) == (3, [16, 16, 3])
    assert [*map(tuple, rows)] == [(0.0, 1.0)] * 35
    assert ended(model.vectors([])) == (0, [])
    said = meaning._said
    assert said(b'{"name":"hub__createIssue_nowHTML5","description":"Open it."}') == "create Issue now HTML 5: Open it."
    assert said(b'{"name":"x","description":7}') == "x: "
    assert said(b'{"name":"x","inputSchema":{"properties":{"user_id":{},"toDay":{}}}}') == "x:  user id to Day"
    assert said(b'{"name":"x","inputSchema":{"properties":[1]}}') == said(b'{"name":"x","inputSchema":1}') == "x: "
    many = {"name": "x", "inputSchema": {"properties": {f"a{number}": {} for number in range(99)}}}
    assert len(said(json.dumps(many).encode()).split()) == 1 + 2 * 20
    assert len(said(json.dumps({"name": "x", "description": "y" * 1000}).encode())) == 303


def test_without_the_extra_it_is_an_error_of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/discovery.md#meaning: said at the start, and not at the first search."""
    monkeypatch.setattr("muxway.search.meaning.is_installed", lambda: False)
    config = parse_config(
        {
            "mcpServers": {"off": {"command": "none", "disabled": True}},
            "gateway": {"discovery": "search", "semantic": True},
        }
    )
    with pytest.raises(ConfigError, match=r"pip install 'muxway\[semantic\]'"):
        Gateway(config)


def test_keys_that_do_nothing_without_search_are_told() -> None:
    """docs/discovery.md#configuration: `pinned` and `tiers` belong to `discovery: search`."""
    off = {"off": {"command": "none", "disabled": True}}
    config = parse_config({"mcpServers": off, "gateway": {"pinned": ["a"]}, "views": {"v": {"tiers": True}}})
    assert [problem.path for problem in config.warnings] == ["gateway.pinned", "views.v.tiers"]
    with pytest.raises(ConfigError, match="discovery"):
        parse_config({"mcpServers": off, "gateway": {"discovery": "some"}})
