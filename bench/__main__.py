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

from bench.cells import CELLS, Bench
from bench.report import tables, verdicts
from bench.targets import TARGETS


def chosen(known: tuple[str, ...]) -> object:
    """Make a parser for comma-separated names out of a known set."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose from {', '.join(known)}")
        return names

    return parse


def main() -> int:
    """Run the benchmark as the command line says."""
    names = tuple(target.name for target in TARGETS)
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--quick", action="store_true", help="shorter slices and fewer rounds: a first look, in under 90 s")
    add("--only", type=chosen(names), default=list(names), metavar="NAME,...", help=f"targets: {', '.join(names)}")
    add("--cells", type=chosen(CELLS), default=list(CELLS), metavar="CELL,...", help=f"cells: {', '.join(CELLS)}")
    add("--rounds", type=int, metavar="N", help="rounds per cell (default: 3, with --quick 1)")
    add("--cpus", choices=["one", "all"], default="one", help="where calls are measured (default: one, see README.md)")
    add("--id-last", action="store_true", help="spell requests and results with the id last, as the official SDKs do")
    add("--json", type=Path, metavar="FILE", help="also write every sample to FILE")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that every `finally` ends what it started
    begin = time.monotonic()
    bench = Bench(
        targets=[target for target in TARGETS if target.name in options.only],
        rounds=max(1, options.rounds or (1 if options.quick else 3)),
        seconds=0.5 if options.quick else 1.0,
        one_cpu=options.cpus == "one",
        id_last=options.id_last,
    )
    bench.run(options.cells)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    machine = f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs"
    taken = f"{bench.rounds} round(s) of {bench.seconds} s, {time.monotonic() - begin:.0f} s in all"
    print(f"{machine}, calls on {options.cpus}; medians of {taken}\n")
    print(tables(bench.samples))
    if "muxway" in options.only:
        print(f"\nfigures\n{verdicts(bench.samples)}")
    for name, reason in bench.failures.items():
        print(f"\nFAILED {name}: {reason}")
    if options.json:
        report = {"machine": machine, "cpus": options.cpus, "samples": bench.samples, "failures": bench.failures}
        options.json.write_text(json.dumps(report, indent=1))
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
