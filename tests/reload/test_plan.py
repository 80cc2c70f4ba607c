"""What changes between two configurations: a pure function, as tables and as a property."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxway.config import Config, ServerConfig, parse_config
from muxway.config.model import GATEWAY, SECTIONS, SERVER, Written
from muxway.config.plan import ADJUSTABLE, plan

HIDDEN = "s3cr3t-that-must-not-be-seen"


def configured(servers: dict[str, dict[str, Any]], **top: Any) -> Config:
    return parse_config({"mcpServers": servers, **top}, environ={})


def test_every_server_is_in_the_place_where_it_belongs() -> None:
    """docs/reload.md#what-happens-to-a-server: unchanged servers keep their process."""
    old = configured({"a": {"command": "x"}, "b": {"command": "x"}, "c": {"command": "x"}, "d": {"command": "x"}})
    new = configured(
        {
            "a": {"command": "x"},
            "b": {"command": "y", "args": ["1"]},
            "c": {"command": "x", "prefix": "other", "hiddenTools": ["t"]},
            "e": {"command": "x"},
        }
    )
    found = plan(old, new)
    assert found.keep == ("a",)
    assert found.swap == {"b": ("command", "args")}
    assert found.adjust == {"c": ("prefix", "hiddenTools")}
    assert found.start == ("e",)
    assert found.stop == ("d",)
    assert str(found) == "start e; swap b (command, args); adjust c (prefix, hiddenTools); stop d"
    assert found.lines() == [
        "keep    a",
        "start   e",
        "swap    b (command, args)",
        "adjust  c (prefix, hiddenTools)",
        "stop    d",
    ]


def test_a_server_that_is_off_is_not_there() -> None:
    """Ours: `enabled: false` ends a server as well as removing it does, and whatever else is said of it is nothing."""
    on, off = {"command": "x"}, {"command": "x", "enabled": False}
    other = {"command": "always"}
    assert plan(configured({"o": other, "a": on}), configured({"o": other, "a": off})).stop == ("a",)
    assert plan(configured({"o": other, "a": off}), configured({"o": other, "a": on})).start == ("a",)
    assert not plan(configured({"o": other, "a": off}), configured({"o": other, "a": {**off, "args": ["1"]}}))


@pytest.mark.parametrize(
    ("before", "after", "keys"),
    [
        ({"command": "x", "env": {"A": "1", "B": "2"}}, {"command": "x", "env": {"B": "3", "C": "4"}}, "A B C"),
        ({"url": "http://x/", "headers": {"X-Key": "1"}}, {"url": "http://x/", "headers": {"X-Key": "2"}}, "X-Key"),
    ],
)
def test_it_is_told_which_variables_and_headers_differ(before: Any, after: Any, keys: str) -> None:
    """Ours: of a mapping the names that differ, and never what they are."""
    whole = "env" if "command" in before else "headers"
    assert plan(configured({"a": before}), configured({"a": after})).swap == {
        "a": tuple(f"{whole}.{key}" for key in keys.split())
    }


def test_no_value_is_ever_shown() -> None:
    """CONTRIBUTING: never show a value of the config, it may be a secret."""
    old = configured({"a": {"command": "x", "env": {"TOKEN": "old"}}, "b": {"url": "http://x/"}}, gateway={"name": "n"})
    new = configured(
        {
            "a": {"command": HIDDEN, "args": [HIDDEN], "env": {"TOKEN": HIDDEN}, "prefix": HIDDEN},
            "b": {"url": f"http://x/{HIDDEN}", "headers": {"X": HIDDEN}},
        },
        gateway={"token": HIDDEN, "name": HIDDEN},
        views={"v": {"tokens": [HIDDEN + "2"], "tools": [HIDDEN]}},
        middleware=[{"use": "log", "options": {"x": HIDDEN}}],
    )
    found = plan(old, new)
    assert "env.TOKEN" in found.swap["a"]
    assert HIDDEN not in f"{found} {found.lines()} {found.document()} {found!r}"


def test_settings_views_and_tools_have_their_changes() -> None:
    """docs/reload.md#what-happens-to-a-server: everything of a configuration can change while it runs."""
    servers = {"a": {"command": "x"}}
    tool = {"description": "d", "subtools": {"a": ["t"]}}
    old = configured(
        servers, gateway={"token": "one", "separator": ":"}, views={"v": {}, "w": {"tokens": ["t1"]}}, tools={"c": tool}
    )
    new = configured(
        servers,
        gateway={"token": "two", "separator": "."},
        views={"w": {"tokens": ["t2"], "readOnly": True}, "x": {}},
        tools={"c": {**tool, "description": "e"}, "e": tool},
    )
    found = plan(old, new)
    assert found.keep == ("a",)
    assert {*found.gateway} == {"separator", "token"}
    assert (found.views.added, found.views.removed) == (("x",), ("v",))
    assert {*found.views.changed["w"]} == {"tokens", "readOnly"}
    assert (found.tools.added, found.tools.removed, found.tools.changed) == (("e",), (), {"c": ("description",)})
    assert "set gateway.separator, gateway.token" in str(found)
    assert "add view x; change view w (" in str(found)


