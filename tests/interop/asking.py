"""The servers that want something of their caller, and what every client must get of each of them.

All of them offer the same (see `servers/asking_*`), so one list of subjects serves every pair. A subject is the steps
a client takes and a check of what came of them; the check fails with the reason, and the test names the subject.
"""

from __future__ import annotations

import base64
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muxway.catalog.uris import wrap

from . import peers, serving
from .drive import Client, Server, Step, Taken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

KINDS = {
    "p1": ("asking_sdk1.py", []),
    "p2": ("asking_sdk2.py", []),
    "p2m": ("asking_sdk2.py", ["--modern-only"]),
    "t1": ("asking_ts1.mjs", []),
    "t2": ("asking_ts2.mjs", []),
    "t2m": ("asking_ts2.mjs", ["--modern-only"]),
}
"""Which SDK (Python or TypeScript, 1.x or 2.x); `m` speaks only 2026-07-28, where the SDK would speak both eras."""

ROOT = "file:///project"
INTERVIEW = "Ann likes red, the model says hi"
UPDATED = "notifications/resources/updated"
CHANGED = "notifications/tools/list_changed"
NOTICE_SECONDS = 5
"""Longest way of a notice; short, because a client that waits in vain waits at every server."""


@dataclass(frozen=True)
class Upstream:
    """One of these servers behind the gateway, under a name of its own."""

    kind: str
    transport: str
    """`stdio` or `http`."""

    @property
    def name(self) -> str:
        """Its name in the configuration, and the scheme of its URIs."""
        return self.kind + ("h" if self.transport == "http" else "")

    @property
    def is_modern_only(self) -> bool:
        return self.kind.endswith("m")

    def server(self) -> Server:
        """The command that runs it; over HTTP it prints its port."""
        script, flags = KINDS[self.kind]
        path = str(peers.HERE / "servers" / script)
        if script.endswith(".py"):
            start = [peers.python("mcp1" if "sdk1" in script else "mcp2"), path]
        else:
            start = [str(peers.NODE), path, str(peers.ensure("node"))]
        return Server([*start, self.name, *flags, *(["--http"] if self.transport == "http" else [])])


UPSTREAMS = [Upstream(kind, transport) for kind in KINDS for transport in ("stdio", "http")]


@contextmanager
def listening(upstream: Upstream) -> Iterator[str]:
    """The URL of a server that speaks HTTP."""
    command = upstream.server().command
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with serving.ended(process):
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port.isdecimal(), command
        yield f"http://127.0.0.1:{port}/mcp"


@dataclass(frozen=True)
class Pair:
    """A client and the server it uses, as far as a check must know."""

    client: Client
    upstream: Upstream
    label: str
    """Of this visit; what the client adds at a server is named after it."""

    @property
    def name(self) -> str:
        return self.upstream.name

    @property
    def grown(self) -> str:
        return f"grown_{self.label}"

    @property
    def knows_urls(self) -> bool:
        """Elicitation by URL came with 2025-11-25."""
        return self.client.mode != "2025-06-18"


def call(tool: str) -> Callable[[Pair], list[Step]]:
    return lambda pair: [Step("call", {"name": f"{pair.name}__{tool}", "arguments": {}})]


def read(path: str) -> Callable[[Pair], list[Step]]:
    return lambda pair: [Step("read", {"uri": f"{pair.name}://{path}"})]


def content(taken: Taken) -> dict[str, Any]:
    assert taken.error is None, taken.error
    (only,) = taken.result["contents"]
    return only


def interview(pair: Pair, taken: Taken) -> None:
    assert taken.text == INTERVIEW
    asked = taken.of("elicitation/create")
    # The label tells the user who asks.
    assert [question["message"] for question in asked] == [
        f"[{pair.name}] Who are you?",
        f"[{pair.name}] Which colour?",
    ]
    assert len(taken.of("sampling/createMessage")) == 1


def visit(pair: Pair, taken: Taken) -> None:
    if pair.knows_urls:
        assert taken.text == "accept"
        (page,) = taken.of("elicitation/create")
        assert (page["mode"], page["url"]) == ("url", "https://example.test/sign-in")
        return
    assert not taken.of("elicitation/create")
    if pair.upstream.is_modern_only:
        # Such a server sees what the caller lacks, and its -32021 becomes the error of the tool
        # (docs/compatibility.md#what-cannot-cross).
        assert taken.result["isError"]
    else:
        # Likewise, the server that asks all the same is refused. On a pipe it is told what its client lacks: some
        # SDKs then refuse by themselves, as they do without muxway.
        unasked = ("refused CAPABILITY_NOT_SUPPORTED", "Client does not support url elicitation.")
        assert taken.text in ("refused -32602", *unasked)


def roots(_: Pair, taken: Taken) -> None:
    assert taken.text == ROOT
    assert len(taken.of("roots/list")) == 1


def progress(_: Pair, taken: Taken) -> None:
    assert taken.text == "counted"
    steps = [{"progress": n, "total": 3, "message": f"step {n}"} for n in (1, 2, 3)]
    assert taken.of("notifications/progress") == steps


