"""How well `search_tools` finds tools, beside the rankings of others, and how fast.

    python -m bench.retrieval --data FOLDER                recall on public data
    python -m bench.retrieval --data FOLDER --semantic     the same with the extra `semantic`
    python -m bench.retrieval --data FOLDER --size 10000   time and memory, of that many tools

FOLDER has golden45.json and live527.json, which are reported on, and metatool.json, on which parameters were tuned;
they are not part of this repository. Each is `{"tools": [{server, name, description, inputSchema}], "queries": {set:
[..]}}`. Those 8,000 tools among which live527's are looked for are mostly made up, see `crowd`. The rankings of others
are our own implementations of what they document.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import re
import sqlite3
import statistics
import sys
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
from msgspec import Raw
from tests.search.reading import arguments_for, arguments_of

from muxway.catalog.build import Source, build
from muxway.catalog.model import NativeTool
from muxway.catalog.naming import Naming
from muxway.search import answers
from muxway.search.index import Index
from muxway.search.listing import Discovery
from muxway.search.meaning import Meaning
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from muxway.catalog.model import Route

    Tool = Mapping[str, Any]
    Rank = Callable[[str], Sequence[int]]

_DEPTH = 10
_CROWD = 8_000


def _schema(tool: Tool) -> dict[str, Any]:
    return tool["inputSchema"] if isinstance(tool["inputSchema"], dict) else {"type": "object"}


def _properties(tool: Tool) -> dict[str, Any]:
    found = _schema(tool).get("properties")
    return found if isinstance(found, dict) else {}


# --- rankings ---------------------------------------------------------------------------------


def routes_of(tools: Sequence[Tool]) -> list[Route]:
    """The tools as a gateway lists them, in the order they are given; data sets may have a name twice."""
    sources: dict[str, list[NativeTool]] = {}
    for number, tool in enumerate(tools):
        members = {"description": tool["description"] or "", "inputSchema": _schema(tool), "_meta": number}
        native = NativeTool(f"{tool['name']}", {key: Raw(envelopes.encode(one)) for key, one in members.items()})
        sources.setdefault(tool["server"] or "tools", []).append(native)
    catalog = build(
        Naming.of("__", 10_000),
        [Source(upstream=server, prefix=server, tools=natives) for server, natives in sources.items()],
    )
    routes = sorted(catalog.routes.values(), key=lambda route: route.describe()["_meta"])
    assert len(routes) == len(tools)
    return routes


def _index(routes: Iterable[Route], meaning: Meaning | None = None) -> Index:
    index = Index(meaning)
    for _ in index.follow({route.public: route for route in routes}):
        pass
    return index


def muxway(meaning: Meaning | None = None) -> Callable[[Sequence[Tool]], Rank]:
    """Ours."""

    def made(tools: Sequence[Tool]) -> Rank:
        routes = routes_of(tools)
        numbers = {route.public: number for number, route in enumerate(routes)}
        index = _index(routes, meaning)
        return lambda query: [numbers[one.name] for one in index.search(query, _DEPTH).matches]

    return made


def one_field_bm25(tools: Sequence[Tool]) -> Rank:
    """BM25 over one joined text, words split at what is no letter, no stemming: as FastMCP ranks."""

    def words(text: str) -> list[str]:
        return [word for word in re.split(r"[\W_]+", text.lower()) if len(word) > 1]

    documents: list[list[str]] = []
    for tool in tools:
        parts = [f"{tool['server']}_{tool['name']}", tool["description"] or ""]
        for name, schema in _properties(tool).items():
            parts.append(name)
            if isinstance(schema, dict) and schema.get("description"):
                parts.append(str(schema["description"]))
        documents.append(words(" ".join(parts)))
    count, average = len(documents), statistics.mean(map(len, documents))
    frequencies: dict[str, int] = {}
    for document in documents:
        for word in set(document):
            frequencies[word] = frequencies.get(word, 0) + 1

    def rank(query: str) -> list[int]:
        scores: list[tuple[float, int]] = []
        asked = words(query)
        for number, document in enumerate(documents):
            score = 0.0
            for word in asked:
                if times := document.count(word):
                    rarity = math.log((count - frequencies[word] + 0.5) / (frequencies[word] + 0.5) + 1)
                    score += rarity * times * 2.5 / (times + 1.5 * (0.25 + 0.75 * len(document) / average))
            if score:
                scores.append((-score, number))
        return [number for _, number in sorted(scores)[:_DEPTH]]

    return rank


def fts5_porter(tools: Sequence[Tool]) -> Rank:
    """SQLite's FTS5 with its Porter stemmer over name and description, any word: as ToolHive ranks without a model."""
    database = sqlite3.connect(":memory:")
    database.execute("create virtual table t using fts5(name, description, tokenize='porter unicode61')")
    rows = [(number, tool["name"], tool["description"] or "") for number, tool in enumerate(tools)]
    database.executemany("insert into t(rowid, name, description) values (?, ?, ?)", rows)

    def rank(query: str) -> list[int]:
        asked = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query))
        found = database.execute("select rowid from t where t match ? order by bm25(t) limit ?", (asked, _DEPTH))
        return [row[0] for row in found] if asked else []

    return rank


