"""Everything public says what it is."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import muxway

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[2] / "src"


def silent(path: Path) -> Iterator[str]:
    """What in this file is public and has no docstring. Methods that fulfil a port are described there."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    where = path.relative_to(SOURCE)
    if not ast.get_docstring(tree):
        yield f"{where} has no docstring"
    for node in tree.body:
        named = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if named and not node.name.startswith("_") and not ast.get_docstring(node):
            yield f"{where} line {node.lineno}: {node.name} has no docstring"


def test_every_module_class_and_function_says_what_it_is() -> None:
    """CONTRIBUTING.md#house-rules: purpose, border, one surprising fact."""
    assert [complaint for path in sorted(SOURCE.rglob("*.py")) for complaint in silent(path)] == []


def test_the_public_names_are_sorted() -> None:
    """Ours, after httpx: a list that is sorted is a list people can read."""
    assert list(muxway.__all__) == sorted(muxway.__all__)
    assert len({*muxway.__all__}) == len(muxway.__all__)


def test_every_public_name_can_be_imported() -> None:
    """Ours: they are loaded on first use, so a typing mistake would show only to a user."""
    assert [name for name in muxway.__all__ if getattr(importlib.import_module("muxway"), name, None) is None] == []


def test_a_name_that_is_not_public_is_not_there() -> None:
    """Ours: loading on first use must not turn every word into an attribute."""
    assert not hasattr(muxway, "Gatewya")
