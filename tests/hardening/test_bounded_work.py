"""The largest input that each limit lets through is dealt with in little time, and what is larger is refused.

docs/behaviour.md#size-limits: nothing that a client or a server sends holds up everybody else for more than 20 ms.
Measured in CPU time of the thread, the best of three, with a factor for slow machines: what these replace took seconds
to minutes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from muxway.catalog import uris
from muxway.catalog.uris import UriFilter
from muxway.likeness import LONGEST_COMPARED, most_like, short
from muxway.protocol.headers import MOST_ANNOTATIONS, BadAnnotation, param_headers

from ..catalog.making import catalog_of, source

if TYPE_CHECKING:
    from collections.abc import Callable

ALLOWED = 0.02
SLACK = 5


def cpu(work: Callable[[], object]) -> float:
    """Seconds of CPU time that this takes at best."""
    best = 60.0
    for _ in range(3):
        began = time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
    return best


# --- headers that a tool asks for -------------------------------------------------------------


def annotated(count: int) -> dict[str, Any]:
    """A schema that asks for so many headers."""
    return {"properties": {f"p{n}": {"type": "string", "x-mcp-header": f"H{n}"} for n in range(count)}}


def test_a_tool_may_ask_for_as_many_headers_as_a_request_may_have() -> None:
    """docs/behaviour.md#size-limits: 100 at most; a tool that asks for more is not offered."""
    assert len(param_headers(annotated(MOST_ANNOTATIONS))) == MOST_ANNOTATIONS == 100
    for count in (MOST_ANNOTATIONS + 1, 16_000):
        schema = annotated(count)
        with pytest.raises(BadAnnotation, match="more than 100 times"):
            param_headers(schema)


def test_many_annotations_cost_no_more_than_reading_them() -> None:
    def refused() -> None:
        with pytest.raises(BadAnnotation):
            param_headers(schema)

    schema = annotated(16_000)
    assert cpu(refused) < ALLOWED * SLACK


# --- URIs and filters -------------------------------------------------------------------------

FILTER = UriFilter(("*",), ("file:///x*", "*secret*", "a*b*c*d*"))


def fill(unit: str, before: str = "file:///") -> str:
    """The longest URI that is looked at, made of this."""
    return before + unit * ((uris.LONGEST - len(before)) // len(unit))


WRAPPED = "muxway://a/+" * 3
URIS = {
    "wrapped": fill("muxway://a/+", ""),
    "wrapped three times, encoded three times": fill("é%252541", WRAPPED),
    "encoded": fill("%41"),
    "dots": fill("a/../"),
    "backslashes": fill("\\"),
    "slashes": fill("/", "file:"),
    "letters": fill("abc"),
}


@pytest.mark.parametrize("uri", URIS.values(), ids=URIS)
def test_a_filter_judges_the_longest_uri_in_little_time(uri: str) -> None:
    assert cpu(lambda: FILTER.shows(uri)) < ALLOWED * SLACK


def test_what_is_wrapped_too_often_or_too_long_is_not_shown_where_there_is_a_filter() -> None:
    """docs/behaviour.md#size-limits: what cannot be read in every way is hidden, at once and however deep it is."""
    assert FILTER.shows(WRAPPED + "file:///y")
    assert not FILTER.shows(WRAPPED + "file:///x")
    for levels in (4, 100, 900, 5_000, 300_000):
        uri = "muxway://a/+" * levels + "file:///y"
        assert cpu(lambda uri=uri: FILTER.shows(uri)) < ALLOWED * SLACK
        assert not FILTER.shows(uri)
    assert FILTER.shows(fill("y"))
    assert not FILTER.shows(fill("y") * 2)


# --- names ------------------------------------------------------------------------------------


def test_the_nearest_of_ten_thousand_names_is_found_in_little_time() -> None:
    """docs/errors.md: an unknown name is answered with the nearest ones."""
    names = [f"server{n % 20}__get_item_{n:05}" for n in range(10_000)]
    assert most_like("server3__get_itm_01003", names, 3, 0.6)[0] == "server3__get_item_01003"
    assert most_like("sever3__get_item_01003", names, 3, 0.6)[0] == "server3__get_item_01003"
    assert cpu(lambda: most_like("server3__get_itm_01003", names, 3, 0.6)) < ALLOWED * SLACK


def test_names_made_to_be_compared_for_long_are_compared_in_little_time() -> None:
    alike = [f"{'ab' * (LONGEST_COMPARED // 2 - 2)}{n:04}" for n in range(10_000)]
    assert cpu(lambda: most_like("ba" * (LONGEST_COMPARED // 2), alike, 3, 0.1)) < ALLOWED * SLACK
    assert most_like("a" * (LONGEST_COMPARED + 1), ["a" * LONGEST_COMPARED], 3, 0.6) == []


def test_a_name_of_megabytes_is_not_sent_back_whole() -> None:
    """docs/behaviour.md#size-limits: names are cut in messages."""
    catalog = catalog_of(source("s", "echo"))
    name = "s__" + "x" * 4_000_000
    assert cpu(lambda: (catalog.find(name), catalog.nearest(name))) < ALLOWED * SLACK
    assert catalog.find(name).problem == f"Tool not found: {short(name)}"
    assert len(short(name)) == 200
