"""Users' own Python: where it failed, and taking it up again after an edit."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway
from muxway.chaining import chain, load_chain
from muxway.config import load_config, parse_config
from muxway.errors import ConfigError, RpcError
from muxway.middleware.engine import modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from muxway.config import Config

BROKEN = """
import json

def helper(request):
    return json.loads("{nothing}")

async def mine(request, next):
    helper(request)
    return await next(request)
"""
SAYS = """
async def mine(request, next):
    response = await next(request)
    response["result"]["content"][0]["text"] += " %s"
    return response
"""


class Echo:
    def echo(self, text: str) -> str:
        return text


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Write a module beside the config; whatever was imported is forgotten at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = dict(sys.modules)

    def write(text: str, name: str = "own_module") -> None:
        (tmp_path / f"{name}.py").write_text(text)

    yield write
    for name in [name for name in sys.modules if name not in before]:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
            modules._known.pop(name, None)  # pyright: ignore[reportPrivateUsage] - one for the process


def config(**keys: Any) -> Config:
    """A server of this process behind the user's middleware."""
    given = {"mcpServers": {"s": {"command": "(in-process)"}}, "middleware": ["own_module:mine"], **keys}
    return replace(parse_config(given), objects={"s": Echo()})


async def _text(gateway: Gateway) -> str:
    return (await gateway.call("s__echo", {"text": "said"})).text


