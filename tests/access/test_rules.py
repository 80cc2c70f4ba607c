"""Rules: which of them decides, for whom, about what (docs/access.md). Pure: no gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxway.access.rules import Access, Ruling, hints_of
from muxway.calls.identity import Identity
from muxway.catalog.kinds import PROMPTS, RESOURCES, TOOLS
from muxway.config import load_config, parse_config
from muxway.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

ANN = Identity(user="ann", groups=("eng",), client="claude")
SERVERS = {"mcpServers": {name: {"command": "x"} for name in ("a", "b")}, "views": {"v": {}}}


def access(*rules: dict[str, Any]) -> Access:
    """These rules, as a configuration has them."""
    return Access(parse_config({**SERVERS, "access": [*rules]}).gateway.access)


def verdict(
    rules: Access,
    name: str,
    identity: Identity | None = None,
    view: str | None = None,
    **annotations: bool,
) -> Ruling:
    """What is decided about a tool."""
    judge = rules.judge(identity, view)
    if judge is None:
        return Ruling()
    server = name.partition("__")[0]
    return judge.verdict(TOOLS, server, (name,), hints_of({"annotations": annotations}))


def test_the_first_rule_that_matches_decides() -> None:
    """docs/access.md: in the order of the file; what none matches is allowed."""
    rules = access(
        {"users": ["ann"], "tools": ["a__*"], "do": "allow"},
        {"tools": ["*__drop"], "do": "ask"},
        {"servers": ["a"], "do": "deny"},
    )
    assert verdict(rules, "a__drop", ANN).do == "allow"
    assert verdict(rules, "a__drop").do == "ask"
    assert verdict(rules, "a__get").do == "deny"
    assert verdict(rules, "b__get").rule is None
    assert verdict(rules, "b__drop", ANN).rule is rules.rules[1]


def test_groups_that_are_not_known_open_nothing() -> None:
    """docs/access.md: whoever is in more groups than are known may be in any, as far as that takes something away."""
    some = Identity(user="ann", groups=("eng",), more_groups=True)
    for do, all_known in (("deny", "allow"), ("ask", "allow"), ("allow", "deny")):
        rules = access({"groups": ["guests"], "do": do}, {"do": all_known})
        assert verdict(rules, "a__get", ANN).do == all_known
        assert verdict(rules, "a__get", some).do == ("deny" if do == "allow" else do)
    rules = access({"groups": ["eng"], "do": "allow"}, {"users": ["bob"], "groups": ["guests"], "do": "deny"})
    assert verdict(rules, "a__get", some).do == "allow"
    assert verdict(rules, "a__get", Identity(user="eve", more_groups=True)).rule is None


@pytest.mark.parametrize(
    ("who", "identity", "view", "matches"),
    [
        ({"users": ["ann"]}, ANN, None, True),
        ({"users": ["a*"]}, ANN, None, True),
        ({"users": ["*"]}, None, None, False),
        ({"users": ["*"]}, Identity(key="ci"), None, False),
        ({"groups": ["ops", "eng"]}, ANN, None, True),
        ({"groups": ["ops"]}, ANN, None, False),
        ({"users": ["ann"], "groups": ["ops"]}, ANN, None, False),
        ({"keys": "ci"}, Identity(key="ci"), None, True),
        ({"clients": ["claude"]}, ANN, None, True),
        ({"views": ["v"]}, None, "v", True),
        ({"views": ["v"]}, None, None, False),
        ({"views": ["*"]}, None, None, False),
        ({}, None, None, True),
    ],
)
def test_who_a_rule_is_for(who: dict[str, Any], identity: Identity | None, view: str | None, matches: bool) -> None:
    """docs/access.md: all that is written must hold; one of several globs is enough."""
    assert (access({**who, "do": "deny"}).judge(identity, view) is not None) == matches


def test_what_tools_do_not_say_of_themselves_is_assumed_as_the_protocol_does() -> None:
    """MCP, ToolAnnotations: without a word, a tool may change things, and may be destructive."""
    destructive = access({"annotations": {"destructive": True}, "do": "deny"})
    assert verdict(destructive, "a__x").do == "deny"
    assert verdict(destructive, "a__x", destructiveHint=False).do == "allow"
    assert verdict(destructive, "a__x", readOnlyHint=True).do == "allow"
    assert verdict(destructive, "a__x", readOnlyHint=True, destructiveHint=True).do == "allow"
    reading = access({"annotations": {"readOnlyHint": True}, "do": "allow"}, {"do": "deny"})
    assert verdict(reading, "a__x").do == "deny"
    assert verdict(reading, "a__x", readOnlyHint=True).do == "allow"


def test_a_rule_that_names_tools_is_not_about_the_rest() -> None:
    """docs/access.md: prompts and resources are meant where nothing, or they themselves, are named."""
    judge = access({"tools": ["*"], "do": "deny"}).judge(None, None)
    assert judge is not None
    assert judge.verdict(TOOLS, "a", ("a__x",), {}).do == "deny"
    assert judge.verdict(PROMPTS, "a", ("a__x",), {}).do == "allow"
    assert judge.verdict(RESOURCES, "a", ("file:///x",), {}).do == "allow"
    every = access({"servers": ["a"], "do": "deny"}).judge(None, None)
    assert every is not None
    assert every.verdict(PROMPTS, "a", ("a__x",), {}).do == "deny"
    assert every.verdict(RESOURCES, "a", ("file:///x",), {}).do == "deny"


@pytest.mark.parametrize(
    "uri", ["file:///etc/x", "file:///home/../etc/x", "file:///%65tc/x", "FILE:///etc/x", "file://localhost/etc/x"]
)
def test_every_way_to_read_a_uri_counts(uri: str) -> None:
    """docs/access.md: `deny` by any reading, `allow` only by all of them."""
    denied = access({"resources": ["file:///etc/*"], "do": "deny"}).judge(None, None)
    assert denied is not None
    assert denied.verdict(RESOURCES, "a", (uri,), {}).do == "deny"
    allowed = access({"resources": ["file:///home/*"], "do": "allow"}, {"do": "deny"}).judge(None, None)
    assert allowed is not None
    assert allowed.verdict(RESOURCES, "a", (uri,), {}).do == "deny"


@pytest.mark.parametrize(
    ("do", "value", "fits"),
    [
        ("deny", "/etc/x", True),
        ("deny", ["/home/x", "/etc/x"], True),
        ("deny", {"deep": [{"/etc/x": 1}]}, True),
        ("deny", "/home/x", False),
        ("deny", None, False),
        ("allow", "/etc/x", True),
        ("allow", ["/etc/y", "/etc/x"], True),
        ("allow", ["/home/x", "/etc/x"], False),
        ("allow", [], False),
        ("allow", None, False),
    ],
)
def test_arguments_are_read_carefully(do: str, value: object, fits: bool) -> None:
    """docs/access.md: of a list, any item is enough for `deny` and `ask`; `allow` needs all."""
    (rule,) = access({"arguments": {"path": "/etc/*"}, "do": do}).rules
    assert rule.fits({"path": value}) is fits


@pytest.mark.parametrize(("written", "value"), [("1", 1), ("1", 1.0), ("true", True), ("-3", -3), ("0.5", 0.5)])
def test_numbers_and_flags_are_matched_as_they_are_written(written: str, value: object) -> None:
    """docs/access.md: 1 and 1.0 are the same number."""
    (rule,) = access({"arguments": {"n": [written]}, "do": "deny"}).rules
    assert rule.fits({"n": value})


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (2**53, 2**53 + 1),
        (-(2**53), -(2**53) - 1),
        (1234567890123456768, 1234567890123456789),
        ("Infinity", 10**399),
    ],
)
def test_no_integer_gets_around_a_rule_that_a_server_would_read_as_another(written: object, value: int) -> None:
    """docs/access.md: where readers differ in a number, any of what it may be is enough for `deny`."""
    (deny,) = access({"arguments": {"n": [str(written)]}, "do": "deny"}).rules
    assert deny.fits({"n": value})
    assert deny.fits({"n": [{"m": value}]})
    (exact,) = access({"arguments": {"n": [str(value)]}, "do": "allow"}).rules
    assert exact.fits({"n": value})
    (allow,) = access({"arguments": {"n": [str(written)]}, "do": "allow"}).rules
    assert not allow.fits({"n": value})


def test_a_rule_on_arguments_comes_in_its_turn() -> None:
    """docs/access.md: a tool is listed if some of its calls may be made."""
    rules = access({"tools": "a__get", "arguments": {"q": "ok"}, "do": "allow"}, {"tools": "a__*", "do": "deny"})
    got = verdict(rules, "a__get")
    assert (got.shown, got.passes, got.do) == (True, False, "deny")
    assert got.of({"q": "ok"}).do == "allow"
    assert got.of({"q": "no"}).do == "deny"
    assert not verdict(rules, "a__other").shown


def test_callers_of_one_class_share_their_judge() -> None:
    """Ours: what is made for a class is made once, and rules after one that is about all are never looked at."""
    rules = access({"groups": ["eng"], "do": "allow"}, {"servers": ["a"], "do": "deny"})
    ben = Identity(user="ben", groups=("eng",))
    assert rules.judge(ANN, None) is rules.judge(ben, "v")
    assert rules.judge(None, None) is rules.judge(Identity(user="eve"), None)
    assert rules.judge(ANN, None) is not rules.judge(None, None)


NAMES = st.sampled_from(["a__x", "a__y", "b__x", "b__yy"])
GLOBS = st.sampled_from(["a__*", "*", "*__x", "a__x", "b__y?", "b__*"])
RULE = st.fixed_dictionaries(
    {"do": st.sampled_from(["allow", "ask", "deny"])},
    optional={
        "users": st.lists(st.sampled_from(["ann", "*", "b*"]), min_size=1, max_size=2),
        "tools": st.lists(GLOBS, min_size=1, max_size=2),
        "servers": st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=2),
        "annotations": st.fixed_dictionaries({}, optional={"destructive": st.booleans(), "readOnly": st.booleans()}),
        "arguments": st.just({"q": ["x"]}),
    },
)
HINTS = st.fixed_dictionaries({}, optional={"destructiveHint": st.booleans(), "readOnlyHint": st.booleans()})


def test_a_warning_of_a_rule_has_its_line(tmp_path: Path) -> None:
    """docs/access.md#which-rule-it-was: the line of the rule, and not that of the list it is in."""
    file = tmp_path / "muxway.yaml"
    rules = ["{ tools: [a__x], do: allow }", "{ tools: [a__x], do: deny }", "{ servers: [none], do: deny }"]
    text = "mcpServers: { a: { command: x } }\naccess:\n" + "".join(f"  - {rule}\n" for rule in rules)
    file.write_text(text)
    found = [(warning.path, warning.line) for warning in load_config(file).warnings]
    assert found == [("access.1", 4), ("access.2.servers", 5)]


