"""The largest input that each limit lets through is dealt with in little time, and what is larger is refused.

docs/behaviour.md#size-limits: nothing that a client or a server sends holds up everybody else for more than 20 ms.
Measured in CPU time of the thread, the best of three, with a factor for slow machines: what these replace took seconds
to minutes.
"""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from muxway.calls.call import LIBRARY, Call
from muxway.catalog import uris
from muxway.catalog.build import Source, read_listing
from muxway.catalog.hygiene import MOST_BYTES, is_visible, may_hide, visible
from muxway.catalog.kinds import PROMPTS, TOOLS
from muxway.catalog.model import Native
from muxway.catalog.picking import TooMuch, pick
from muxway.catalog.resources import build_resources
from muxway.catalog.shaping import MOST_VALUES, Shaping
from muxway.catalog.uri_templates import LONGEST_TEMPLATE, MOST_EXPRESSIONS, Template, TemplateIndex
from muxway.catalog.uris import UriFilter
from muxway.composed.evaluation import LARGEST_COMPARED, StepOutcome, StepScope, Unfit, holds
from muxway.config.templates import parse_condition
from muxway.errors import RpcError
from muxway.likeness import LONGEST_COMPARED, most_like, short
from muxway.middleware.builtin.masking import Masker
from muxway.middleware.builtin.truncate import Truncate
from muxway.middleware.engine.base import Request, Result
from muxway.testing import ScriptedServer
from muxway.wire import envelopes, reading
from muxway.wire.headers import MOST_ANNOTATIONS, BadAnnotation, param_headers

from ..catalog.making import catalog_of, source
from ..conftest import a_world

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


# --- templates --------------------------------------------------------------------------------


def long_templates(count: int, server: str = "s") -> list[tuple[Template, str]]:
    """So many of the worst templates that are matched at all."""
    start = "x:" + "{+a}a" * (MOST_EXPRESSIONS - 1)
    return [(Template(f"{start}{'a' * (LONGEST_TEMPLATE - len(start) - 8)}{n:08}"), server) for n in range(count)]


@pytest.mark.parametrize("unit", ["a", "ab", "a/", "a?#", "é"])
def test_a_uri_is_compared_with_ten_thousand_templates_in_little_time(unit: str) -> None:
    """docs/resources.md: a server may list as many templates as it likes."""
    uri = fill(unit, "x:")
    for templates in (
        long_templates(1_000),
        [(Template(f"x:{'{a}' * 10}{n}"), "s") for n in range(10_000)],
        [(Template("{+a}" * n), "s") for n in range(1, 20)],
        [(Template(f"x:{'a' * n}{{b}}"), "s") for n in range(2_000)],
    ):
        assert cpu(lambda templates=templates: TemplateIndex(templates)._sought(uri)) < 1
        index = TemplateIndex(templates)
        assert cpu(lambda index=index: index._sought(uri)) < ALLOWED * SLACK


def test_a_template_that_is_too_large_is_listed_and_matches_nothing() -> None:
    """docs/resources.md: 16 expressions and 2,048 characters at most."""
    assert Template("x:" + "{a}" * 16).matches("x:a")
    assert not Template("x:" + "{a}" * 17).matches("x:a")
    assert Template("x:" + "a" * 2043 + "{b}").matches("x:" + "a" * 2043)
    assert not Template("x:" + "a" * 2044 + "{b}").matches("x:" + "a" * 2044)
    assert not Template("x:{+a}").matches("x:" + "a" * uris.LONGEST)


def test_one_servers_many_templates_do_not_hide_anothers() -> None:
    """Ours: each server's templates have a budget of their own."""
    index = TemplateIndex([*long_templates(1_000, "bad"), (Template("x:{+a}!"), "good")])
    assert index.owners(fill("a", "x:")[:-1] + "!") == ("good",)


