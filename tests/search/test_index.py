"""Which tools a query finds, and in which order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muxway.search.index import MOST_TERMS, Index, SeenTools, explained, terms_of
from tests.search.making import follow, listed, tool

TOOLS = (
    tool("hub", "create_issue", "Open a new issue in a repository."),
    tool("hub", "list_issues", "List issues.", {"properties": {"state": {"description": "open or closed"}}}),
    tool("hub", "merge", "Merge a pull request into its branch."),
    tool("sky", "forecast", "Weather of the next days", title="Rain radar"),
    tool("files", "read_text", "Read a file as text."),
    tool("files", "write_text", "Write text to a file."),
)


def index_of(*tools: object) -> Index:
    """An index of these."""
    index = Index()
    follow(index, *tools)  # type: ignore[arg-type]
    return index


def names(index: Index, query: str, limit: int = 5, server: str | None = None) -> list[str]:
    """What a query finds."""
    return [one.name for one in index.search(query, limit, server=server).matches]


def test_tools_are_found_by_each_of_their_fields() -> None:
    """docs/discovery.md#ranking: name, server, title, description, parameters and what is said of them."""
    index = index_of(*TOOLS)
    assert names(index, "creating issues")[0] == "hub__create_issue"
    assert names(index, "sky") == ["sky__forecast"]
    assert names(index, "radar") == ["sky__forecast"]
    assert names(index, "pull request")[0] == "hub__merge"
    assert names(index, "state") == ["hub__list_issues"]
    assert names(index, "closed") == ["hub__list_issues"]
    assert names(index, "xylophone") == names(index, "") == names(index, "…") == []


def test_a_name_counts_more_than_a_description() -> None:
    """docs/discovery.md#ranking."""
    index = index_of(tool("a", "other", "Says what a zebra is."), tool("a", "zebra", "Something."))
    assert names(index, "zebra") == ["a__zebra", "a__other"]


def test_equal_ones_come_in_the_order_of_their_names() -> None:
    """docs/discovery.md#ranking: the same bytes for the same question, whatever the order of servers."""
    tools = [tool("a", name, "Same words.") for name in ("c1", "b1", "a1")]
    assert names(index_of(*tools), "same words") == names(index_of(*reversed(tools)), "same words")
    assert names(index_of(*tools), "same words", limit=2) == ["a__a1", "a__b1"]


def test_a_server_alone_can_be_searched() -> None:
    """docs/discovery.md#what-a-model-sees."""
    index = index_of(*TOOLS, tool("other", "read_text", "Read a file as text."))
    assert set(names(index, "read text file", server="other")) == {"other__read_text"}
    assert names(index, "read", server="none") == []


def test_what_a_caller_does_not_see_is_neither_found_nor_counted() -> None:
    """docs/discovery.md#who-sees-what."""
    index = index_of(*TOOLS)
    for sees in (
        SeenTools(listed(*TOOLS), {"files__read_text"}),
        SeenTools({name: one for name, one in listed(*TOOLS).items() if name != "files__read_text"}),
    ):
        found = index.search("text file", 5, sees)
        assert ([one.name for one in found.matches], found.total) == (["files__write_text"], 1)


def test_what_a_caller_does_not_see_changes_no_place_and_no_score() -> None:
    """docs/discovery.md#who-sees-what: a term that hidden tools have is rarer to who does not see them."""
    seen = [tool("s", "one", "Handles apples."), tool("s", "two", "Handles pears.")]
    unseen = [tool("s", f"hidden_{number}", "Handles apples.") for number in range(5)]
    alone, among = index_of(*seen), index_of(*seen, *unseen)
    for query in ("apples pears", "pears apples", "handles", "hidden apples"):
        for server in (None, "s"):
            found = among.search(query, 5, SeenTools(listed(*seen)), server)
            assert found == alone.search(query, 5, None, server)


