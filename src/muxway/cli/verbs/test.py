"""`muxway test`: do composed tools do what the examples beside them say?"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click
from msgspec import Raw

from muxway.calls.call import LIBRARY, Call
from muxway.calls.ports import Waiter
from muxway.cli.exits import FAILED
from muxway.cli.help import Verb
from muxway.cli.options import chosen, config_option, debug_option, json_option, read_config
from muxway.cli.output import badge, one_line, plural, show_json
from muxway.cli.session import only, opened, quiet_log, run
from muxway.cli.verbs.call import owners
from muxway.composed.evaluation import same
from muxway.composed.running import Composition
from muxway.errors import RpcError
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from muxway.calls.ports import Running, Sink
    from muxway.config import Config
    from muxway.config.model import CustomTool, Example
    from muxway.gateway import Gateway

_RESULT_KEYS = frozenset(("content", "structuredContent", "isError"))


@click.command(
    cls=Verb,
    examples=["muxway test servers.json", "muxway test servers.json --live", "muxway test --json | jq .cases"],
)
@click.argument("file", required=False)
@config_option
@click.option("--live", is_flag=True, help="Call the servers instead of using the recorded results.")
@json_option
@debug_option
def command(file: str | None, config: str | None, *, live: bool, as_json: bool, debug: bool) -> None:
    """Run the examples of composed tools.

    Each example calls the tool with its `input`; the result must contain what it
    `expect`s. Without --live no server is started: steps get the results that the
    example has `recorded` for their tools.

    Exit 1 if an example fails or there is none, 3 if the config cannot be used.
    """
    file = chosen(file, config)
    quiet_log(debug=debug)
    loaded = read_config(file)
    cases = run(_run_live(loaded) if live else _run_recorded(loaded))
    failed = [case for case in cases if case.problems]
    if as_json:
        show_json({"ok": bool(cases) and not failed, "cases": [_described(case) for case in cases]})
    else:
        _show(cases)
    if failed or not cases:
        raise click.exceptions.Exit(FAILED)


class Case(NamedTuple):
    """An example and what came of it."""

    tool: str
    name: str
    problems: list[str]


def _described(case: Case) -> dict[str, Any]:
    return {"tool": case.tool, "name": case.name, "ok": not case.problems, "problems": case.problems}


def _show(cases: list[Case]) -> None:
    for case in cases:
        click.echo(f"{badge('failed' if case.problems else 'ok')}  {one_line(f'{case.tool}: {case.name}')}")
        for problem in case.problems:
            click.echo(f"    {one_line(problem)}")
    failed = sum(1 for case in cases if case.problems)
    if not cases:
        click.echo("no composed tool has `examples`", err=True)
    else:
        click.echo(f"{plural(len(cases), 'example')}: {len(cases) - failed} passed, {failed} failed")


def _examples(config: Config) -> list[tuple[CustomTool, Example]]:
    return [(tool, example) for tool in config.tools.values() for example in tool.examples]


# --- running ----------------------------------------------------------------------------------


async def _run_live(config: Config) -> list[Case]:
    examples = _examples(config)
    needed = {name for tool, _ in examples for name in owners(config, tool.name)}
    async with opened(only(config, needed)) as gateway:
        return [
            Case(tool.name, example.name, judge(example, await _called(gateway, tool, example)))
            for tool, example in examples
        ]


async def _called(gateway: Gateway, tool: CustomTool, example: Example) -> Mapping[str, Any]:
    try:
        return (await gateway.call(tool.name, example.input)).raw
    except RpcError as error:
        return _failure(error)


async def _run_recorded(config: Config) -> list[Case]:
    cases: list[Case] = []
    for tool, example in _examples(config):
        recorded = Recorded(config.tools, example.recorded)
        waiter = Waiter()
        params = {"name": Raw(envelopes.encode(tool.name)), "arguments": Raw(envelopes.encode(example.input))}
        running = recorded.handle(Call(LIBRARY, "tools/call", params), waiter)
        try:
            result = envelopes.value(await waiter.outcome(running))
        except RpcError as error:
            result = _failure(error)
        cases.append(Case(tool.name, example.name, judge(example, result)))
    return cases


def _failure(error: RpcError) -> Mapping[str, Any]:
    return {"content": [{"type": "text", "text": error.message}], "isError": True}


class Recorded:
    """Answers the steps of one example with what was recorded for their tools."""

    def __init__(self, tools: Mapping[str, CustomTool], recorded: Mapping[str, Any]) -> None:
        self._tools = tools
        self._always = {name: answer for name, answer in recorded.items() if not isinstance(answer, list)}
        self._each = {
            name: deque(cast("list[Any]", answers)) for name, answers in recorded.items() if isinstance(answers, list)
        }

    def handle(self, call: Call, sink: Sink) -> Running | None:
        """Take a call; see `Dispatcher.handle`."""
        name = envelopes.text(call.params.get("name")) or ""
        if name in self._always:
            sink.done(_result(self._always[name]))
        elif self._each.get(name):
            sink.done(_result(self._each[name].popleft()))
        elif name in self._each:
            sink.failed(RpcError(f"{name} is called more often than results are recorded for it"))
        elif name in self._tools and self._tools[name].steps:
            tool = self._tools[name]
            connection = Composition(tool, self.handle)
            return connection.request(b"", call, sink, idle=tool.deadline, limit=tool.deadline)
        else:
            sink.failed(RpcError(f"no result is recorded for {name}"))
        return None


def _result(answer: Any) -> bytes:
    """A recorded answer as a tool's result."""
    if isinstance(answer, dict) and _RESULT_KEYS & answer.keys():
        return envelopes.encode(answer)
    if isinstance(answer, str):
        return envelopes.encode({"content": [{"type": "text", "text": answer}]})
    return envelopes.encode({"content": [], "structuredContent": answer})


