"""What a code host runs and shows of this repository."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
HOST = ROOT / ".github"
FORMS = sorted(path.name for path in (HOST / "ISSUE_TEMPLATE").glob("*.yml"))


def parsed(path: Path) -> dict[str, Any]:
    """A file of the code host's, read."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_workflow_runs_what_the_readme_says_wherever_muxway_is_for() -> None:
    """README.md: two commands, with nothing but Python and make. `pyproject.toml`: the versions and systems."""
    (job,) = parsed(HOST / "workflows" / "test.yml")["jobs"].values()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert set(named) <= set(job["strategy"]["matrix"]["python"])
    assert {"ubuntu-latest", "macos-latest"} == set(job["strategy"]["matrix"]["os"])
    (block,) = re.findall(
        r"^```sh\n(make run.+?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    first = [line.partition("#")[0].strip() for line in block.splitlines()]
    assert first == [step["run"] for step in job["steps"] if step.get("run", "").startswith("make ")]


@pytest.mark.parametrize("name", FORMS)
def test_a_form_for_issues_is_whole(name: str) -> None:
    """Ours: a form with a mistake is not shown, and nobody is told."""
    form = parsed(HOST / "ISSUE_TEMPLATE" / name)
    assert {"name", "description", "body"} <= form.keys()
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert all(part["attributes"]["label"] for part in asked)
    assert len({part["id"] for part in asked}) == len(asked)


def test_what_runs_before_a_commit_is_what_make_lint_runs() -> None:
    """Ours: the same ruff, from the same environment, and nothing fetched from anywhere."""
    (source,) = parsed(ROOT / ".pre-commit-config.yaml")["repos"]
    assert source["repo"] == "local"
    assert {hook["language"] for hook in source["hooks"]} == {"system"}
    entries = [hook["entry"].removeprefix(".venv/bin/").removesuffix(" --force-exclude") for hook in source["hooks"]]
    lint = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nlint:")[2].partition("\n\n")[0]
    assert [entry for entry in entries if f"$(BIN)/{entry}" not in lint] == []