@given(
    st.lists(
        st.sampled_from(["a", "b", "/", "?", "#", ":", "{x}", "{+x}", "{#x}", "{.x}", "{/x}", "{;x}", "{?x}", "{&x}"]),
        min_size=1,
        max_size=6,
    ),
    st.text("ab/?#.;&:", max_size=10),
)
def test_templates_match_what_a_plain_reading_of_them_matches(parts: list[str], uri: str) -> None:
    """RFC 6570 §3.2, widened: for an expression there may be any run up to where the next part of a URI begins."""
    spelled = {
        "{x}": "[^/?#]*", "{+x}": ".*", "{#x}": "(?:#.*)?", "{.x}": r"(?:\.[^/?#]*)?",
        "{/x}": "(?:/[^?#]*)?", "{;x}": "(?:;[^/?#]*)?", "{?x}": r"(?:\?[^#]*)?", "{&x}": "(?:&[^#]*)?",
    }  # fmt: skip
    plain = "".join(spelled.get(part, re.escape(part)) for part in parts)
    matches = re.fullmatch(plain, uri, re.DOTALL) is not None
    template = Template("".join(parts))
    assert template.matches(uri) == matches
    assert TemplateIndex([(template, "s")]).owners(uri) == (("s",) if matches else ())


def test_a_resource_with_a_uri_that_cannot_be_wrapped_is_left_out() -> None:
    """docs/behaviour.md#size-limits: and an unlisted one leads nowhere if there are several servers."""
    long = "x:" + "a" * uris.LONGEST
    natives = [Native("x:a", {}), Native(long, {})]
    catalog = build_resources([Source(upstream=name, prefix=name, resources=natives) for name in "ab"])
    assert [*catalog.resources] == ["x:a", "muxway://b/x%3Aa"]
    assert len([finding for finding in catalog.findings if "left out" in finding.message]) == 2
    assert catalog.find(long) is None
    assert catalog.public_uri("a", long) == long
    huge = "muxway://" + "é" * 4_000_000
    assert cpu(lambda: (catalog.find(huge), catalog.public_uri("a", huge))) < ALLOWED * SLACK


# --- hidden characters ------------------------------------------------------------------------


def listed(**members: Any) -> Raw:
    """A tool with these members besides its name."""
    return Raw(envelopes.encode({"name": "t", "inputSchema": {"type": "object"}, **members}))


