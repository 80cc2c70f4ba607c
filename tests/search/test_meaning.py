"""Two rankings as one, and what is said where the model is not installed."""

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
    """A model that likes what it is told to like, in this order."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.made = 0

    def vectors(self, definitions: Sequence[bytes]) -> Generator[None, None, Any]:
        """Count the tools."""
        self.made += len(definitions)
        yield
        return [*definitions]

    def nearest(
        self, query: str, names: Sequence[str], parts: Any, limit: int, mask: Sequence[int] | None
    ) -> list[str]:
        """Those that it likes and there are."""
        assert query
        assert sum(map(len, parts)) == len(names)
        there = [name for number, name in enumerate(names) if mask is None or mask[number]]
        return [name for name in self.names if name in there][:limit]


def test_both_rankings_count_by_place() -> None:
    """docs/discovery.md#meaning: what both have comes first, then what one of them has first."""
    model = Likes("s__remember", "s__note")
    index = Index(cast("Meaning", model))
    tools = [tool("s", "note", "Add a note"), tool("s", "notes", "List notes"), tool("s", "remember", "Keep it")]
    follow(index, *tools)
    found = [one.name for one in index.search("note", 5).matches]
    assert found[0] == "s__note"
    assert set(found) == {"s__note", "s__notes", "s__remember"}
    assert [one.name for one in index.search("xylophone", 5).matches] == ["s__remember", "s__note"]
    sees = SeenTools(listed(*tools), {"s__note"})
    assert [one.name for one in index.search("xylophone", 5, sees).matches] == ["s__remember"]
    assert model.made == 3
    follow(index, *tools, tool("t", "other", "Something else"))
    assert model.made == 4, "only of the server that is new"


class Numbers(list[Any]):
    """As much of an array as is needed to compare; a matrix is one of rows."""

    def any(self) -> bool:
        return any(self)

    def __neg__(self) -> Numbers:
        return Numbers(-number for number in self)

    def __matmul__(self, other: Numbers) -> Numbers:
        return Numbers(sum(one * two for one, two in zip(row, other, strict=True)) for row in self)


NUMPY = SimpleNamespace(
    concatenate=lambda parts: Numbers(item for part in parts for item in part),
    argsort=lambda numbers, kind: SimpleNamespace(
        tolist=lambda: sorted(range(len(numbers)), key=lambda at: numbers[at])
    ),
)


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


def test_the_nearest_come_first_and_what_is_not_like_it_never() -> None:
    """docs/discovery.md#meaning: equal ones in the order of names, and nobody finds what is hidden from them."""
    model = Seasons()
    names = ["s__spring", "s__summer", "s__sommer", "t__autumn", "t__nothing"]
    parts = [model.embed(["spring", "summer", "summer"]), model.embed(["autumn", "none of these"])]
    assert model.nearest("summer", names, parts, 9, None) == ["s__summer", "s__sommer", "s__spring"]
    assert model.nearest("summer", names, parts, 2, [1, 0, 1, 1, 1]) == ["s__sommer", "s__spring"]
    assert model.nearest("autumn", names, parts, 9, None) == ["t__autumn", "s__spring"]
    # Drier than anything that rains, and less like spring's rain than what counts at all.
    assert model.nearest("desert", names[3:], parts[1:], 9, None) == []
    assert model.nearest("unknown words", names, parts, 9, None) == []
    assert model.nearest("summer", [], [], 9, None) == []


def test_vectors_are_made_in_short_steps_of_what_tools_say() -> None:
    """docs/discovery.md#limits: no step of the index is long; a tool is its name and how its description begins."""
    model = Seasons()
    tools = [{"name": f"s__tool{number}", "description": "autumn"} for number in range(35)]
    count, rows = ended(model.vectors([json.dumps(one).encode() for one in tools]))
    assert (count, model.steps[1:]) == (3, [16, 16, 3])
    assert [*map(tuple, rows)] == [(0.0, 1.0)] * 35
    assert ended(model.vectors([])) == (0, [])
    said = meaning._said
    assert said(b'{"name":"hub__createIssue_nowHTML5","description":"Open it."}') == "create Issue now HTML 5: Open it."
    assert said(b'{"name":"x","description":7}') == "x: "
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