# --- judging ----------------------------------------------------------------------------------


def judge(example: Example, result: Mapping[str, Any]) -> list[str]:
    """What is not as the example says."""
    content: list[dict[str, Any]] = result.get("content", [])
    text = "\n".join(str(block.get("text", "")) for block in content)
    if result.get("isError") is True:
        if example.fails is None:
            return [f"failed: {text}"]
        return [] if example.fails in text else [f"must fail with {example.fails!r}, failed with: {text}"]
    if example.fails is not None:
        return [f"must fail with {example.fails!r}, gave: {text}"]
    expect: Any = example.expect
    if expect is None:
        return []
    given: Any = result.get("structuredContent", text)
    if isinstance(given, dict) and not isinstance(expect, dict):
        # What is no object is wrapped in one for clients; whoever writes examples thinks of the output.
        given = cast("dict[str, Any]", given).get("result", cast("Any", given))
    return [*differences(expect, given)]


def differences(expected: Any, given: Any, place: str = "output") -> Iterator[str]:
    """Where something is not as expected. Objects may have more members than expected."""
    if isinstance(expected, dict) and isinstance(given, dict):
        wanted, there = cast("dict[str, Any]", expected), cast("dict[str, Any]", given)
        for name, value in wanted.items():
            if name in there:
                yield from differences(value, there[name], f"{place}.{name}")
            else:
                yield f"{place}.{name} is missing"
    elif isinstance(expected, list) and isinstance(given, list):
        many, some = cast("list[Any]", expected), cast("list[Any]", given)
        if len(many) != len(some):
            yield f"{place} must have {plural(len(many), 'item')}, has {len(some)}"
            return
        for index, value in enumerate(many):
            yield from differences(value, some[index], f"{place}[{index}]")
    elif not same(expected, given):
        yield f"{place} must be {_shown(expected)}, is {_shown(given)}"


def _shown(value: Any) -> str:
    text = envelopes.encode(value).decode()
    return text if len(text) <= 200 else f"{text[:199]}…"