def test_what_is_kept_for_callers_has_an_end() -> None:
    """docs/discovery.md#limits: any number of callers, each with other tools."""
    index = index_of(*TOOLS)
    for _ in range(50):
        index.search("text file", 5, SeenTools(listed(*TOOLS)))
    assert len(index._narrowed) <= 8


def test_one_changed_server_rebuilds_its_own_segment_only() -> None:
    """docs/discovery.md#limits: the cost of a change is that of the server which changed."""
    many = [tool(f"s{number}", f"t{number}", f"Does thing {number}.") for number in range(50)]
    index = index_of(*many)
    before = dict(index.segments)
    changed = [tool("s7", "t7", "Plays the xylophone."), *(one for one in many if one.upstream != "s7")]
    follow(index, *changed)
    assert [server for server, segment in index.segments.items() if segment is not before[server]] == ["s7"]
    assert names(index, "xylophone") == ["s7__t7"]
    follow(index, *changed[1:])
    assert names(index, "xylophone") == []


def test_views_share_the_segments_that_are_the_same() -> None:
    """docs/discovery.md#limits: a second view of the same tools takes no second index."""
    one, other = index_of(*TOOLS), Index()
    assert list(other.follow(listed(*TOOLS), [one]))
    assert all(other.segments[server] is segment for server, segment in one.segments.items())


def test_the_scores_of_the_fields_make_the_score() -> None:
    """docs/cli.md: `muxway search --explain`."""
    index = index_of(*TOOLS)
    for query in ("open issue", "text file", "weather radar sky"):
        rarities = index.rarities(query)
        for match in index.search(query, 5).matches:
            shares = explained(listed(*TOOLS)[match.name], rarities)
            assert abs(sum(shares.values()) - match.score) < 1e-4


def test_a_long_query_costs_no_more_than_its_rarest_terms() -> None:
    """docs/discovery.md#limits: at most 32 terms of the first 2,000 characters."""
    many = [tool("s", f"tool{number}", f"word{number} common") for number in range(100)]
    index = index_of(*many)
    long = " ".join(f"word{number}" for number in range(100)) * 1000
    assert len(index.rarities(long)) == MOST_TERMS
    assert len(terms_of("x" * 100_000)) == 1
    assert index.rarities("common word1 word2 word3").keys() == {"word1", "word2", "word3"}


def test_a_query_of_common_words_looks_through_a_few_postings_for_each_tool() -> None:
    """docs/discovery.md#limits: however many of its words a good part of the tools have."""
    # Each word is in a fifth of the tools: under what is left out as common.
    many = [
        tool("s", f"tool{number}", " ".join(f"w{one}x" for one in range(number % 5, 100, 5))) for number in range(100)
    ]
    found = index_of(*many).rarities(" ".join(f"w{one}x" for one in range(100)))
    assert len(found) == 15


@given(st.lists(st.text(max_size=60), max_size=8), st.text(max_size=200), st.integers(1, 20))
def test_any_query_over_any_texts_has_a_stable_answer(texts: list[str], query: str, limit: int) -> None:
    """docs/discovery.md#limits: whatever is asked, of whatever; best first, each once."""
    tools = [tool("s", f"t{number}", text) for number, text in enumerate(texts)]
    index = index_of(*tools)
    found = index.search(query, limit)
    assert found == index.search(query, limit) == index_of(*tools).search(query, limit)
    assert len(found.matches) <= min(limit, found.total)
    scores = [one.score for one in found.matches]
    assert scores == sorted(scores, reverse=True)
    assert len({one.name for one in found.matches}) == len(found.matches)


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=5) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["properties", "description", "title", "type", "x"]), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_definitions_of_any_form_are_indexed(schema: object) -> None:
    """docs/discovery.md#limits: servers may list anything."""
    odd = tool("s", "odd", description=schema, schema=schema, title=schema, annotations=schema)  # type: ignore[arg-type]
    index = index_of(odd, tool("s", "other", "weather"))
    assert "s__other" in names(index, "weather")
