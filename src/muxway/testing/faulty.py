"""An MCP server on stdin and stdout that misbehaves on demand, to see what a client or a gateway makes of it.

    python -m muxway.testing.faulty [--era stateless] [--start MODE] [--stop MODE] [--journal FILE]
    python -m muxway.testing.faulty --list

Its tool `fault` does one thing wrong when it is called, `--start` says what goes wrong at the start and `--stop` what
goes wrong at the end; `--list` tells them all. The tools `echo` and `who` are always right, if they can be.
Standard library only, one thread and no imports of muxway, so that it starts quickly and nothing stands between a
fault and its victim. With `--journal`, what it hears and does is appended to a file, one JSON object a line, which
outlasts its processes.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    Fault = Callable[["FaultyCall"], None]

HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
STATELESS = "2026-07-28"
POISON = "this answer is for nobody"
"""The text of every answer that must never reach anybody."""
FAULTS: dict[str, Fault] = {}
"""What the tool `fault` can do, by name. The docstring of each says what it is."""
STARTS = {
    "well": "start as it should",
    "exit": "say why on stderr and exit with status 2",
    "exit-twice": "exit with status 2 at the first two starts, then start well (needs --journal)",
    "slow": "start well, but only after 1.5 seconds",
    "very-slow": "start well, but only after 6 seconds",
    "silence": "read everything and answer nothing",
    "deaf": "close stdin at once, and stay",
    "mute": "close stdout at once, and stay",
    "buffered": "keep back every answer until stdin ends",
    "banner": "print a banner, escape sequences and bytes that are not UTF-8 before anything else",
    "banner-unended": "print a banner that has no end of line",
    "junk-only": "print a line of junk for every line that is read, and never a message",
    "forked": "leave the serving to a child process and exit",
    "hello-error": "refuse the greeting with an error",
    "hello-empty": "answer the greeting with an object that means nothing",
    "hello-ancient": "answer the greeting with a revision that nobody knows",
    "hello-number": "answer the greeting with a number for the revision",
    "hello-twice": "answer the greeting twice",
    "hello-other-id": "answer the greeting under an id that was never used",
    "hello-asks": "ask three things of the client before the greeting is answered",
    "hello-then-exit": "answer the greeting and exit with status 4",
    "list-silence": "never answer tools/list",
    "list-exit": "exit with status 5 when asked for tools/list",
    "list-error": "refuse tools/list with an error",
    "list-object": "answer tools/list with an object where the array should be",
    "list-nulls": "list nulls, numbers and texts between the tools",
    "list-circle": "give the same cursor after each page",
    "list-endless": "give a new cursor after each page, for ever",
    "list-huge": "list 20,000 tools",
    "list-empty-pages": "give pages without tools, and cursors, for ever",
    "list-new-each-start": "list a tool more that is named after the process",
    "list-names": "list tools whose names and descriptions are long, doubled, empty, invisible or not text",
    "list-bytes": "list a tool whose name has bytes that are not UTF-8",
    "stderr": "write 8 MB to stderr before anything else",
    "changes": "say 500 times that the list has changed, before anybody asked for it",
}
"""What can go wrong at the start."""
STOPS = {
    "well": "exit when stdin ends",
    "ignores-eof": "stay when stdin ends",
    "ignores-all": "stay when stdin ends and on SIGTERM",
    "stopped": "stop with SIGSTOP when stdin ends",
    "chatter": "write without end when stdin ends",
    "grandchild": "have a child process that ignores SIGTERM and holds the pipes",
    "daemon": "have one that has left for a session of its own",
}
"""What can go wrong at the end."""
_SLEEPER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
_FAR = 987_654_321
"""An id that nobody uses."""


class FaultyServer:
    """Reads requests and does to each what it is told to. One thread: what must wait is put on a heap."""

    def __init__(self, era: str, start: str, stop: str, journal: str | None, mark: str) -> None:
        self.stateless = era == "stateless"
        self.start, self.stop = start, stop
        self.deaf_to_pings = False
        self.list_fault = ""
        """What goes wrong with the next lists, as if it were the start."""
        self.when_cancelled: dict[Any, Callable[[], None]] = {}
        """What to do when a call is cancelled, by its id."""
        self.extra = 0
        """How many tools are listed beside the usual ones."""
        self._journal, self._mark = journal, mark
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._answers: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._kept: list[bytes] = []

    # --- speaking -----------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        if self.start == "buffered":
            self._kept.append(data)
            return
        while data:
            data = data[os.write(1, data) :]

    def say(self, **message: Any) -> None:
        """Send a message; `jsonrpc` is added."""
        self.write(_line(message))

    def reply(self, id_: Any, result: dict[str, Any]) -> None:
        """Answer a request."""
        self.say(id=id_, result={"resultType": "complete", **result} if self.stateless else result)

    def ask(self, method: str, params: dict[str, Any], then: Callable[[dict[str, Any]], None]) -> None:
        """Ask the client something; `then` gets its whole answer."""
        id_ = f"asked-{len(self._answers)}"
        self._answers[id_] = then
        self.say(id=id_, method=method, params=params)

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something after so long."""
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), do))

    def note(self, event: str, **facts: Any) -> None:
        """Write something into the journal."""
        if self._journal is not None:
            record = json.dumps({"event": event, "pid": os.getpid(), "at": time.time(), **facts}) + "\n"
            file = os.open(self._journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(file, record.encode())
            os.close(file)

    # --- running ------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until stdin ends, and after that if it is to be stubborn."""
        self.note("start")
        self._begin()
        rest = b""
        while True:
            wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            if select.select([0], [], [], wait)[0]:
                data = os.read(0, 1 << 16)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._hear(json.loads(line))
            while self._due and self._due[0][0] <= time.monotonic():
                heapq.heappop(self._due)[2]()
        self.note("eof")
        self._end()

    def _begin(self) -> None:
        if self.stop == "ignores-all":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.stop in ("grandchild", "daemon"):
            self.leave_behind(own_session=self.stop == "daemon")
        start = self.start
        if start == "exit" or (start == "exit-twice" and self._starts() <= 2):
            os.write(2, b"fatal: the key is missing\n")
            os._exit(2)
        if start in ("slow", "very-slow"):
            time.sleep(1.5 if start == "slow" else 6)
        elif start == "deaf":
            _close(0)
            while True:
                time.sleep(600)
        elif start == "mute":
            _close(1)
        elif start == "banner":
            self.write(b"Server v1.2.3\n\x1b[32mready\x1b[0m\n{not json}\n\xff\xfe\n\n")
        elif start == "banner-unended":
            self.write(b"loading... ")
        elif start == "forked":
            if os.fork():
                os._exit(0)
            time.sleep(0.5)  # Whoever looks sees the parent go before the child says anything.
        elif start == "stderr":
            for _ in range(80):
                os.write(2, (b"e" * 99 + b"\n") * 1000)
        elif start == "changes":
            for _ in range(500):
                self.say(method="notifications/tools/list_changed")

    def _starts(self) -> int:
        if self._journal is None:
            return 0
        with open(self._journal, encoding="utf-8") as journal:  # noqa: PTH123 -- pathlib would double the time to start
            return sum('"event": "start"' in line for line in journal)

    def _end(self) -> None:
        if self.start == "buffered":
            self.start = "well"
            self.write(b"".join(self._kept))
        if self.stop == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        while self.stop == "chatter":
            self.write(b"still here\n")
        while self.stop in ("ignores-eof", "ignores-all"):
            time.sleep(600)

    def leave_behind(self, *, own_session: bool) -> None:
        """Start a process that ignores SIGTERM; the mark in its command line shows whose it is."""
        command = [sys.executable, "-I", "-S", "-c", _SLEEPER, self._mark]
        subprocess.Popen(command, start_new_session=own_session)  # noqa: S603 -- both are ours

    # --- hearing ------------------------------------------------------------------------------

    def _hear(self, message: dict[str, Any]) -> None:
        method, id_, params = message.get("method"), message.get("id"), _object(message.get("params"))
        if self.start == "silence":
            return
        if self.start == "junk-only":
            self.write(b"what?\n")
        elif method is None:
            then = self._answers.pop(str(id_), None)
            if then is not None:
                then(message)
        elif id_ is None:
            self._hear_notice(method, params)
        elif method in ("initialize", "server/discover"):
            self._greet(id_, method, params)
        elif method == "tools/list":
            self._list(id_, params)
        elif method == "tools/call":
            self._call(id_, params)
        elif method == "ping" and self.deaf_to_pings:
            self.say(id=id_, error={"code": -32601, "message": "no pings here"})
        elif method in ("ping", "logging/setLevel"):
            self.reply(id_, {})
        else:
            self.say(id=id_, error={"code": -32601, "message": f"there is no {method}"})

    def _hear_notice(self, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/cancelled":
            self.note("cancelled", id=params.get("requestId"))
            self.when_cancelled.pop(params.get("requestId"), _nothing)()

    def _greet(self, id_: Any, method: str, params: dict[str, Any]) -> None:
        start = self.start
        if (method == "server/discover") is not self.stateless:
            self.say(id=id_, error={"code": -32601, "message": f"there is no {method}"})
            return
        if start == "hello-error":
            self.say(id=id_, error={"code": -32603, "message": "the licence has expired"})
            return
        if start == "hello-empty":
            self.reply(id_, {"nothing": None})
            return
        if start == "hello-asks":
            self.say(id="a", method="roots/list")
            self.say(id="b", method="ping")
            self.say(id="c", method="no/such/thing")
        odd = {"hello-ancient": "1999-12-31", "hello-number": 7}.get(start)
        declared: dict[str, Any] = {"capabilities": {"tools": {"listChanged": True}, "logging": {}}}
        info = {"name": "faulty", "version": "1"}
        if self.stateless:
            declared["supportedVersions"] = [odd or STATELESS]
            declared["_meta"] = {"io.modelcontextprotocol/serverInfo": info}
        else:
            wanted = params.get("protocolVersion")
            declared["protocolVersion"] = odd or (wanted if wanted in HANDSHAKE else HANDSHAKE[0])
            declared["serverInfo"] = info
        for _ in range(2 if start == "hello-twice" else 1):
            self.reply(_FAR if start == "hello-other-id" else id_, declared)
        if start == "hello-then-exit":
            os._exit(4)

    def _list(self, id_: Any, params: dict[str, Any]) -> None:
        wrong = self.list_fault or self.start
        self.note("list")
        if wrong == "list-silence":
            return
        if wrong == "list-exit":
            os._exit(5)
        if wrong == "list-error":
            self.say(id=id_, error={"code": -32603, "message": "the list is lost"})
            return
        if wrong == "list-bytes":
            odd = b'{"name":"caf\xe9","inputSchema":{"type":"object"}},'
            usual = json.dumps(_tools("echo", "fault", "who"))[1:-1].encode()
            FaultyCall(self, id_, params).line(
                b'{"jsonrpc":"2.0","id":%id,"result":{"resultType":"complete","tools":[' + odd + usual + b"]}}"
            )
            return
        tools: Any = _tools("echo", "fault", "who", *(f"extra-{number}" for number in range(self.extra)))
        more: dict[str, Any] = {}
        if wrong == "list-object":
            tools = {"echo": {}}
        elif wrong == "list-nulls":
            tools = [None, 7, "echo", [], *tools, {}, {"name": None}, {"name": "bare"}]
        elif wrong == "list-huge":
            tools += _tools(*(f"tool-{number}" for number in range(20_000)))
        elif wrong == "list-new-each-start":
            tools += _tools(f"born-{os.getpid()}")
        elif wrong == "list-names":
            tools += _odd_tools()
        elif wrong == "list-circle":
            more["nextCursor"] = "again"
        elif wrong in ("list-endless", "list-empty-pages"):
            page = int(params.get("cursor", "0"))
            more["nextCursor"] = str(page + 1)
            if page:
                tools = [] if wrong == "list-empty-pages" else _tools(f"page-{page}")
        self.reply(id_, {"tools": tools, **more})

    def _call(self, id_: Any, params: dict[str, Any]) -> None:
        call, arguments, name = FaultyCall(self, id_, params), _object(params.get("arguments")), params.get("name")
        if name == "fault" and arguments.get("kind") in FAULTS:
            self.note("fault", kind=arguments["kind"])
            FAULTS[arguments["kind"]](call)
        elif name == "who":
            call.answer(str(os.getpid()))
        elif name == "echo":
            self.note("echo")
            self.later(float(arguments.get("after", 0)), lambda: call.answer(str(arguments.get("text"))))
        else:
            self.say(id=id_, error={"code": -32602, "message": f"there is no tool {name}, or no such fault"})


class FaultyCall:
    """One call that something is to go wrong with."""

    def __init__(self, server: FaultyServer, id_: Any, params: dict[str, Any]) -> None:
        self.server, self.id = server, id_
        self._token = _object(params.get("_meta")).get("progressToken")

    def answer(self, text: str = "done") -> None:
        """Answer it with a text."""
        self.server.reply(self.id, {"content": [{"type": "text", "text": text}]})

    def line(self, template: bytes, end: bytes = b"\n") -> None:
        """Send a line in which `%id` stands for its id, and `%ok` for a good result."""
        result: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
        if self.server.stateless:
            result["resultType"] = "complete"
        line = template.replace(b"%ok", json.dumps(result).encode()).replace(b"%id", json.dumps(self.id).encode())
        self.server.write(line + end)

    def progress(self, number: int) -> None:
        """Send progress for it."""
        params = {"progressToken": self._token, "progress": number}
        self.server.say(method="notifications/progress", params=params)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _nothing() -> None:
    pass


def _close(file: int) -> None:
    with contextlib.suppress(OSError):
        os.close(file)


def _tools(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "description": f"It is {name}.", "inputSchema": {"type": "object"}} for name in names]


def _odd_tools() -> list[dict[str, Any]]:
    names = [
        "echo",
        "",
        "n" * 5000,
        "../up",
        "a b",
        "line\r\nbreak",
        "right\u202eleft",
        "no\u200bspace",
        "<b>",
        "é" * 40,
    ]
    odd = _tools(*names)
    odd += [{**_tools("coloured")[0], "description": "\x1b[8mhidden\x1b[0m"}]
    odd += [{**_tools("wordy")[0], "description": "w" * 100_000}]
    odd += [{**_tools("undescribed")[0], "description": None}, {**_tools("unschemed")[0], "inputSchema": "none"}]
    return odd


# --- what the tool `fault` does ---------------------------------------------------------------


def _named(do: Fault) -> Fault:
    FAULTS[do.__name__.strip("_").replace("_", "-")] = do
    return do


def _said(name: str, what: str, template: bytes) -> None:
    """A fault that is one line in place of an answer."""

    def do(call: FaultyCall) -> None:
        call.line(template)

    do.__doc__ = what
    FAULTS[name] = do


def _before(name: str, what: str, junk: bytes) -> None:
    """A fault that is junk in front of a good answer."""

    def do(call: FaultyCall) -> None:
        call.server.write(junk)
        call.answer()

    do.__doc__ = what
    FAULTS[name] = do


@_named
def exits(_: FaultyCall) -> None:
    """Exit with status 3 instead of an answer, with a last word on stderr."""
    os.write(2, b"panic: out of luck\n")
    os._exit(3)


@_named
def exits_in_mid_line(call: FaultyCall) -> None:
    """Exit after half an answer."""
    call.server.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"te' % call.id)
    os._exit(3)


@_named
def killed(_: FaultyCall) -> None:
    """Die of SIGKILL, as if for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


@_named
def answers_then_exits(call: FaultyCall) -> None:
    """Answer well, then exit."""
    call.answer()
    os._exit(0)


@_named
def forks_then_exits(call: FaultyCall) -> None:
    """Exit, while another process still holds stdin and stdout open."""
    call.server.leave_behind(own_session=False)
    os._exit(3)


@_named
def closes_stdout(_: FaultyCall) -> None:
    """Close stdout and stay."""
    _close(1)
    while True:
        time.sleep(600)


@_named
def closes_stdin(_: FaultyCall) -> None:
    """Close stdin without an answer, and stay."""
    _close(0)
    while True:
        time.sleep(600)


@_named
def answers_then_closes_stdin(call: FaultyCall) -> None:
    """Answer well, then close stdin, and stay."""
    call.answer()
    closes_stdin(call)


@_named
def never_answers(call: FaultyCall) -> None:
    """Never answer this call; others are."""


@_named
def never_answers_and_refuses_pings(call: FaultyCall) -> None:
    """Never answer this call, and answer pings with an error: it lives."""
    call.server.deaf_to_pings = True


@_named
def freezes(_: FaultyCall) -> None:
    """Read and answer nothing any more."""
    while True:
        time.sleep(600)


@_named
def stops(_: FaultyCall) -> None:
    """Stop with SIGSTOP, as if swapped out or under a debugger."""
    os.kill(os.getpid(), signal.SIGSTOP)


@_named
def answers_late(call: FaultyCall) -> None:
    """Answer after three seconds, when nobody waits any more."""
    call.server.later(3.0, lambda: call.answer(POISON))


@_named
def answers_when_cancelled(call: FaultyCall) -> None:
    """Answer, with progress before, as soon as nobody waits any more."""

    def answer() -> None:
        call.progress(1)
        call.answer(POISON)

    call.server.when_cancelled[call.id] = answer


@_named
def no_end_of_line(call: FaultyCall) -> None:
    """Answer without the end of the line: the next answer follows on the same one."""
    call.line(b'{"jsonrpc":"2.0","id":%id,"result":%ok}', end=b"")


_before(
    "prints", "Print debugging lines before the answer.", b"DEBUG called\nTraceback (most recent call last):\n  File\n"
)
_before("prints-much", "Print 20,000 lines before the answer.", b"a line of no meaning\n" * 20_000)
_before(
    "prints-json",
    "Print log lines in JSON before the answer.",
    b'{"level":"info","msg":"called"}\n{}\n[]\n[1]\nnull\n"x"\n',
)
_before("prints-colour", "Print escape sequences before the answer.", b"\x1b[2J\x1b]0;title\x07\x1b[31mred\x1b[0m\n")
_before("prints-latin-1", "Print bytes that are not UTF-8 before the answer.", b"\xff\xfe caf\xe9 \x80\n")
_before("prints-nul", "Print NUL bytes and empty lines before the answer.", b"\0\0\0\n" + b"\n" * 1000 + b" \t \n")
_before("prints-unended", "Print a text without an end of line right before the answer.", b"loading... ")
_before("byte-order-mark", "Put a byte order mark before the answer.", b"\xef\xbb\xbf")
_before("tiny-frames", "Send 100,000 lines of two bytes before the answer.", b"[]\n" * 100_000)
_before("methodless", "Send notifications without a method before the answer.", b'{"jsonrpc":"2.0","params":{}}\n' * 3)
_before(
    "odd-methods",
    "Send notifications whose methods are no texts before the answer.",
    b"".join(
        b'{"jsonrpc":"2.0","method":%s}\n' % method for method in (b"null", b"7", b"[]", b"{}", b'""', b'"\\ud800"')
    ),
)
_before(
    "odd-params",
    "Send known notifications with absurd params before the answer.",
    b"".join(
        b'{"jsonrpc":"2.0","method":"notifications/%s","params":%s}\n' % (method, params)
        for method in (b"progress", b"message", b"cancelled", b"tools/list_changed", b"resources/updated")
        for params in (
            b"null",
            b"7",
            b"[1]",
            b'"x"',
            b'{"progressToken":[],"progress":"x","requestId":{},"uri":7,"level":0}',
        )
    ),
)

_said("cr-lf", "End the answer with CR LF.", b'{"jsonrpc":"2.0","id":%id,"result":%ok}\r')
_said("cut-off", "Answer with JSON that breaks off.", b'{"jsonrpc":"2.0","id":%id,"result":{')
_said("no-version", "Answer without `jsonrpc`.", b'{"id":%id,"result":%ok}')
_said("old-version", "Answer with `jsonrpc` 1.0.", b'{"jsonrpc":"1.0","id":%id,"result":%ok}')
_said(
    "result-and-error",
    "Answer with both.",
    b'{"jsonrpc":"2.0","id":%id,"result":%ok,"error":{"code":-1,"message":"both"}}',
)
_said("neither", "Answer with neither result nor error.", b'{"jsonrpc":"2.0","id":%id}')
_said("result-null", "Answer with null.", b'{"jsonrpc":"2.0","id":%id,"result":null}')
_said("result-array", "Answer with an array.", b'{"jsonrpc":"2.0","id":%id,"result":[1,2]}')
_said("result-text", "Answer with a text.", b'{"jsonrpc":"2.0","id":%id,"result":"done"}')
_said("result-empty", "Answer with an empty object.", b'{"jsonrpc":"2.0","id":%id,"result":{}}')
_said(
    "content-unknown",
    "Answer with content of an unknown type.",
    b'{"jsonrpc":"2.0","id":%id,"result":{"content":[{"type":"hologram"}]}}',
)
_said(
    "content-wrong", "Answer with content that is no array.", b'{"jsonrpc":"2.0","id":%id,"result":{"content":"done"}}'
)
_said("error-text", "Answer with an error that is a text.", b'{"jsonrpc":"2.0","id":%id,"error":"no"}')
_said("error-null", "Answer with an error that is null.", b'{"jsonrpc":"2.0","id":%id,"error":null}')
_said("error-codeless", "Answer with an error without a code.", b'{"jsonrpc":"2.0","id":%id,"error":{"message":"no"}}')
_said(
    "error-code-text",
    "Answer with an error whose code is a text.",
    b'{"jsonrpc":"2.0","id":%id,"error":{"code":"E1","message":"no"}}',
)
_said(
    "id-null",
    "Answer with an error and no id, as to a request that could not be read.",
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}',
)
_said("id-text", "Answer with the id as a text.", b'{"jsonrpc":"2.0","id":"%id","result":%ok}')
_said("id-float", "Answer with the id as a fraction.", b'{"jsonrpc":"2.0","id":%id.0,"result":%ok}')
_said(
    "id-twice", "Answer with two ids, the later one right.", b'{"jsonrpc":"2.0","id":987654321,"id":%id,"result":%ok}'
)
_said("id-array", "Answer with the id in an array.", b'{"jsonrpc":"2.0","id":[%id],"result":%ok}')
_said("batch", "Answer with an array of one answer.", b'[{"jsonrpc":"2.0","id":%id,"result":%ok}]')
_said("scalar", "Send a number in place of an answer.", b"42")
_said(
    "other-id",
    "Answer under an id that was never used.",
    b'{"jsonrpc":"2.0","id":987654321,"result":{"content":[{"type":"text","text":"' + POISON.encode() + b'"}]}}',
)
_said(
    "not-a-number",
    "Answer with NaN and Infinity.",
    b'{"jsonrpc":"2.0","id":%id,"result":{"content":[],"structuredContent":{"x":NaN,"y":-Infinity,"z":1e999}}}',
)
_said(
    "huge-number",
    "Answer with an integer of 5,000 digits.",
    b'{"jsonrpc":"2.0","id":%id,"result":{"content":[],"structuredContent":{"x":' + b"9" * 5000 + b"}}}",
)
_said(
    "half-a-character",
    "Answer with half a surrogate pair.",
    b'{"jsonrpc":"2.0","id":%id,"result":{"content":[{"type":"text","text":"done \\ud800"}]}}',
)
_said(
    "latin-1",
    "Answer with a byte that is not UTF-8.",
    b'{"jsonrpc":"2.0","id":%id,"result":{"content":[{"type":"text","text":"it\x92s done"}]}}',
)
_said(
    "deep",
    "Answer with 100,000 arrays inside each other.",
    b'{"jsonrpc":"2.0","id":%id,"result":{"content":[],"structuredContent":{"a":'
    + b"[" * 100_000
    + b"]" * 100_000
    + b"}}}",
)
_said(
    "line-separators",
    "Answer with characters that some take for the end of a line.",
    b'{"jsonrpc":"2.0","id":%id,"result":{"content":[{"type":"text","text":"done \xe2\x80\xa8\xe2\x80\xa9\xc2\x85"}]}}',
)


@_named
def dribbles(call: FaultyCall) -> None:
    """Answer three bytes at a time, cutting characters in two."""
    content = [{"type": "text", "text": "done 世界" * 10}]
    line = (
        json.dumps({"jsonrpc": "2.0", "id": call.id, "result": {"content": content}}, ensure_ascii=False).encode()
        + b"\n"
    )
    for begin in range(0, len(line), 3):
        call.server.write(line[begin : begin + 3])
        time.sleep(0.001)


@_named
def answers_twice(call: FaultyCall) -> None:
    """Answer, then answer again with something else."""
    call.answer()
    call.answer(POISON)


@_named
def answers_before_asked(call: FaultyCall) -> None:
    """Answer the next twenty requests, which nobody has made yet; then this one."""
    for ahead in range(1, 21):
        FaultyCall(call.server, call.id + ahead, {}).answer(POISON)
    call.answer()


@_named
def big(call: FaultyCall) -> None:
    """Answer with 8 MB."""
    call.answer("x" * 8_000_000)


@_named
def line_without_end(call: FaultyCall) -> None:
    """Write 64 MB without the end of a line, and no answer."""
    for _ in range(64):
        call.server.write(b"A" * 1_000_000)


@_named
def logs_much(call: FaultyCall) -> None:
    """Send 20,000 log messages before the answer."""
    lines = [_line({"method": "notifications/message", "params": {"level": "info", "data": n}}) for n in range(20_000)]
    call.server.write(b"".join(lines))
    call.answer()


@_named
def progresses_much(call: FaultyCall) -> None:
    """Send 20,000 notices of progress before the answer."""
    for number in range(20_000):
        call.progress(number)
    call.answer()


@_named
def progresses_after_answer(call: FaultyCall) -> None:
    """Send progress that goes backwards, then the answer, then more progress."""
    for number in (5, 3, 3, -1):
        call.progress(number)
    call.answer()
    for number in range(6, 20):
        call.progress(number)


@_named
def progresses_for_ever(call: FaultyCall) -> None:
    """Send progress without end, and never the answer."""

    def go_on(number: int = 0) -> None:
        call.progress(number)
        call.server.later(0.2, lambda: go_on(number + 1))

    go_on()


@_named
def slow(call: FaultyCall) -> None:
    """Answer after a second."""
    call.server.later(1.0, lambda: call.answer())


@_named
def slow_with_progress(call: FaultyCall) -> None:
    """Answer after two and a half seconds, with progress meanwhile."""
    for number in range(8):
        call.server.later(0.3 * number, lambda number=number: call.progress(number))
    call.server.later(2.5, lambda: call.answer())


@_named
def list_changes(call: FaultyCall) -> None:
    """Say 2,000 times that the list has changed, and change it each time it is asked for."""
    for _ in range(2000):
        call.server.extra += 1
        call.server.say(method="notifications/tools/list_changed")
    call.answer()


def _changed_to(name: str, what: str, fault: str) -> None:
    def do(call: FaultyCall) -> None:
        call.server.list_fault = fault
        call.server.say(method="notifications/tools/list_changed")
        call.answer()

    do.__doc__ = what
    FAULTS[name] = do


_changed_to("list-then-exit", "Say that the list has changed, and exit when asked for it.", "list-exit")
_changed_to("list-then-silence", "Say that the list has changed, and never tell it.", "list-silence")
_changed_to("list-then-error", "Say that the list has changed, and refuse to tell it.", "list-error")
_changed_to("list-then-object", "Say that the list has changed, to something that is no list.", "list-object")
_changed_to("list-then-endless", "Say that the list has changed, to one without end.", "list-endless")


@_named
def unknown_notices(call: FaultyCall) -> None:
    """Send 5,000 notifications that nobody knows before the answer."""
    for number in range(5000):
        call.server.say(method="notifications/nobody/knows", params={"number": number})
    call.answer()


@_named
def stderr_flood(call: FaultyCall) -> None:
    """Write 20 MB to stderr before the answer."""
    for _ in range(200):
        os.write(2, (b"e" * 99 + b"\n") * 1000)
    call.answer()


@_named
def stderr_without_lines(call: FaultyCall) -> None:
    """Write 4 MB without the end of a line, and escape sequences, to stderr before the answer."""
    for _ in range(40):
        os.write(2, b"\x1b[2J\xff\0" * 25_000)
    call.answer()


@_named
def pings_much(call: FaultyCall) -> None:
    """Send 500 pings before the answer."""
    for number in range(500):
        call.server.say(id=f"ping-{number}", method="ping")
    call.answer()


@_named
def pings(call: FaultyCall) -> None:
    """Ping the client, and answer with what came back."""
    call.server.ask("ping", {}, lambda answer: call.answer("done" if "result" in answer else POISON))


@_named
def asks_the_unknown(call: FaultyCall) -> None:
    """Make a request that nobody knows, and answer when it was refused."""
    call.server.ask("no/such/thing", {}, lambda answer: call.answer("done" if "error" in answer else POISON))


@_named
def asks_the_undeclared(call: FaultyCall) -> None:
    """Ask for a sample, which the client cannot give, and answer when it was refused."""
    asked = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 1}
    call.server.ask(
        "sampling/createMessage", asked, lambda answer: call.answer("done" if "error" in answer else POISON)
    )


@_named
def grandchild(call: FaultyCall) -> None:
    """Start a process that ignores SIGTERM and holds the pipes."""
    call.server.leave_behind(own_session=False)
    call.answer()


@_named
def daemon(call: FaultyCall) -> None:
    """Start a process that ignores SIGTERM, in a session of its own."""
    call.server.leave_behind(own_session=True)
    call.answer()


@_named
def tells_what_it_has(call: FaultyCall) -> None:
    """Answer with the names of its variables and with its open files."""
    files: list[int] = []
    for file in range(256):
        with contextlib.suppress(OSError):
            os.fstat(file)
            files.append(file)
    call.answer(json.dumps({"files": files, "variables": sorted(os.environ)}))


def main() -> None:
    """Serve, or tell what can go wrong."""
    parser = argparse.ArgumentParser(description="An MCP server on stdin and stdout that misbehaves on demand.")
    parser.add_argument("--era", choices=["handshake", "stateless"], default="handshake", help="which era it speaks")
    parser.add_argument("--start", choices=sorted(STARTS), default="well", metavar="MODE")
    parser.add_argument("--stop", choices=sorted(STOPS), default="well", metavar="MODE")
    parser.add_argument("--journal", metavar="FILE", help="append what happens to this file")
    parser.add_argument("--mark", default="faulty", metavar="TEXT", help="stands in the command lines of its processes")
    parser.add_argument("--list", action="store_true", help="tell every fault, start and stop")
    given = parser.parse_args()
    if given.list:
        faults = {name: (do.__doc__ or "").strip() for name, do in FAULTS.items()}
        for title, rows in (("fault", faults), ("--start", STARTS), ("--stop", STOPS)):
            sys.stdout.write(f"{title}:\n" + "".join(f"  {name:32} {what}\n" for name, what in rows.items()))
        return
    FaultyServer(given.era, given.start, given.stop, given.journal, given.mark).run()


if __name__ == "__main__":
    main()