# --- figures ----------------------------------------------------------------------------------


def recall(found: Sequence[int], relevant: Sequence[int], depth: int) -> float:
    """The part of what is relevant that was found in time."""
    return len({*found[:depth]} & {*relevant}) / len(relevant)


def mean_recall(rank: Rank, queries: Sequence[Mapping[str, Any]], depth: int) -> float:
    """Its mean over all queries."""
    return statistics.mean(recall(rank(query["query"]), query["relevant"], depth) for query in queries)


def cover(rank: Rank, queries: Sequence[Mapping[str, Any]]) -> float:
    """The part of a task's tools that the five best of its steps have together."""
    return statistics.mean(
        recall([*{one for step in query["steps"] for one in rank(step)[:5]}], query["relevant"], 10_000)
        for query in queries
    )


def crowd(data: Mapping[str, Any], size: int) -> list[Tool]:
    """The tools of live527 among so many: first those of the other sets, then made-up ones.

    A made-up one has the name of one tool of the other sets, half the description of another, half that of a third, and
    the parameters of a fourth: no words of live527 were used, and no two are alike. Real ones would be harder to tell
    apart where servers do the same, and easier where they do something else.
    """
    golden, others = data["golden45"]["tools"], [*data["golden45"]["tools"], *data["metatool"]["tools"]]
    made = [*data["live527"]["tools"], *others]
    count = len(others)
    for number in range(size - len(made)):
        one, two, three = (others[(number * step + number // count) % count] for step in (1, 2, 3))
        half = [(tool["description"] or "").split() for tool in (two, three)]
        said = [*half[0][: len(half[0]) // 2 + 1], *half[1][len(half[1]) // 2 :]]
        made.append(
            {
                "server": f"other{number // 20}",
                "name": f"{one['name']}_{number}",
                "description": " ".join(said),
                "inputSchema": golden[number % len(golden)]["inputSchema"],
            }
        )
    return made


def figures(made: Callable[[Sequence[Tool]], Rank], data: Mapping[str, Any]) -> dict[str, float]:
    """All that is reported of one ranking."""
    golden, live, meta = (data[name] for name in ("golden45", "live527", "metatool"))
    rank = made(golden["tools"])
    told = {f"golden45 R@{depth}": mean_recall(rank, golden["queries"]["all"], depth) for depth in (1, 5, 10)}
    rank = made(live["tools"])
    told |= {f"live527 steps R@{depth}": mean_recall(rank, live["queries"]["steps"], depth) for depth in (1, 5)}
    told["live527 tasks R@5"] = mean_recall(rank, live["queries"]["tasks"], 5)
    told["live527 cover@5"] = cover(rank, live["queries"]["cover"])
    rank = made(crowd(data, _CROWD))
    told[f"steps R@5 in {_CROWD:,}"] = mean_recall(rank, live["queries"]["steps"], 5)
    told["metatool R@5 (tuning)"] = mean_recall(made(meta["tools"]), meta["queries"]["single"], 5)
    return told


def callable_at_once(tools: Sequence[Tool]) -> list[str]:
    """The tools that one search and one call do not suffice for.

    Arguments are made of the answer that has the tool alone: of the line where that says all, else of the schema below
    it. They must fit the tool's own schema.
    """
    lacking: list[str] = []
    for route in routes_of(tools):
        line, *more = answers.hits([route], 1, answers.LIMIT, tiers=False).split("\n\n", 1)[0].splitlines()
        schema = next((one.removeprefix("schema: ") for one in more if one.startswith("schema: {")), None)
        given = arguments_of(line.removeprefix(route.public)) if schema is None else arguments_for(json.loads(schema))
        if not _fits(given, route.describe()["inputSchema"]):
            lacking.append(route.public)
    return lacking


def _fits(value: object, schema: Any) -> bool:
    try:
        return jsonschema_rs.is_valid(schema, value)
    except jsonschema_rs.ValidationError:
        # The schema is none of today: some are of draft 4, without saying so.
        return jsonschema_rs.Draft4Validator(schema).is_valid(value)


def sizes(live: Mapping[str, Any]) -> dict[str, str]:
    """What lists and answers cost, in bytes."""
    routes = {route.public: route for route in routes_of(live["tools"])}
    index = _index(routes.values())
    queries = [one["query"] for name in ("steps", "tasks") for one in live["queries"][name]]

    def answer(query: str, limit: int) -> int:
        found = index.search(query, limit)
        shown = [routes[one.name] for one in found.matches]
        return len(answers.hits(shown, found.total, limit, tiers=False).encode())

    def listed(tools: Iterable[Route]) -> int:
        return sum(len(one.definition) + 1 for one in tools)

    def view(count: int) -> int:
        servers = [*dict.fromkeys(one["server"] for one in many(live["tools"], count))]
        return max(listed(Discovery(tiers=tiers).tools(servers).values()) for tiers in (False, True))

    views = {count: view(count) for count in (10, 10_000)}
    five, twenty = ([answer(query, limit) for query in queries] for limit in (answers.LIMIT, answers.MOST))
    full = listed([*routes.values()][:500])
    searched = max(views.values()) + 3 * statistics.mean(five)
    return {
        "list of a search view, 10 tools": f"{views[10]:,}",
        "list of a search view, 10,000 tools": f"{views[10_000]:,}",
        "answer with 5 hits, mean and most": f"{statistics.mean(five):,.0f}, {max(five):,}",
        "answer with 20 hits, most": f"{max(twenty):,}",
        "list of 500 tools": f"{full:,}",
        "search view and 3 searches, part of it": f"{searched / full:.1%}",
    }


# --- time and memory --------------------------------------------------------------------------


def many(tools: Sequence[Tool], size: int) -> list[Tool]:
    """As many tools as wanted, of servers with a hundred each, with some words of their own."""
    made: list[Tool] = []
    for number in range(size):
        tool = tools[number % len(tools)]
        own = f"{tool['description'] or ''} Of kind {number % 9973:x} and series {number * 7919 % 65521:x}."
        made.append(
            {**tool, "server": f"server{number // 100}", "name": f"{tool['name']}_{number}", "description": own}
        )
    return made


def speed(tools: Sequence[Tool], queries: Sequence[str]) -> dict[str, str]:
    """How long queries and changes take, and how large the index is."""
    routes = {route.public: route for route in routes_of(tools)}
    # As muxway does when it serves: or the collector looks through all of these again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    index = Index()
    began, steps = time.process_time(), list[float]()
    for _ in index.follow(routes):
        steps.append(time.process_time())
    built = time.process_time() - began
    longest = max(later - earlier for earlier, later in pairwise((began, *steps)))
    taken: list[float] = []
    for query in queries:
        index.search(query, 5)
    for query in [*queries] * 3:
        start = time.process_time_ns()
        index.search(query, 5)
        taken.append((time.process_time_ns() - start) / 1e6)
    taken.sort()
    replaced = [_replaced(index, routes, server) for server in [*index.segments][7::10]]
    steps = [step for one in replaced for step in one]
    tracemalloc.start()
    again = Index()
    for _ in again.follow(routes):
        pass
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return {
        "build": f"{built:.2f} s",
        "longest step of it": f"{longest * 1000:.2f} ms",
        "query p50": f"{taken[len(taken) // 2]:.2f} ms",
        "query p99": f"{taken[int(len(taken) * 0.99)]:.2f} ms",
        "replace a server of 100": f"{statistics.median(map(sum, replaced)) * 1000:.1f} ms",
        "longest step of that": f"{max(steps) * 1000:.2f} ms",
        "memory": f"{memory / 1e6:.1f} MB",
    }


def _replaced(index: Index, routes: Mapping[str, Route], server: str) -> list[float]:
    """Seconds of each step when a server has other definitions, all of them."""
    changed = dict(routes)
    for route in [one for one in routes.values() if one.upstream == server]:
        definition = route.definition.replace(b"Of kind", b"Of another kind")
        changed[route.public] = type(route)(
            route.public, route.upstream, route.native, route.prefix, route.alias, definition, route.head
        )
    gc.collect()
    gc.freeze()
    moments = [time.process_time()]
    moments.extend(time.process_time() for _ in index.follow(changed))
    for _ in index.follow(routes):
        pass
    return [later - earlier for earlier, later in pairwise(moments)]


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.retrieval", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="where the data sets are")
    parser.add_argument("--semantic", action="store_true", help="also rank with the model of the extra `semantic`")
    parser.add_argument("--size", type=int, metavar="N", help="time and memory with N tools instead of recall")
    given = parser.parse_args()
    names = ("golden45", "live527", "metatool")
    data = {name: json.loads((given.data / f"{name}.json").read_text(encoding="utf-8")) for name in names}
    live = data["live527"]
    if given.size:
        queries = [one["query"] for name in ("steps", "tasks") for one in live["queries"][name]]
        print(f"{given.size:,} tools, CPU time:")
        for name, told in speed(many(live["tools"], given.size), queries).items():
            print(f"  {name:26} {told:>10}")
        return
    rankings = {"muxway": muxway(), "one-field BM25": one_field_bm25, "FTS5 porter": fts5_porter}
    if given.semantic:
        rankings["muxway, semantic"] = muxway(Meaning())
    columns = {name: figures(made, data) for name, made in rankings.items()}
    print(f"{'':24}" + "".join(f"{name:>18}" for name in columns))
    for row in columns["muxway"]:
        print(f"{row:24}" + "".join(f"{column[row]:18.3f}" for column in columns.values()))
    lacking = callable_at_once(live["tools"])
    count = len(live["tools"])
    print(f"\none search and one call suffice: {count - len(lacking)} of {count} tools of live527", *lacking[:10])
    print("\nbytes:")
    for name, told in sizes(live).items():
        print(f"  {name:40} {told:>14}")


if __name__ == "__main__":
    sys.exit(main())