def log(pair: Pair, taken: Taken) -> None:
    """The caller asked for `info` and above."""
    assert taken.text == "shouted"
    (message,) = taken.of("notifications/message")
    assert {key: message[key] for key in ("level", "logger", "data")} == {
        "level": "warning",
        "logger": f"{pair.name}/voice",
        "data": "loud",
    }


def big(_: Pair, taken: Taken) -> None:
    assert taken.text == "x" * 500_000


def text_resource(pair: Pair, taken: Taken) -> None:
    assert content(taken)["uri"] == f"{pair.name}://note"
    assert content(taken)["text"] == "a note: äöü"


def binary_resource(_: Pair, taken: Taken) -> None:
    assert content(taken)["mimeType"] == "application/octet-stream"
    assert base64.b64decode(content(taken)["blob"]) == bytes(range(256))


def template(pair: Pair, taken: Taken) -> None:
    assert content(taken)["uri"] == f"{pair.name}://square/7"
    assert content(taken)["text"] == "49"


def shared_uri(pair: Pair) -> str:
    """The first server of the configuration keeps a URI that several have."""
    return "shared://note" if pair.upstream == UPSTREAMS[0] else wrap(pair.name, "shared://note")


def shared_resource(pair: Pair, listed: Taken, taken: Taken) -> None:
    names = {resource["uri"]: resource["name"] for resource in listed.result}
    assert names[shared_uri(pair)] == f"[{pair.name}] shared"
    assert content(taken)["uri"] == shared_uri(pair)
    assert content(taken)["text"] == f"of {pair.name}"


def prompt(pair: Pair, taken: Taken) -> None:
    assert taken.error is None, taken.error
    (message,) = taken.result["messages"]
    assert (message["role"], message["content"]["text"]) == ("user", "Say hello to Ann")


def asking_prompt(pair: Pair, taken: Taken) -> None:
    prompt(pair, taken)
    assert [question["message"] for question in taken.of("elicitation/create")] == [f"[{pair.name}] Who are you?"]


def completion(_: Pair, of_prompt: Taken, of_template: Taken) -> None:
    for taken, values in ((of_prompt, ["Ann", "Anton"]), (of_template, ["7", "70"])):
        assert taken.error is None, taken.error
        assert taken.result["completion"]["values"] == values


def complete(pair: Pair) -> list[Step]:
    prompt_ref = {"type": "ref/prompt", "name": f"{pair.name}__greet"}
    template_ref = {"type": "ref/resource", "uri": f"{pair.name}://square/{{n}}"}
    return [
        Step("complete", {"ref": prompt_ref, "argument": {"name": "who", "value": "An"}}),
        Step("complete", {"ref": template_ref, "argument": {"name": "n", "value": "7"}}),
    ]


def list_change(pair: Pair, grow: Taken, listed: Taken, new: Taken) -> None:
    assert grow.text == "grown"
    assert f"{pair.name}__{pair.grown}" in [tool["name"] for tool in listed.result]
    assert new.text == "new"


def grow(pair: Pair) -> list[Step]:
    grown = f"{pair.name}__{pair.grown}"
    return [
        Step(
            "call",
            {"name": f"{pair.name}__grow", "arguments": {"tool": pair.grown}},
            until=CHANGED,
            seconds=NOTICE_SECONDS,
        ),
        Step("tools", expect=[grown], seconds=NOTICE_SECONDS),
        Step("call", {"name": grown, "arguments": {}}),
    ]


def update(pair: Pair, touched: Taken, seen: Taken) -> None:
    assert touched.text == content(seen)["text"]
    assert {params["uri"] for params in touched.of(UPDATED)} == {f"{pair.name}://watched"}


def touch(pair: Pair) -> list[Step]:
    return [
        Step("call", {"name": f"{pair.name}__touch", "arguments": {}}, until=UPDATED, seconds=NOTICE_SECONDS),
        Step("read", {"uri": f"{pair.name}://watched"}),
    ]


@dataclass(frozen=True)
class Subject:
    steps: Callable[[Pair], Sequence[Step]]
    check: Callable[..., None]


SUBJECTS = {
    "elicitation form and sampling": Subject(call("interview"), interview),
    "elicitation url": Subject(call("visit"), visit),
    "roots": Subject(call("roots"), roots),
    "progress": Subject(call("count"), progress),
    "log": Subject(call("shout"), log),
    "big result": Subject(call("big"), big),
    "text resource": Subject(read("note"), text_resource),
    "binary resource": Subject(read("bytes"), binary_resource),
    "template": Subject(read("square/7"), template),
    "shared URI": Subject(
        lambda pair: [Step("resources"), Step("read", {"uri": shared_uri(pair)})],
        shared_resource,
    ),
    "prompt": Subject(
        lambda pair: [Step("prompt", {"name": f"{pair.name}__greet", "arguments": {"who": "Ann"}})], prompt
    ),
    "prompt that asks": Subject(
        lambda pair: [Step("prompt", {"name": f"{pair.name}__introduce", "arguments": {}})], asking_prompt
    ),
    "completion": Subject(complete, completion),
    "subscription": Subject(touch, update),
    "list change": Subject(grow, list_change),
}
