"""The pages say what is true: links lead somewhere, programs run, configs load, generated parts are up to date."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muxway import Gateway, SyncGateway
from muxway.config import load_config
from muxway.net.secret_store import SecretStore
from muxway.regexes import Regex
from tests.docs.pages import ROOT, Block, anchors, blocks, links, name_of, pages

if TYPE_CHECKING:
    from types import ModuleType

PAGES = pages()
PROGRAMS = [block for block in blocks("python") if block.text.startswith("# runnable")]
CONFIGS = [
    block
    for block in blocks("json", "jsonc", "toml", "yaml")
    if re.search(r"\b(mcpServers|mcp_servers|servers)\b", block.text)
]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """`docs/generate.py`, which is no part of a package."""
    return script("generate.py")


def script(name: str) -> ModuleType:
    """A script of the docs, imported."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / "docs" / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["configuration.md", "cli.md", "setup.md"])
def test_a_generated_page_is_up_to_date(generate: ModuleType, page: str) -> None:
    """Ours: one source for the keys and the verbs. Run `.venv/bin/python docs/generate.py`."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert "<!-- generated: " in text
    assert generate.render(text) == text


def test_the_picture_of_a_session_shows_what_the_commands_say() -> None:
    """Ours: all but the times, which differ. Run `.venv/bin/python docs/pictures/session.py`."""
    session = script("pictures/session.py")

    def words(svg: str) -> list[str]:
        cells = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
        return [re.sub(r"[\d.]+ ms", "… ms", cell) for cell in cells]

    drawn = session.PICTURE.read_text(encoding="utf-8")
    assert words(session.drawn(session.session())) == words(drawn)


def test_the_command_page_is_what_help_prints() -> None:
    """Ours: the page is made inside this process; the command says the same."""
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "muxway", "call", "--help"]
    said = subprocess.run(command, capture_output=True, text=True, env=env, timeout=30, check=True).stdout
    assert said.rstrip() in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    """Ours: to a file, and to a heading or a test in it if it names one."""
    assert [f"{name_of(page)}: {link}" for link in links(page) if not _leads_somewhere(page, link)] == []


def _leads_somewhere(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True  # the web is not ours to test
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return False
    if not anchor:
        return True
    if target.suffix == ".py":
        functions = re.findall(r"^(?:async )?def (\w+)\(", target.read_text(encoding="utf-8"), re.MULTILINE)
        return anchor in functions
    return anchor in anchors(target)


def test_every_promise_links_to_a_test() -> None:
    """Ours: a promise nobody tests is a hope."""
    text = (ROOT / "docs" / "behaviour.md").read_text(encoding="utf-8")
    promises = re.findall(r"^- (.+?)(?=^- |^$)", text, re.MULTILINE | re.DOTALL)
    tables = re.findall(r"^\| What \| Then \| Test \|\n.+\n((?:\|.+\n)+)", text, re.MULTILINE)
    promises += [row for table in tables for row in table.splitlines()]
    assert len(promises) > 80
    assert [promise for promise in promises if "../tests/" not in promise] == []


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_program_on_a_page_runs(block: Block, tmp_path: Path) -> None:
    """Ours: a block that begins with `# runnable` is a whole program."""
    file = tmp_path / "program.py"
    file.write_text(block.text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_on_a_page_can_be_parsed(block: Block) -> None:
    """Ours: also what is only a part of a program."""
    compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", CONFIGS, ids=str)
def test_a_config_on_a_page_loads_without_a_warning(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: whatever has servers in it is a whole config."""
    file = tmp_path / f"config.{block.language}"
    file.write_text(block.text, encoding="utf-8")
    environ = {"HOME": str(tmp_path)} | {
        name: "value" for name in re.findall(r"\$\{?(?:env:)?([A-Z_]+)", block.text) if name != "HOME"
    }
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name in re.findall(r"\$\{(?:secret|input):([^}]+)\}", block.text):
        SecretStore().write(name, "value")
    config = load_config(file, environ=environ)
    assert config.servers
    assert config.warnings == ()


def test_the_messages_on_the_errors_page_are_those_of_the_code() -> None:
    """Ours: people search for what they read. `…` stands for what varies."""
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    said = [match[2] for line in page.splitlines() if line.startswith("| ") for match in _messages(line)]
    assert len(said) > 30
    source = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py")))
    # A message that goes on in the next line of the source is one message.
    source = re.sub(r'"\s*\n\s*f?"', "", source).replace('\\"', '"')
    parts = [part.strip(' ":;,.()') for message in said for part in message.split("…")]
    assert [part for part in parts if part and part not in source] == []


def _messages(line: str) -> list[re.Match[str]]:
    column = line.split(" | ")[2] if line.startswith(("| -", "| the same")) else line.split(" | ")[1]
    return list(re.finditer(r"(`+)(.+?)\1", column))


def test_every_module_is_on_the_design_page() -> None:
    """Ours: who looks for a place finds them all. Verbs, demo servers and test peers are named after what they are."""
    page = (ROOT / "docs" / "design" / "README.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "muxway"
    modules = [path.relative_to(source).as_posix() for path in sorted(source.rglob("[!_]*.py"))]
    alike = ("cli/", "demo/", "testing/")
    assert [name for name in modules if not name.startswith(alike) and f"/src/muxway/{name})" not in page] == []


def test_the_gateway_without_await_has_the_methods_that_the_page_says() -> None:
    """docs/library.md: those of the table, but for the ones that the page names."""
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(?:await )?gateway\.(\w+)\(", page, re.MULTILINE))
    assert len(documented) > 12
    assert [name for name in documented if not hasattr(Gateway, name)] == []
    missing = {name for name in documented if not hasattr(SyncGateway, name)}
    assert missing == {"list_tools", "memory_door", "stdio_door"}


def test_the_longest_text_that_the_page_on_shapes_names_is_that_of_its_pattern() -> None:
    """docs/shaping.md: a limit is a promise."""
    page = (ROOT / "docs" / "shaping.md").read_text(encoding="utf-8")
    pattern = r"^\w+$"
    assert f"over {Regex(pattern).longest:,} bytes for `{pattern}`" in page
