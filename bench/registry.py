"""What a search in the copy of a registry costs: 20,000 made-up servers, read from the disk and searched.

.venv/bin/python -m bench.registry
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from muxway.setup.registry.mirror import Mirror, read_mirror, renewed, search, write_mirror
from muxway.setup.registry.records import RegistryRecord, RegistryServer

SERVERS = 20_000
ROUNDS = 20
WANTED = 50.0
"""Milliseconds."""
WORDS = [
    "search",
    "web",
    "postgres",
    "database",
    "query",
    "files",
    "mail",
    "calendar",
    "notes",
    "weather",
    "maps",
    "browser",
    "git",
    "issues",
    "tickets",
    "cloud",
    "deploy",
    "metrics",
    "logs",
    "chat",
    "voice",
    "image",
    "video",
    "pdf",
    "sheets",
    "crm",
    "payments",
    "invoices",
    "stocks",
    "news",
    "translate",
    "docs",
    "wiki",
    "memory",
    "graph",
]
QUERIES = ("postgres", "web search", "io.github.owner17/graph-17", "zz", "s", "git issues metrics", "nothing like it")


def made_up() -> Mirror:
    """A copy of a registry that is not."""
    chance = random.Random(7)
    records = [
        RegistryRecord(
            server=RegistryServer(
                name=f"io.github.owner{number % 997}/{chance.choice(WORDS)}-{number}",
                version=f"1.{number % 30}.{number % 7}",
                title=" ".join(chance.choices(WORDS, k=2)).title(),
                description=" ".join(chance.choices(WORDS, k=12)),
            )
        )
        for number in range(SERVERS)
    ]
    return renewed(Mirror(base="https://registry.example"), records, 1.0)


def main() -> int:
    """Print the figures. Returns the exit status: a missed one is printed, never an error."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mirror.json"
        write_mirror(made_up(), file)
        size = file.stat().st_size
        reading, whole, work = list[float](), dict[str, list[float]](), dict[str, list[float]]()
        for _ in range(ROUNDS):
            for query in QUERIES:
                began, worked = time.perf_counter(), time.process_time()
                mirror = read_mirror("https://registry.example", file)
                reading.append((time.process_time() - worked) * 1000)
                search(mirror, query, 20)
                work.setdefault(query, []).append((time.process_time() - worked) * 1000)
                whole.setdefault(query, []).append((time.perf_counter() - began) * 1000)
    print(
        f"{SERVERS:,} servers, {size / 1e6:.1f} MB; reading them is {median(reading):.1f} ms of the work for each query"
    )
    print(f"{'query':<30} {'work ms':>8} {'p50 ms':>8} {'worst':>8}  work wanted < {WANTED:g}")
    for query, times in whole.items():
        took = median(work[query])
        verdict = "reached" if took < WANTED else "missed"
        print(f"{query:<30} {took:>8.1f} {median(times):>8.1f} {max(times):>8.1f}  {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
