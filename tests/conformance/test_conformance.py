"""The official conformance suite: against the reference server, through muxway, and muxway as a client."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import REVISIONS

from . import suite, world

if TYPE_CHECKING:
    from collections.abc import Callable

# The first test of each way waits for all of that way.
pytestmark = pytest.mark.timeout(300)

EXPECTED: list[dict[str, Any]] = tomllib.loads((suite.HERE / "expected_failures.toml").read_text())["expected"]


def reasons(way: str, case: suite.Case) -> list[str]:
    """Why this case is expected to fail on this way: nothing, or one reason."""
    return [
        entry["reason"]
        for entry in EXPECTED
        if way in entry["ways"]
        and case.scenario in entry["scenarios"]
        and case.suite in entry.get("suites", (case.suite,))
        and case.revision in entry.get("revisions", (case.revision,))
    ]


def check(way: str, case: suite.Case, result: suite.Result) -> None:
    expected, passed = reasons(way, case), result.passed
    if expected:
        assert not passed, f"it passes now: take it off expected_failures.toml ({expected[0]})"
    else:
        assert passed, str(result)


@pytest.mark.parametrize("case", suite.plan("server"), ids=str)
@pytest.mark.parametrize("way", world.WAYS)
def test_a_server_scenario_passes(
    way: str, case: suite.Case, judged: Callable[[str], dict[suite.Case, suite.Result]]
) -> None:
    """tests/conformance/README.md: what passes directly passes through muxway, and through two."""
    check(way, case, judged(way)[case])


@pytest.mark.parametrize("case", suite.plan("client"), ids=str)
def test_a_client_scenario_passes(case: suite.Case, judged_client: Callable[[suite.Case], suite.Result]) -> None:
    """tests/conformance/README.md: muxway's side towards servers, judged by the suite's mock servers."""
    check("client", case, judged_client(case))


@pytest.mark.parametrize("kind", ["server", "client"])
@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_every_scenario_of_the_suite_is_in_our_plan(kind: str, version: str) -> None:
    """Ours: a new version of the suite must not bring scenarios that nobody runs."""
    planned: dict[str, list[str]] = {}
    for case in suite.plan(kind):
        if case.suite == version:
            planned.setdefault(case.revision, []).append(case.scenario)
    planned.pop(suite.EXTENSION, None)
    offered = {revision: suite.listed(version, kind, revision) for revision in REVISIONS}
    if (kind, version) == ("server", "0.1"):
        # Asked for an older revision, it leaves out scenarios but still speaks the newest.
        assert set(offered["2025-06-18"]) < set(offered.pop("2025-11-25")) == set(planned["2025-11-25"])
        return
    assert {revision: names for revision, names in offered.items() if names} == planned


def test_every_expected_failure_is_about_a_case_there_is() -> None:
    """Ours: a list that may only shrink has nothing in it that matches nothing, or is said twice."""
    for entry in EXPECTED:
        places = [
            (way, case) for way in entry["ways"] for case in suite.plan("client" if way == "client" else "server")
        ]
        matched = [(way, case) for way, case in places if entry["reason"] in reasons(way, case)]
        assert {case.scenario for _, case in matched} == set(entry["scenarios"]), entry["reason"]
        assert [place for place in matched if len(reasons(*place)) > 1] == []
