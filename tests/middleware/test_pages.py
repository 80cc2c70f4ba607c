"""The page of a middleware has its options, and examples that work."""

from __future__ import annotations

import importlib
import inspect
import json
import re

import pytest

from muxway.config import parse_config
from muxway.middleware.engine.loading import BUILT_IN, layers_of

from ..docs.pages import ROOT

NAMES = list(BUILT_IN)


def page(name: str) -> str:
    return (ROOT / "docs" / "middleware" / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_on_the_page_and_in_the_docstring(name: str) -> None:
    """Ours: a page per built-in."""
    kind = getattr(importlib.import_module(f"muxway.middleware.builtin.{name}"), name.capitalize())
    options = [option for option in inspect.signature(kind).parameters if option != "known_secrets"]
    table = page(name).partition("| Option | Default | |\n|---|---|---|\n")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == options
    # From 3.13 on the compiler takes the indent out of a docstring; `cleandoc` gives the same everywhere.
    assert re.findall(r"^    (\w+): ", inspect.cleandoc(kind.__doc__), re.MULTILINE) == options
    assert "**Cost:**" in page(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_on_the_page_can_be_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: every example is run by the tests."""
    for variable in ("API_TOKEN", "CRM_TOKEN"):
        monkeypatch.setenv(variable, "a-long-secret")
    examples = [text for text in re.findall(r"```json\n(.*?)```", page(name), re.DOTALL) if "mcpServers" in text]
    assert examples
    for example in examples:
        assert name in [layer.name for layer in layers_of(parse_config(json.loads(example)))]
