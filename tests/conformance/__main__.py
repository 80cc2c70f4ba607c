"""Judge by hand.

    python -m tests.conformance WAY SUITE REVISION [SCENARIO]

for example `through 0.2 2026-07-28 caching`; without a scenario all of the revision. The way is direct,
through or twice for a server scenario, client for a client scenario. Logs and results stay in the folder it names.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from . import suite, world


def main(way: str, version: str, revision: str, scenario: str = "") -> int:
    folder = Path(tempfile.mkdtemp(prefix="conformance-"))
    say(f"logs and results: {folder}")
    if way == "client":
        cases = [case for case in suite.plan("client") if (case.suite, case.revision) == (version, revision)]
        wanted = [case for case in cases if scenario in ("", case.scenario)]
        results = {case: suite.judge_client(case, world.CLIENT, folder / case.scenario) for case in wanted}
    else:
        with world.opened(way, folder) as url:
            results = suite.judge_server(version, revision, url, folder / "results", scenario)
    if not results:
        say("the suite has no such scenario at this revision")
        return 2
    for case, result in results.items():
        say(f"{'pass' if result.passed else 'FAIL'} {case.scenario}: {result}")
    bad = sum(not result.passed for result in results.values())
    say(f"{len(results) - bad} of {len(results)} pass")
    return int(bad > 0)


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    if not 4 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
