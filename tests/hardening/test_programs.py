"""What is started, with which arguments and variables: only what the operator wrote (docs/security.md)."""

from __future__ import annotations

import ast
import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muxway import Gateway
from muxway.config import Config, parse_config
from muxway.config.loader_variables import is_loader
from muxway.errors import ConfigError
from muxway.servers.transports.command import child_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

law = settings(deadline=None)
"""A busy machine is no fault."""

SOURCE = Path(__file__).parents[2] / "src"


def config_of(entry: dict[str, Any], **environ: str) -> Config:
    """A configuration of one server."""
    return parse_config({"mcpServers": {"s": {"command": "srv", **entry}}}, environ={"HOME": "/home/me", **environ})


def refusal(entry: dict[str, Any], **environ: str) -> tuple[str, str]:
    """Path and message of the one problem there must be."""
    with pytest.raises(ConfigError) as caught:
        config_of(entry, **environ)
    [problem] = caught.value.details
    assert not [value for value in environ.values() if len(value) > 4 and value in str(caught.value)]
    return problem.path, problem.message


# --- arguments --------------------------------------------------------------------------------

hostile = st.one_of(
    st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    st.sampled_from(["a b", "a;b", "$(x)", "`x`", "a|b", "a&&b", '"', "'", "\n", "*", "${HOME}", "$HOME", "~", "a\tb"]),
)
written = st.sampled_from(["${V}", "$V", "x${V}", "--key=${V}", "${V}${V}", "plain", "${V:-d}", "{env:V}", "a $V b"])


@law
@given(st.lists(written, max_size=6), hostile)
def test_an_argument_stays_one_argument_whatever_its_variable_holds(args: list[str], value: str) -> None:
    """docs/security.md#what-is-promised-threat-by-threat.

    Expansion yields exactly one element, never split, never looked at again.
    """
    if value.startswith("-"):
        # Refused, as the next test shows.
        args = [arg for arg in args if not arg.startswith(("$", "{"))]
    got = config_of({"args": args}, V=value).servers["s"].args
    assert len(got) == len(args)
    for before, after in zip(args, got, strict=True):
        known = value or "d" if ":-" in before else value
        assert after == before.replace("${V:-d}", known).replace("{env:V}", "$V").replace("${V}", "$V").replace(
            "$$V", "$V"
        ).replace("$V", known)


FLAGS = [
    "-e", "--privileged", "--volume=/:/host", "-v/:/host", "--", "-", "-c", "--eval", "--require=evil", "--user=0",
    "--network=host", "-oProxyCommand=evil",
]  # fmt: skip


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("argument", ["${V}", "$V", "{env:V}", "${EMPTY}${V}", "${V}/x"])
@pytest.mark.parametrize("key", ["args", "command"])
def test_a_variable_cannot_become_an_option(flag: str, argument: str, key: str) -> None:
    """docs/security.md#what-is-promised-threat-by-threat.

    12 flag-shaped values. `docker run ${IMAGE}` must not gain a mount.
    """
    entry = {"args": ["run", argument]} if key == "args" else {"command": ["srv", argument]}
    path, message = refusal(entry, V=flag, EMPTY="")
    assert path == f"mcpServers.s.{key}.1"
    assert "becomes an option of the program" in message


@pytest.mark.parametrize("argument", ["--key=${V}", "-$V", "x${V}", "-"])
def test_an_option_that_is_written_is_one(argument: str) -> None:
    """Ours: the value of an option may be anything."""
    assert len(config_of({"args": [argument]}, V="--evil").servers["s"].args) == 1


def test_no_module_knows_a_shell() -> None:
    """docs/security.md#what-is-promised-threat-by-threat: no shell ever."""
    assert [
        f"{path.relative_to(SOURCE)} line {line}: {what}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line, what in _shells(ast.parse(path.read_text(encoding="utf-8")))
    ] == []