async def test_a_failure_names_the_line_of_the_users_own_code(
    write: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """Ours: docs/middleware/writing.md: the error has file and line, the log has the traceback."""
    write(BROKEN)
    async with Gateway.open(config()) as gateway:
        with pytest.raises(RpcError, match=r"JSONDecodeError: .* \(own_module\.py:5\)"):
            await _text(gateway)
    told = next(message for message in caplog.messages if message.startswith("traceback"))
    assert 'own_module.py", line 8, in mine' in told
    assert 'own_module.py", line 5, in helper' in told
    assert "muxway/middleware/" not in told


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("x = (\n", r"SyntaxError: .* \(own_module\.py:1\)"),
        ("\n\nimport no_such_thing\n", r"ModuleNotFoundError: .* \(own_module\.py:3\)"),
        (
            "from muxway import Middleware\nclass mine(Middleware):\n    def __init__(self): 1/0\n",
            r"\(own_module\.py:3\)",
        ),
    ],
)
def test_a_module_that_cannot_be_used_names_its_line(
    text: str, where: str, write: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """Ours: the same at the start."""
    write(text)
    with pytest.raises(ConfigError, match=where):
        Gateway(config())
    assert any(message.startswith("traceback") and "own_module.py" in message for message in caplog.messages)


@pytest.mark.parametrize("named_by", ["path", "link"])
async def test_a_module_beside_the_config_is_found_from_anywhere(
    named_by: str, write: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: docs/middleware/writing.md. Clients start muxway in folders of their own choice."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    name = f"own_module_by_{named_by}"
    write(SAYS % "once", f"home/{name}")
    given = {"mcpServers": {"s": {"command": "(in-process)"}}, "middleware": [f"{name}:mine"]}
    file = home / "servers.json"
    file.write_text(json.dumps(given))
    if named_by == "link":
        (elsewhere / "linked").mkdir()
        file = elsewhere / "linked" / "servers.json"
        file.symlink_to(home / "servers.json")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(elsewhere)
    async with Gateway.open(replace(load_config(file), objects={"s": Echo()})) as gateway:
        assert await _text(gateway) == "said once"


@pytest.mark.parametrize(
    ("use", "told"),
    [
        ("own_modul:mine", r"there is no module own_modul, neither in .*home nor in .*, nor installed"),
        ("own_modul.inner:mine", r"there is no module own_modul, neither in"),
        ("own_names:Quite", r"the module own_names has no Quite; did you mean Quiet\?"),
        ("own_names:elsewhere", r"the module own_names has no elsewhere; it has Quiet, Called, Slip"),
        ("own_names:Called", r"has no hook, so it would do nothing; hooks are: after, any_request, .*call_tool"),
        (
            "./own_names.py:Quiet",
            r"names a file; write the module: own_names:Quiet, with own_names.py beside the config",
        ),
        ("own_names.py:Quiet", r"names a file; write the module: own_names:Quiet"),
        ("/some/where/own_names:Quiet", r"names a file; write the module: own_names:Quiet"),
        (".own_names:Quiet", r"names a file; write the module: own_names:Quiet"),
        ("own_names:Slip", r"would do nothing; did you mean `call_tool` by `call_tol`\?"),
    ],
)
def test_a_slip_in_a_name_is_told_with_the_file_and_what_there_is(
    use: str, told: str, write: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: docs/middleware/README.md: `muxway check` says which and where."""
    (tmp_path / "home").mkdir()
    write(
        "from muxway import Middleware\n"
        "class Quiet(Middleware): pass\n"
        "class Called(Middleware):\n"
        "    async def __call__(self, request, go): return await go(request)\n"
        "class Slip(Middleware):\n"
        "    async def call_tol(self, request, go): return await go(request)\n",
        "home/own_names",
    )
    file = tmp_path / "home" / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"s": {"command": "x"}}, "middleware": [use]}))
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(ConfigError, match=told) as caught:
        Gateway(load_config(file))
    assert str(caught.value).startswith(f"{file}: 1 problem\n")
    assert "importlib" not in str(caught.value)


def test_a_chain_file_that_fails_names_its_line(
    write: Callable[..., None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ours: docs/middleware/writing.md."""
    write("from muxway import chain\ngateway = chain().then(a='x')\ngateway.nothing()\n", "own_chain")
    with pytest.raises(ConfigError, match=r"own_chain.py failed with AttributeError: .* \(own_chain\.py:3\)") as caught:
        load_chain(tmp_path / "own_chain.py")
    assert caught.value.details[0].line == 3
    assert any('own_chain.py", line 3' in message for message in caplog.messages)


async def test_a_reload_takes_up_edited_modules(write: Callable[..., None]) -> None:
    """Ours: docs/reload.md: modules of middlewares, and what they import beside them."""
    write(SAYS % "one")
    async with Gateway.open(config()) as gateway:
        settings = gateway.config
        assert await _text(gateway) == "said one"
        assert not await gateway.apply(settings)
        write(SAYS % "two")  # as long as before, and within the same second
        planned = gateway.planned(settings)
        changes = await gateway.apply(settings)
        assert changes.modules == planned.modules == ("own_module",)
        assert not gateway.planned(settings)
        assert changes.lines() == ["keep    s", "import  module own_module, which was edited"]
        assert await _text(gateway) == "said two"
        write("from own_helper import mine\n")
        write(SAYS % "three", "own_helper")
        await gateway.apply(settings)
        assert await _text(gateway) == "said three"
        write(SAYS % "four!", "own_helper")
        assert (await gateway.apply(settings)).modules == ("own_helper",)
        assert await _text(gateway) == "said four!"


async def test_a_module_that_fails_leaves_the_old_one_in_force(write: Callable[..., None]) -> None:
    """Ours: docs/reload.md: what may fail is made first."""
    write(SAYS % "one")
    async with Gateway.open(config()) as gateway:
        await _text(gateway)
        before = sys.modules["own_module"]
        for broken in ("x = (", "1 / 0", "no = 1", "async def mine(what): ..."):
            write(broken)
            with pytest.raises(ConfigError, match="own_module"):
                await gateway.apply(gateway.config)
            assert sys.modules["own_module"] is before
            assert await _text(gateway) == "said one"
        write(SAYS % "two")
        await gateway.apply(gateway.config)
        assert await _text(gateway) == "said two"


def test_a_chain_file_takes_up_edited_modules_beside_it(write: Callable[..., None], tmp_path: Path) -> None:
    """Ours: the file itself is read each time; what it imports is, too."""
    write("from muxway import chain\nfrom own_servers import servers\ngateway = chain().then(**servers)\n", "own_chain")
    write("servers = {'a': 'x'}", "own_servers")
    assert [*load_chain(tmp_path / "own_chain.py").servers] == ["a"]
    write("servers = {'b': 'x'}", "own_servers")
    assert [*load_chain(tmp_path / "own_chain.py").servers] == ["b"]


@pytest.mark.parametrize("server", ["npx -y foo", ["npx", "foo"], {"command": "npx"}])
def test_a_server_without_a_name_is_told_what_it_lacks(server: Any) -> None:
    """Ours: docs/middleware/writing.md: servers are keywords of `then`, and what is in them is not shown."""
    with pytest.raises(TypeError, match=r"If it is a server give it a name: \.then\(name=") as caught:
        chain().then(server)
    assert "npx" not in str(caught.value)