@given(st.lists(RULE, min_size=1, max_size=6), NAMES, HINTS, st.sampled_from([None, ANN, Identity(user="bob")]))
def test_a_rule_that_check_calls_shadowed_never_decides(
    rules: list[dict[str, Any]], name: str, hints: dict[str, bool], identity: Identity | None
) -> None:
    """docs/access.md: `muxway check` names only rules that nothing can match."""
    config = parse_config({**SERVERS, "access": rules})
    vain = {warning.path for warning in config.warnings if "never matches" in warning.message}
    made = Access(config.gateway.access)
    got = verdict(made, name, identity, **hints)
    for arguments in ({}, {"q": "x"}, {"q": "y"}):
        decided = got.of(arguments).rule
        assert decided is None or decided.label not in vain


@given(st.lists(RULE, min_size=1, max_size=6), NAMES, HINTS, st.sampled_from([None, ANN]), st.booleans())
def test_a_judge_decides_as_the_rules_say_one_after_the_other(
    rules: list[dict[str, Any]], name: str, hints: dict[str, bool], identity: Identity | None, fits: bool
) -> None:
    """docs/access.md: the law, written once more in the plainest way."""
    made = access(*rules)
    server, said = name.partition("__")[0], hints_of({"annotations": hints})
    arguments = {"q": "x"} if fits else {}
    plain = next(
        (
            rule
            for rule in made.rules
            if rule.is_for(identity, None) and rule.matches(TOOLS, server, (name,), said)
            if not rule.looks_at_arguments or rule.fits(arguments)
        ),
        None,
    )
    assert verdict(made, name, identity, **hints).of(arguments).rule is plain


