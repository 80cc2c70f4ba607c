"""The environments before the first test, and one run of the suite for each way that many tests look at."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop import peers

from . import suite, world

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
AT_ONCE = 2


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the environments here, where the time limit of a single test does not count."""
    if session.config.option.collectonly or not any(HERE in item.path.parents for item in session.items):
        return
    for env in ("mcp2", "node"):
        try:
            peers.ensure(env)
        except peers.SetupError:
            # The tests that need it ask again, and fail.
            return


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[suite.Case, suite.Result]]:
    """Way → the results of every server scenario at every revision, each way gone once."""
    cases = suite.plan("server")
    runs = sorted({(case.suite, case.revision) for case in cases}, reverse=True)

    @cache
    def judge(way: str) -> dict[suite.Case, suite.Result]:
        folder = tmp_path_factory.mktemp(way)
        with world.opened(way, folder) as url, ThreadPoolExecutor(AT_ONCE) as pool:
            parts = pool.map(lambda run: suite.judge_server(*run, url, folder / "-".join(run)), runs)
            return {case: result for part in parts for case, result in part.items()}

    return judge


@pytest.fixture(scope="session")
def judged_client(tmp_path_factory: pytest.TempPathFactory) -> Callable[[suite.Case], suite.Result]:
    """A client scenario → its result; all of its suite and revision are run at the first of them."""
    folder = tmp_path_factory.mktemp("client")

    @cache
    def judge(version: str, revision: str) -> dict[suite.Case, suite.Result]:
        cases = [case for case in suite.plan("client") if (case.suite, case.revision) == (version, revision)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            results = pool.map(lambda case: suite.judge_client(case, world.CLIENT, folder / str(case)), cases)
            return dict(zip(cases, results, strict=True))

    return lambda case: judge(case.suite, case.revision)[case]