def _shells(tree: ast.Module) -> Iterator[tuple[int, str]]:
    banned = {"system", "popen", "create_subprocess_shell", "getoutput", "getstatusoutput"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in banned:
            yield node.lineno, node.attr
        if isinstance(node, ast.keyword) and node.arg == "shell":
            yield node.lineno, "shell="
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec"}:
            yield node.lineno, node.func.id


# --- variables that load code -----------------------------------------------------------------

LOADERS = [
    "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "NODE_OPTIONS", "PYTHONPATH",
    "PYTHONSTARTUP", "BASH_ENV", "ENV", "PERL5OPT", "RUBYOPT", "GIT_SSH_COMMAND", "JAVA_TOOL_OPTIONS",
    "npm_config_node_options", "GCONV_PATH", "DOTNET_STARTUP_HOOKS",
]  # fmt: skip
EVIL = "/evil/code"


@pytest.mark.parametrize("name", LOADERS)
def test_what_loads_code_comes_only_from_where_it_is_written(name: str, tmp_path: Path) -> None:
    """docs/security.md#what-is-promised-threat-by-threat.

    Refused by inheritance, by file and by expansion; the operator may write it out.
    """
    assert config_of({"env": {name: EVIL}}).servers["s"].env == {name: EVIL}
    assert refusal({"env": {name: "${V}"}}, V=EVIL)[0] == f"mcpServers.s.env.{name}"
    assert "may not be inherited" in refusal({"envVars": [name]}, **{name: EVIL})[1]
    assert "may not be inherited" in refusal({"inheritEnv": [name]}, **{name: EVIL})[1]
    everything = config_of({"inheritEnv": True}, **{name: EVIL})
    assert [warning.path for warning in everything.warnings] == ["mcpServers.s.inheritEnv"]
    file = tmp_path / ".env"
    file.write_text(f"{name}={EVIL}\nPLAIN=1\n")
    from_file = config_of({"envFile": str(file)})
    assert from_file.servers["s"].env == {"PLAIN": "1"}
    assert [warning.path for warning in from_file.warnings] == ["mcpServers.s.envFile"]
    for inherit in (True, False, (name,)):
        assert child_environment({}, inherit=inherit, environ={name: EVIL, "HOME": "/"}) == {"HOME": "/"}


@pytest.mark.parametrize("name", ["PATH", "HOME", "API_TOKEN", "NODE_ENV", "PYTHONUNBUFFERED", "ENV", "LANG"])
def test_other_variables_are_passed_as_ever(name: str) -> None:
    """Ours: `ENV=production` is no start file of a shell."""
    assert not is_loader(name, "production")
    assert child_environment({}, inherit=(name,), environ={name: "production"}) == {name: "production"}


def test_a_place_that_everybody_knows_may_be_part_of_it() -> None:
    """Ours: `PYTHONPATH: ${workspaceFolder}/src` is what editors document."""
    servers = config_of({"env": {"PYTHONPATH": "${userHome}/lib:${HOME}/src"}}).servers
    assert servers["s"].env == {"PYTHONPATH": "/home/me/lib:/home/me/src"}


def test_a_server_that_is_off_is_no_problem() -> None:
    """Ours: what is not started does no harm."""
    entry = {"args": ["${V}"], "env": {"LD_PRELOAD": "${V}"}, "disabled": True}
    assert not config_of(entry, V="--evil").servers["s"].enabled


# --- what a child gets ------------------------------------------------------------------------

CHILD = """
import json, os, sys
fds = sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}"))
facts = {"argv": sys.argv[1:], "env": dict(os.environ), "fds": fds}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    match message["method"]:
        case "initialize":
            info = {"name": "c", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            result = {"tools": [{"name": "facts", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": json.dumps(facts)}]}
        case _:
            result = None
    answer = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
async def test_a_child_gets_its_own_arguments_variables_and_three_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/security.md#what-is-promised-threat-by-threat.

    Neither our canary nor its neighbour's secret, and no file of ours.
    """
    program = tmp_path / "child.py"
    program.write_text(CHILD)
    for name, value in {"CANARY": "ours", "LD_DEBUG_OUTPUT": "/x", "NODE_OPTIONS": "--x", "V": "a b; $(c) *\n"}.items():
        monkeypatch.setenv(name, value)
    hostile_args = ["${V}", "--k=${V}", "$$HOME", "`x`"]
    both = {"command": sys.executable, "args": [str(program), *hostile_args]}
    config = parse_config(
        {"mcpServers": {"one": {**both, "env": {"SECRET_ONE": "s3cr3t"}}, "two": {**both, "inheritEnv": True}}}
    )
    async with asyncio.timeout(30), Gateway.open(config) as gateway:
        one, two = [json.loads((await gateway.call(f"{name}.facts")).text) for name in ("one", "two")]
    for facts in (one, two):
        assert facts["argv"] == ["a b; $(c) *\n", "--k=a b; $(c) *\n", "$HOME", "`x`"]
        assert facts["fds"] == [0, 1, 2]
        assert "LD_DEBUG_OUTPUT" not in facts["env"]
        assert "NODE_OPTIONS" not in facts["env"]
    assert "CANARY" not in one["env"]
    assert two["env"]["CANARY"] == "ours"
    assert one["env"]["SECRET_ONE"] == "s3cr3t"
    assert "SECRET_ONE" not in two["env"]