ODD = st.text("ab*?[]!", min_size=1, max_size=6)


@given(st.lists(ODD, min_size=1, max_size=5), ODD)
def test_a_judge_finds_its_rules_by_any_pattern(globs: list[str], name: str) -> None:
    """Ours: it looks for those whose globs begin or end as a name does, and must not miss one."""
    made = access(*({"tools": [glob], "do": "deny"} for glob in globs))
    plain = next((rule for rule in made.rules if rule.matches(TOOLS, "a", (name,), {})), None)
    assert verdict(made, name).rule is plain


URIS = st.sampled_from(["file:///a", "file:///a/../b", "file:///%61", "x://a/b", "file:///" + "%25" * 9 + "61"])


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "do": st.sampled_from(["allow", "ask", "deny"]),
                "resources": st.lists(st.sampled_from(["file:///*", "*a", "file:///b", "x*", "*"]), min_size=1),
            }
        ),
        min_size=1,
        max_size=4,
    ),
    URIS,
)
def test_a_judge_finds_its_rules_by_any_reading_of_a_uri(rules: list[dict[str, Any]], uri: str) -> None:
    """The same of URIs, which can be read in several ways."""
    made = access(*rules)
    judge = made.judge(None, None)
    assert judge is not None
    plain = next((rule for rule in made.rules if rule.matches(RESOURCES, "a", (uri,), {})), None)
    assert judge.verdict(RESOURCES, "a", (uri,), {}).rule is plain


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"tools": ["x"]}, "Missing required field: do"),
        ({"tool": ["x"], "do": "deny"}, "it would match too much"),
        ({"tools": [], "do": "deny"}, "never matches"),
        ({"do": "maybe"}, 'one of "allow", "ask", "deny"'),
        ({"annotations": {"nice": True}, "do": "deny"}, "known are readOnly"),
        ("deny", "a rule like"),
    ],
)
def test_a_rule_that_is_not_what_was_meant_is_refused(rule: object, problem: str) -> None:
    """Ours: a rule with a slip in it could allow what it was to deny."""
    with pytest.raises(ConfigError) as error:
        parse_config({**SERVERS, "access": [rule]})
    assert any(problem in one.message for one in error.value.details)


@pytest.mark.parametrize(
    ("rules", "path"),
    [
        ([{"do": "allow"}, {"tools": ["x"], "do": "deny"}], "access.1"),
        ([{"tools": ["a__*"], "do": "ask"}, {"tools": ["a__x", "a__y*"], "users": ["ann"], "do": "deny"}], "access.1"),
        ([{"servers": ["c"], "do": "deny"}], "access.0.servers"),
        ([{"views": ["w"], "do": "deny"}], "access.0.views"),
    ],
)
def test_check_finds_rules_that_never_match(rules: list[dict[str, Any]], path: str) -> None:
    """docs/access.md: shadowed ones, and those that name what is not there."""
    warnings = parse_config({**SERVERS, "access": rules}).warnings
    assert [warning.path for warning in warnings] == [path]