def fitting_text(unit: str) -> str:
    """As much of this as a definition may have."""
    each = len(envelopes.encode(unit)) - 2
    return unit * ((MOST_BYTES - 1000) // each)


@pytest.mark.parametrize("unit", ["\u200b", "\x1b[", "\x1b[\u200b", "\U000e0041", "a\u200d", "\ufe0f", "\x00", "\\n"])
@pytest.mark.parametrize("member", ["title", "description", "deep", "names", "value"])
def test_the_largest_definition_full_of_hidden_characters_is_cleaned_in_little_time(unit: str, member: str) -> None:
    """docs/security.md#what-servers-say-of-themselves."""
    text = fitting_text(unit)
    inside = {"deep": {"items": {"description": text}}, "names": {text: {}}, "value": {"default": text}}
    raw = listed(**{member: text}) if member not in inside else listed(outputSchema=inside[member])
    assert memoryview(raw).nbytes <= MOST_BYTES
    assert cpu(lambda: read_listing(TOOLS, "s", [raw])) < ALLOWED * SLACK
    [native], _ = read_listing(TOOLS, "s", [raw])
    if member in ("title", "description", "deep"):
        # Nothing hides any more, however it was put together.
        assert not may_hide(b"".join(native.members.values())) or "\\" in unit


def test_nested_escapes_leave_nothing_that_hides() -> None:
    """docs/security.md: what stood apart may stand together once something between is gone, again and again."""
    text = "\x1b[" * 50_000 + "m" * 50_000
    assert is_visible(visible(text))
    assert cpu(lambda: visible(text)) < ALLOWED * SLACK


def test_a_definition_that_is_too_large_or_too_nested_is_left_out_alone() -> None:
    """docs/security.md#what-servers-say-of-themselves: 256 KiB."""
    nested: Any = "\u200b" * 20_000
    for _ in range(60):
        nested = {"items": nested}
    good = Raw(b'{"name":"good","inputSchema":{"type":"object"}}')
    for bad, why in ((listed(title="x" * MOST_BYTES), "bytes, more than"), (listed(outputSchema=nested), "nested")):
        natives, [finding] = read_listing(TOOLS, "s", [bad, good])
        assert [native.name for native in natives] == ["good"]
        assert why in finding.message


def test_sixteen_megabytes_of_definitions_are_read_in_many_short_steps() -> None:
    """Ours: beside the event loop, and no single step keeps it from its turn."""
    raws = [Raw(envelopes.encode({"name": f"t{n}", "description": "\u200b" * 60_000})) for n in range(60)]
    assert cpu(lambda: read_listing(PROMPTS, "s", raws)) < 60 * ALLOWED * SLACK


# --- composed tools and shapes ----------------------------------------------------------------


def scope_of(result: bytes, known: dict[Any, Any] | None = None, item: bytes = b"1") -> StepScope:
    """What references lead to when step `a` has given this."""
    return StepScope({}, {"a": StepOutcome(Raw(result))}, Raw(item), 0, {} if known is None else known)


def condition(text: str) -> Any:
    """A condition as the configuration writes it."""
    return parse_condition(text)


LARGE_RESULT = b'{"numbers":[' + b"1," * 1_500_000 + b'1],"limit":5}'


def test_what_a_path_leads_to_is_looked_for_once_in_a_run() -> None:
    """docs/composed-tools.md: a condition on each of a thousand items asks a large result a thousand times."""
    known: dict[Any, Any] = {}
    wanted = condition("${item} < ${steps.a.result.limit}")
    assert holds(wanted, scope_of(LARGE_RESULT, known))
    again = scope_of(LARGE_RESULT, known)
    assert cpu(lambda: [holds(wanted, again) for _ in range(1_000)]) < ALLOWED * SLACK


def test_a_condition_compares_no_more_than_it_can_in_little_time() -> None:
    """docs/composed-tools.md: 64 KiB. Whether there is something at all is told of any size."""
    array = b"[" + b"1," * ((LARGEST_COMPARED - 3) // 2) + b"1]"
    both = scope_of(b'{"x":%b,"y":%b}' % (array, array))
    assert cpu(lambda: holds(condition("${steps.a.result.x} == ${steps.a.result.y}"), both)) < ALLOWED * SLACK
    large = scope_of(LARGE_RESULT)
    with pytest.raises(Unfit, match="more than the 65,536 that can be compared"):
        holds(condition("${steps.a.result.numbers} == 1"), large)
    assert holds(condition("${steps.a.result.numbers}"), large)
    for empty in (b"[" + b" " * LARGEST_COMPARED + b"]", b"{" + b" " * LARGEST_COMPARED + b"}"):
        assert not holds(condition("${steps.a.result.x}"), scope_of(b'{"x":%b}' % empty))


def test_an_expression_over_a_result_has_an_end() -> None:
    """docs/shaping.md: by the number of values, and of steps."""
    assert pick("a[].b", {"a": [{"b": 1}, {"b": 2}]}) == [1, 2]
    with pytest.raises(TooMuch, match="steps"):
        pick("a[][][][][][][][]", {"a": [[1] * 300_000]})
    shaping = Shaping(tool="t", label="s", result="a")
    for text, why in ((b"[" + b"1," * (MOST_VALUES + 1) + b"1]", "300,000 values"), (b"[1,2]", '"result":[1,2]')):
        result = b'{"content":[],"structuredContent":{"a":%b}}' % text
        assert why in bytes(shaping.reshape(result)).decode()


async def test_a_large_result_is_reshaped_beside_the_event_loop() -> None:
    """docs/shaping.md: another client's ping is answered meanwhile, and the result is right."""
    notes = [{"text": f"note {n}", "more": [n]} for n in range(20_000)]
    threads: set[str] = set()

    def say(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.reply(request, {"content": [], "structuredContent": {"notes": notes}})

    def spied(self: Shaping, result: Any) -> Any:
        threads.add(threading.current_thread().name)
        return reshape(self, result)

    reshape = Shaping.reshape
    schema = {"type": "object"}
    server = ScriptedServer(tools={"t": say}, definitions=[{"name": "t", "inputSchema": schema}])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shaping, "reshape", spied)
        async with a_world({"s": server}, entries={"s": {"shape": {"t": {"result": "notes[].text"}}}}) as world:
            client = await world.client()
            result = (await client.call("s__t")).result
    assert result["structuredContent"]["result"] == [note["text"] for note in notes]
    assert [name.rsplit("_", 1)[0] for name in threads] == ["muxway-aside"]


# --- digits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("one", [b"0." + b"9" * 16_000_000, b"1e-" + b"9" * 16_000_000], ids=["fraction", "exponent"])
def test_digits_that_are_no_integer_are_passed_over_at_once(one: bytes) -> None:
    """docs/behaviour.md#size-limits: they were looked at one by one, ten nanoseconds each."""
    frame = b"[" + one + b"]"
    assert not envelopes.has_huge_integer(frame)
    assert cpu(lambda: envelopes.has_huge_integer(frame)) < ALLOWED * SLACK


# --- members ----------------------------------------------------------------------------------


def test_a_result_with_a_million_members_is_not_taken_apart() -> None:
    """docs/behaviour.md#size-limits: to make as many objects takes half a second, for which everything else waits."""
    wide = b"{%b}" % b",".join(b'"key%d":"someone@example.com"' % number for number in range(300_000))

    def refused() -> None:
        with pytest.raises(RpcError, match="more than 1000 members"):
            _ = Result(wide).fields

    assert cpu(refused) < ALLOWED * SLACK
    small = b"{%b}" % b",".join(b'"k%d":1' % number for number in range(1_001))
    assert len(Result(small).fields) == 1_001, "what is small is read whole"
    narrow = b'{"a":1,"a":2,"b":"%b"}' % (b"x" * 200_000)
    assert bytes(Result(narrow).fields["a"]) == b"2"


LARGE_CONTENT = {
    "numbers": b"1," * 1_500_000 + b"1",
    "blocks": b'{"type":"text","text":"someone@example.com"},' * 25_000 + b"1",
    "one text": b'{"type":"text","text":"%b someone@example.com"}' % (b"\\n" * 1_500_000),
    "one picture": b'{"type":"image","data":"%b","mimeType":"image/png"}' % (b"QUJD" * 750_000),
}


@pytest.mark.parametrize("kind", LARGE_CONTENT)
@pytest.mark.parametrize("middleware", ["redact", "truncate"])
def test_what_middleware_looks_into_is_never_decoded_in_one_go(
    kind: str, middleware: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/behaviour.md#size-limits: in whatever thread it is done, everything else waits meanwhile."""
    raw = b'{"content":[%b]}' % LARGE_CONTENT[kind]
    sizes: list[int] = []

    def noting(look: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def looked(raw: Any) -> Any:
            sizes.append(len(raw or b""))
            return look(raw)

        return looked

    for name in ("items", "few_members", "members", "text", "value"):
        monkeypatch.setattr(envelopes, name, noting(getattr(envelopes, name)))
    if middleware == "redact":
        masked = Masker({}, ["email"]).result(raw)
        assert masked.count(b"[redacted: email]") == raw.count(b"someone@example.com")
    else:
        request = Request(Call(LIBRARY, "tools/call", {"name": Raw(b'"t"')}))
        assert len(Truncate(bytes=4_000)._cut(request, Result(raw)).raw) < 4_000
    assert max(sizes, default=0) <= reading.LONG


def test_what_has_too_many_members_is_still_masked() -> None:
    """docs/middleware/redact.md: all of it is searched then, keys too."""
    wide = b'{"content":[],%b}' % b",".join(b'"key%d":"someone@example.com"' % number for number in range(5_000))
    masked = Masker({}, ["email"]).result(wide)
    assert masked.count(b"[redacted: email]") == 5_000
