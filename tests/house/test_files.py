"""What the files of the repository may and must contain."""

from __future__ import annotations

import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

import muxway

ROOT = Path(__file__).parents[2]

# Put together from pieces, so that this file does not offend against itself.
_HOMES = "|".join(("work", "root", "tmp"))
MACHINE_PATH = re.compile(rf"(?:file://|(?<![\w.~}})/*-]))/(?:{_HOMES})/")
_REGISTRY_WORDS = "|".join(("pypi", "npm", "registry", "artifactory", "nexus", "mirror", "packages"))
REGISTRY = re.compile(rf"https?://[\w.:@-]*\b(?:{_REGISTRY_WORDS})[\w.-]*", re.IGNORECASE)
PUBLIC = re.compile(
    r"https?://[\w.:@-]*\b(modelcontextprotocol\.io|pypi\.org|npmjs\.(com|org)|example(\.\w+)?)$", re.IGNORECASE
)
"""The registries everybody has, and names that RFC 2606 keeps for examples."""


@cache
def files() -> dict[str, str]:
    """Every text file that is or would be committed: path → text."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=30).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    texts: dict[str, str] = {}
    for name in sorted(filter(None, listed.decode().split("\0"))):
        try:
            texts[name] = (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue  # a picture, a deletion not yet committed, a submodule
    return texts


def offenders(pattern: re.Pattern[str], allowed: re.Pattern[str] | None = None) -> list[str]:
    """Where the pattern stands, as `file:line: match`."""
    return [
        f"{name}:{number}: {match[0]}"
        for name, text in files().items()
        for number, line in enumerate(text.splitlines(), 1)
        for match in pattern.finditer(line)
        if allowed is None or not allowed.match(match[0])
    ]


def test_no_file_knows_a_developers_machine() -> None:
    """Ours: a repository a stranger can use. In examples write /path/to or /home/user."""
    assert offenders(MACHINE_PATH) == []


def test_no_file_knows_a_private_package_registry() -> None:
    """Ours: packages come from whatever index the stranger has configured."""
    assert offenders(REGISTRY, PUBLIC) == []


def test_lock_files_name_no_place_to_download_from() -> None:
    """Ours: a pinned hash says what a package is; where it comes from is the user's to say."""
    locks = {name: text for name, text in files().items() if name.startswith("requirements/")}
    assert locks
    assert [
        f"{name}:{number}: {line.strip()}"
        for name, text in locks.items()
        for number, line in enumerate(text.splitlines(), 1)
        if "://" in line or line.lstrip().startswith(("--index", "--extra-index", "--find-links", "-i ", "-f "))
    ] == []


def test_lock_files_pin_every_package_with_a_hash() -> None:
    """Ours: what is tested is what is installed."""
    pinned = re.compile(r"^[A-Za-z0-9][\w.\[\],-]*==[^\s;]+")
    assert [
        f"{name}: {line[:60]}"
        for name, text in files().items()
        if name.startswith("requirements/") and name.endswith(".txt")
        for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines()
        if line.strip() and not line.lstrip().startswith("#") and not (pinned.match(line) and "--hash=" in line)
    ] == []


def test_every_decision_can_be_found() -> None:
    """Ours: a decision that nobody can find is made again."""
    index = ROOT / "docs" / "design" / "README.md"
    if not index.exists():
        pytest.skip("docs/design/README.md is not written yet")
    text = index.read_text(encoding="utf-8")
    decisions = sorted((ROOT / "docs" / "design" / "decisions").glob("*.md"))
    assert [
        f"{path.name} is not linked from docs/design/README.md" for path in decisions if path.name not in text
    ] == []


def test_the_changelog_has_an_entry_for_this_version() -> None:
    """Ours: what the user notices."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[?{re.escape(muxway.__version__)}\b", changelog, re.MULTILINE)


def test_there_is_one_version() -> None:
    """Ours: the package says what the metadata says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == muxway.__version__


@pytest.mark.parametrize(
    ("line", "offends"),
    [
        ("see /{}/main/src", True),
        ('"/{}/x"', True),
        ("file:///{}/x", True),
        ("https://{}/x", False),
        ("a/{}/b", False),
        ("/path/to/{}/x", False),
        ("/home/user/{}/x", False),
        ("$HOME/{}/x", False),
    ],
)
def test_the_rule_about_machines_knows_a_path_when_it_sees_one(line: str, offends: bool) -> None:
    """Ours: a rule that finds nothing must be shown to be able to."""
    assert [bool(MACHINE_PATH.search(line.format(home))) for home in _HOMES.split("|")] == [offends] * 3