def test_a_file_that_only_looks_different_changes_nothing() -> None:
    """Ours: comments, the order of keys and where an entry stands are no change."""
    old = configured({"a": {"command": "x", "env": {"A": "1", "B": "2"}}})
    new = parse_config({"servers": {"a": {"env": {"B": "2", "A": "1"}, "cmd": "x"}}}, environ={}, source="elsewhere")
    assert not plan(old, new)
    assert str(plan(old, new)) == "nothing changes"
    assert plan(old, new).keep == ("a",)


def test_another_order_is_a_change_of_the_lists_alone() -> None:
    """Ours: lists follow the file."""
    one, two = {"command": "x"}, {"command": "y"}
    found = plan(configured({"a": one, "b": two}), configured({"b": two, "a": one}))
    assert found.reordered
    assert found.keep == ("b", "a")
    assert not plan(configured({"a": one, "b": two}), configured({"a": one, "c": two})).reordered


def test_true_is_not_one() -> None:
    """Ours: `1 == True == 1.0` in Python, but not for a middleware that gets one of them as an option."""

    def limited(value: object) -> Config:
        return configured({"a": {"command": "x", "middleware": [{"use": "cache", "seconds": value}]}})

    assert plan(limited(1), limited(True)).adjust == {"a": ("middleware",)}
    assert plan(limited(1), limited(1.0)).adjust == {"a": ("middleware",)}
    assert not plan(limited(1), limited(1))


def test_servers_and_middlewares_in_python_are_compared_by_what_they_are() -> None:
    """Ours: a chain that was read again has new objects, and these may do anything."""
    config = configured({"a": {"command": "(in process)"}})
    first, second = object(), object()
    old, new = (replace(config, objects={"a": thing}, middleware=(thing,)) for thing in (first, second))
    assert plan(old, new).swap == {"a": ("object",)}
    assert plan(old, new).middleware
    assert not plan(old, replace(config, objects={"a": first}, middleware=(first,)))


def test_what_is_adjusted_is_an_attribute_of_a_server() -> None:
    """Ours: a slip of the pen here would restart servers for nothing."""
    assert {item.name for item in fields(ServerConfig)} >= ADJUSTABLE


# --- the property -----------------------------------------------------------------------------

TEXT = st.sampled_from(["a", "b", "c"])
SERVERS = st.builds(
    ServerConfig,
    name=st.just("?"),
    transport=st.just("stdio"),
    command=TEXT,
    args=st.lists(TEXT, max_size=2).map(tuple),
    env=st.dictionaries(TEXT, TEXT, max_size=2),
    cwd=st.none() | TEXT,
    enabled=st.booleans(),
    prefix=st.none() | TEXT,
    hidden_tools=st.lists(TEXT, max_size=2).map(tuple),
    read_only=st.booleans(),
    isolation=st.sampled_from(["shared", "principal"]),
    era=st.sampled_from(["auto", "legacy"]),
    call_timeout=st.none() | st.sampled_from([1.0, 2.0]),
    max_queue=st.sampled_from([1, 2]),
    written=st.builds(Written, line=st.integers(1, 9)),
)
CONFIGS = st.dictionaries(TEXT, SERVERS, max_size=3).map(
    lambda servers: Config(servers={name: replace(server, name=name) for name, server in servers.items()})
)
ATTRIBUTES = {row.key: row.attribute for row in SERVER.fields if row.attribute}


@given(CONFIGS, CONFIGS)
def test_doing_what_the_plan_says_makes_the_old_servers_the_new_ones(old: Config, new: Config) -> None:
    """Ours: the plan is complete, and nothing that needs a new process is passed off as an adjustment."""
    before = {name: server for name, server in old.servers.items() if server.enabled}
    wanted = {name: server for name, server in new.servers.items() if server.enabled}
    found = plan(old, new)

    running = {name: before[name] for name in found.keep}
    running |= {name: wanted[name] for name in (*found.start, *found.swap)}
    for name, keys in found.adjust.items():
        changed = {ATTRIBUTES[key]: getattr(wanted[name], ATTRIBUTES[key]) for key in keys}
        assert changed.keys() <= ADJUSTABLE
        running[name] = replace(before[name], **changed)
    assert running == wanted
    assert {*found.stop} == before.keys() - wanted.keys()
    everywhere = [*found.keep, *found.start, *found.stop, *found.swap, *found.adjust]
    assert len(everywhere) == len({*everywhere}) == len(before.keys() | wanted.keys())
    assert bool(found) == (list(before.items()) != list(wanted.items()))
    # What needs another process needs one whatever else changed.
    for name in found.adjust:
        assert (before[name].command, before[name].env) == (wanted[name].command, wanted[name].env)


def test_keys_are_spelled_as_in_the_documentation() -> None:
    """Ours: what a plan names can be looked up with `muxway config explain`."""
    old, new = configured({"a": {"command": "x"}}), configured({"a": {"command": "x"}})
    server = new.servers["a"]
    other = {
        "transport": "http", "command": "y", "args": ("1",), "env": {"A": "1"}, "url": "u", "headers": {"H": "1"},
    }  # fmt: skip
    changed = replace(server, **other)
    keys = plan(old, replace(new, servers={"a": changed})).swap["a"]
    known = {key for section in SECTIONS if section in (SERVER, GATEWAY) for key in section.by_spelling}
    assert {key.partition(".")[0] for key in keys} <= known
