"""The guide to writing one: what it shows works as it says."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from muxway import Gateway, RpcError
from muxway.chaining import load_chain
from muxway.config import parse_config
from muxway.middleware.engine.base import HOOKS, Middleware

from ..docs.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = (ROOT / "docs" / "middleware" / "writing.md").read_text(encoding="utf-8")
FUNCTIONS, CLASS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


class Files:
    """Some tools to be around."""

    def read(self, name: str) -> str:
        """Read."""
        return f"text of {name}"

    def delete(self, name: str) -> str:
        """Delete."""
        return f"{name} is gone"


async def test_the_functions_of_the_guide(tmp_path: Path) -> None:
    file = tmp_path / "front.py"
    demo = FUNCTIONS.replace('["uvx", "mcp-server-time"]', f'["{sys.executable}", "-m", "muxway.demo.clock"]')
    file.write_text(demo)
    async with Gateway.open(load_chain(file)) as gateway:
        await gateway.add("files", server=Files())
        assert (await gateway.call("files.read", {"name": "a"})).text == "text of a"
        with pytest.raises(RpcError, match="nothing is deleted here"):
            await gateway.call("files.delete", {"name": "a"})


async def test_the_class_of_the_guide_from_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shout.py").write_text(CLASS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    off = {"off": {"command": "none", "disabled": True}}
    config = parse_config({"mcpServers": off, "middleware": [{"use": "shout:Shout", "mark": "?"}]})
    async with Gateway.open(config) as gateway:
        await gateway.add("files", server=Files())
        assert (await gateway.call("files.read", {"name": "a"})).text == "TEXT OF A?"


def test_every_hook_is_in_the_table() -> None:
    named = set(re.findall(r"`(\w+)`", GUIDE.partition("| Hook | Called for |")[2].partition("\n\n")[0]))
    assert {*HOOKS.values(), "any_request", "ask", "notice", "close"} <= named
    assert all(hasattr(Middleware, hook) for hook in HOOKS.values())
