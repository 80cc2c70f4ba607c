"""Two rankings as one, and what is said where the model is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from muxway import Gateway
from muxway.config import parse_config
from muxway.errors import ConfigError
from muxway.search.index import Index, SeenTools
from tests.search.making import follow, listed, tool

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from muxway.search.meaning import Meaning


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
