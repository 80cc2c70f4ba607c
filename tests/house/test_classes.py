"""One name, one class: whoever reads a name need not ask which of two it is."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "muxway"


def test_class_names_are_unique() -> None:
    """docs/design/README.md#words: class names are unique, private ones too."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_nobody_but_wire_compares_revisions() -> None:
    """docs/design/README.md#two-eras-one-model: what a revision means is asked of it, `wire` alone knows their order.

    Programs that speak for one side of a test or a demo have the revision that they are given.
    """
    offenders = [
        f"{path.relative_to(SOURCE)}:{node.lineno} compares revisions; give `wire/revisions.py` a word for it"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in ("wire", "testing", "demo")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare)
        and any(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in node.ops)
        and any(_is_revision(side) for side in (node.left, *node.comparators))
    ]
    assert offenders == []


def _is_revision(node: ast.expr) -> bool:
    said = ast.unparse(node).removesuffix(".date")
    return said.rpartition(".")[2] in ("revision", "version") or said in ("NEWEST", "revisions.NEWEST")


def test_no_two_files_of_a_folder_differ_by_an_ending() -> None:
    """docs/design/README.md#words: nobody tells `listing` from `listings`."""
    twins: set[tuple[str, str]] = set()
    for folder in {path.parent for path in SOURCE.rglob("*.py")}:
        stems = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("__")}
        roots = {
            one: {one.removesuffix(cut) for cut in ("", "e", "s", "es", "ing", "ed", "er", "ers")} for one in stems
        }
        twins |= {
            (f"{folder.relative_to(SOURCE)}/{one}", other)
            for one in stems
            for other in stems
            if one < other and roots[one] & roots[other]
        }
    assert twins == set()
