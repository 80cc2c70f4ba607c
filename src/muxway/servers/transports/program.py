"""A program of the command line as a server: each call runs one of its sub-commands, without a shell.

Nothing can be run but what the configuration names, with the arguments that it describes. The process and all that it
starts end with the call, with its time limit, and with muxway.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from muxway.errors import MuxwayError
from muxway.log import masker
from muxway.servers.transports import command
from muxway.servers.transports.inprocess import ToolServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from muxway.config.model import ServerConfig
    from muxway.config.programs import ProgramArgument, ProgramCommand
    from muxway.net.processes.manager import ChildProcess, ProcessManager

_PIECE: Final = 65536
_TERM_GRACE: Final = 1.0
"""Seconds between the signal that asks a program to end and the one that ends it."""
_STDERR: Final = 10_000
"""Bytes of what it writes for people that are shown if it fails."""


class WrongArgument(Exception):
    """The arguments of a call cannot be used. The text says which, and why."""


class ProgramServer(ToolServer):
    """One program."""

    def __init__(
        self, config: ServerConfig, processes: ProcessManager, room: Callable[[], Awaitable[None]] | None
    ) -> None:
        """Prepare; `room` waits until one more process may be started."""
        self._config = config
        self._processes = processes
        self._room = room
        self._commands = {one.name or "": one for one in config.commands or ()}
        mask = masker(config.secrets)
        super().__init__(config.name, [_tool(one, config.command or "", mask) for one in self._commands.values()])

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        one = self._commands.get(name)
        if one is None:
            return None
        try:
            words, stdin = command_line(one, arguments)
            text, failed = await self._run(one, words, stdin)
        except (WrongArgument, MuxwayError) as error:
            text, failed = masker(self._config.secrets)(str(error)), True
        return {"content": [{"type": "text", "text": text}] if text else [], "isError": failed}

    async def _run(self, one: ProgramCommand, words: Sequence[str], stdin: bytes) -> tuple[str, bool]:
        """Run it; what to say, and whether it failed. Raises SpawnError."""
        config = self._config
        program = config.command or ""
        if self._room is not None:
            await self._room()
        env = command.child_environment(config.env, inherit=config.inherit_env, environ=os.environ)
        path = command.resolve(program, path=env.get("PATH"), cwd=config.cwd)
        child = await self._processes.spawn([program, *config.args, *words], path=path, env=env, cwd=config.cwd)
        run = _ProgramRun(child, one.max_output)
        try:
            async with asyncio.timeout(one.timeout):
                status = await run.until_over(stdin)
        except TimeoutError:
            status = f"took longer than {one.timeout:g} s and was ended"
        finally:
            # In any case: it may have left children behind, and a call that was cancelled wants none of it.
            await asyncio.shield(run.end())
        return run.outcome(status)


class _ProgramRun:
    """One process from its start to its end."""

    def __init__(self, child: ChildProcess, most: int) -> None:
        self._child = child
        self._most = most
        self._full = asyncio.Event()
        self._stdin_open = True
        self._writer: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self._stdout, self._stderr = bytearray(), bytearray()
        self._readers = [
            loop.create_task(self._read(child.stdout, self._stdout, most)),
            loop.create_task(self._read(child.stderr, self._stderr, _STDERR)),
        ]

    async def until_over(self, stdin: bytes) -> str | None:
        """Give it its input, and wait for its end or for too much output; why it failed, if it did."""
        self._writer = asyncio.get_running_loop().create_task(self._write(stdin))
        full = asyncio.ensure_future(self._full.wait())
        try:
            await asyncio.wait({full, self._child.exited}, return_when=asyncio.FIRST_COMPLETED)
            if self._full.is_set():
                return None
            # What it wrote before it went is still in the pipes; a child that it left behind may keep them open.
            await asyncio.wait(self._readers, timeout=_TERM_GRACE)
            exit_ = self._child.exited.result()
            return None if exit_.status == 0 else str(exit_)
        finally:
            full.cancel()

    async def end(self) -> None:
        """Nothing of it is left."""
        # A pipe is closed once nobody waits for it: its number may be another's by then.
        await _cancelled([] if self._writer is None else [self._writer])
        await self._child.stop(close_stdin=self._close_stdin, eof_grace=0.0, term_grace=_TERM_GRACE)
        await _cancelled(self._readers)
        os.close(self._child.stdout)
        os.close(self._child.stderr)

    def outcome(self, trouble: str | None) -> tuple[str, bool]:
        """What to say, and whether it failed."""
        text = _decoded(self._stdout[: self._most])
        if len(self._stdout) > self._most:
            text += f"\n[cut here: more than {self._most} bytes]"
        if trouble is not None:
            errors = _decoded(self._stderr[:_STDERR])
            text = "\n".join(part.rstrip("\n") for part in (f"It {trouble}.", errors, text) if part)
        return text, trouble is not None

    async def _read(self, fd: int, into: bytearray, most: int) -> None:
        async for piece in _pieces(fd):
            into += piece[: most + 1 - len(into)]
            if len(into) > most and into is self._stdout:
                self._full.set()
                return

    async def _write(self, data: bytes) -> None:
        left = memoryview(data)
        with suppress(BrokenPipeError):
            while left:
                try:
                    left = left[os.write(self._child.stdin, left[:_PIECE]) :]
                except BlockingIOError:
                    await _ready(self._child.stdin, writing=True)
        self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin_open:
            self._stdin_open = False
            os.close(self._child.stdin)


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def _pieces(fd: int) -> AsyncIterator[bytes]:
    while True:
        try:
            piece = os.read(fd, _PIECE)
        except BlockingIOError:
            await _ready(fd)
            continue
        if not piece:
            return
        yield piece


async def _ready(fd: int, *, writing: bool = False) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    watch, forget = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
    watch(fd, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        forget(fd)


def _decoded(output: bytes | bytearray) -> str:
    return output.decode("utf-8", "replace")


class _Words(NamedTuple):
    """What a call adds to the command line."""

    options: list[str]
    operands: list[str]


def command_line(one: ProgramCommand, given: Mapping[str, Any]) -> tuple[list[str], bytes]:
    """The words behind the program, and its input. Raises WrongArgument."""
    known = dict(one.arguments)
    for name in given:
        if name not in known:
            has = ", ".join(known) or "it has none"
            raise WrongArgument(f"There is no argument `{name}`; known: {has}.")
    words, stdin = _Words([], []), b""
    for name, argument in one.arguments:
        if name not in given:
            if argument.required:
                raise WrongArgument(f"The argument `{name}` is missing.")
            continue
        if name == one.stdin:
            stdin = _text(name, argument, given[name]).encode("utf-8", "surrogateescape")
        else:
            _add(words, name, argument, given[name])
    return [*one.args, *words.options, *words.operands], stdin


def _add(words: _Words, name: str, argument: ProgramArgument, value: object) -> None:
    flag = argument.flag
    if argument.type == "boolean":
        if not isinstance(value, bool):
            raise WrongArgument(f"`{name}` must be true or false.")
        if value and flag is not None:
            words.options.append(flag)
        return
    if argument.type == "array":
        if not isinstance(value, list):
            raise WrongArgument(f"`{name}` must be an array of texts.")
        texts = [_text(name, argument, item) for item in cast("list[object]", value)]
    else:
        texts = [_text(name, argument, value)]
    for text in texts:
        if flag is not None and flag.endswith("="):
            words.options.append(flag + text)
            continue
        if text.startswith("-") and (flag is None or argument.type not in ("integer", "number")):
            # The program would take it for an option, and options are for the config to choose: `-9` is one, too.
            raise WrongArgument(f"`{name}` may not begin with `-`.")
        if flag is None:
            words.operands.append(text)
        else:
            words.options.extend((flag, text))


def _text(name: str, argument: ProgramArgument, value: object) -> str:
    """A value as a word. Raises WrongArgument."""
    if argument.type in ("integer", "number"):
        if isinstance(value, bool) or not isinstance(value, int if argument.type == "integer" else int | float):
            raise WrongArgument(f"`{name}` must be {'a whole number' if argument.type == 'integer' else 'a number'}.")
        if argument.minimum is not None and value < argument.minimum:
            raise WrongArgument(f"`{name}` must be at least {argument.minimum}.")
        if argument.maximum is not None and value > argument.maximum:
            raise WrongArgument(f"`{name}` must be at most {argument.maximum}.")
        return str(value)
    if not isinstance(value, str):
        raise WrongArgument(f"`{name}` must be {'an array of texts' if argument.type == 'array' else 'a text'}.")
    if "\0" in value:
        raise WrongArgument(f"`{name}` has a NUL character, which no program can be given.")
    if argument.choices and value not in argument.choices:
        raise WrongArgument(f"`{name}` must be one of: {', '.join(argument.choices)}.")
    return value


def _tool(one: ProgramCommand, program: str, mask: Callable[[str], str]) -> dict[str, Any]:
    shown = mask(" ".join((program.rpartition("/")[2], *one.args)))
    return {
        "name": one.name,
        "description": one.description or f"Runs `{shown}`.",
        "inputSchema": {
            "type": "object",
            "properties": {name: _schema(argument) for name, argument in one.arguments},
            "required": [name for name, argument in one.arguments if argument.required],
            "additionalProperties": False,
        },
        # What is not said to be harmless may not be.
        "annotations": {"readOnlyHint": one.read_only, "destructiveHint": not one.read_only},
    }


def _schema(argument: ProgramArgument) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"} | ({"enum": list(argument.choices)} if argument.choices else {})
    schema: dict[str, Any] = {"type": argument.type}
    if argument.type == "string":
        schema = text
    elif argument.type == "array":
        schema["items"] = text
    elif argument.type in ("integer", "number"):
        bounds = {"minimum": argument.minimum, "maximum": argument.maximum}
        schema |= {name: bound for name, bound in bounds.items() if bound is not None}
    return schema if argument.description is None else {**schema, "description": argument.description}
