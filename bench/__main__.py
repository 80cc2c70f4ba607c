"""Measure muxway and its peers side by side and print a table of ratios: `python -m bench`.

Exit status 1 means that a target did not run or gave a wrong result. A missed figure is printed, never an error.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from pathlib import Path

from bench import http_report, http_targets, middleware_report, report, targets
from bench.cells import CELLS, StdioRun
from bench.figures import Verdicts
from bench.http_cells import HTTP_CELLS, HttpRun
from bench.middleware_cells import MIDDLEWARE_CELLS, SETTINGS, MiddlewareRun

GROUPS = {"stdio": CELLS, "http": HTTP_CELLS, "middleware": MIDDLEWARE_CELLS}


def chosen(known: tuple[str, ...]) -> object:
    """Make a parser for comma-separated names out of a known set."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose from {', '.join(known)}")
        return names

    return parse


def options() -> argparse.Namespace:
    """Read the command line."""
    known = (*targets.TARGETS, *http_targets.HTTP_TARGETS, *SETTINGS)
    names = tuple(dict.fromkeys(target.name for target in known))
    cells = tuple(cell for group in GROUPS.values() for cell in group)
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("groups", nargs="*", metavar="GROUP", help=f"cells to measure: {', '.join(GROUPS)} (default: all)")
    add("--cells", type=chosen(cells), metavar="CELL,...", help=f"these cells instead: {', '.join(cells)}")
    add("--only", type=chosen(names), default=names, metavar="NAME,...", help=f"targets: {', '.join(names)}")
    add("--before", type=Path, metavar="MUXWAY", help="also measure this other muxway command, as target `before`")
    add("--quick", action="store_true", help="shorter slices and fewer rounds: a first look, in 3 minutes")
    add("--rounds", type=int, metavar="N", help="rounds per cell (default: 3, with --quick 1)")
    add("--cpus", choices=["one", "all"], default="one", help="where calls are measured (default: one, see README.md)")
    add("--id-last", action="store_true", help="stdio: spell the id last, as the official SDKs do")
    add("--json", type=Path, metavar="FILE", help="also write every sample to FILE")
    given = parser.parse_args()
    if unknown := [group for group in given.groups if group not in GROUPS]:
        parser.error(f"{', '.join(unknown)}: choose from {', '.join(GROUPS)}")
    if not given.cells:
        given.cells = [cell for group in given.groups or GROUPS for cell in GROUPS[group]]
    return given


def main() -> int:
    """Run the benchmark as the command line says."""
    given = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that every `finally` ends what it started
    begin = time.monotonic()
    rounds, seconds = max(1, given.rounds or (1 if given.quick else 3)), 0.5 if given.quick else 1.0
    one_cpu = given.cpus == "one"
    over_stdio = [target for target in targets.TARGETS if target.name in given.only]
    over_http = [target for target in http_targets.HTTP_TARGETS if target.name in given.only]
    if given.before is not None:
        over_stdio.append(targets.before(given.before))
        over_http.append(http_targets.before(given.before))
    stdio = StdioRun(over_stdio, rounds, seconds, one_cpu, id_last=given.id_last)
    http = HttpRun(over_http, rounds, seconds, one_cpu)
    settings = MiddlewareRun([t for t in SETTINGS if t.name in given.only], rounds, seconds, one_cpu)
    runs = {"stdio": (stdio, report), "http": (http, http_report), "middleware": (settings, middleware_report)}
    verdicts, parts = Verdicts(), []
    for group, (run, pages) in runs.items():
        if cells := [cell for cell in given.cells if cell in GROUPS[group]]:
            run.run(cells)
            parts.append(pages.tables(run.samples))
            pages.judge(run.samples, verdicts)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    machine = f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs"
    taken = f"{rounds} round(s) of {seconds} s, {time.monotonic() - begin:.0f} s in all"
    print(f"{machine}, calls on {given.cpus}; medians of {taken}\n")
    print("\n\n".join(parts))
    if verdicts:
        print(f"\nfigures\n{verdicts}")
    failures = {f"{name} ({group})": why for group, (run, _) in runs.items() for name, why in run.failures.items()}
    for name, reason in failures.items():
        print(f"\nFAILED {name}: {reason}")
    if given.json:
        samples = {**stdio.samples, **http.samples, **settings.samples}
        content = {"machine": machine, "cpus": given.cpus, "samples": samples, "failures": failures}
        given.json.write_text(json.dumps(content, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
