"""Prompts, and completion of their arguments."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.compatibility.subjects.base import OLDEST, converted, same, subject, text
from tests.compatibility.subjects.results import AUDIO, IMAGE, embedded_in, link_to

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.compatibility.matrix import Pair
    from tests.compatibility.server import Server
    from tests.compatibility.subjects.base import Outcome

PROMPTS = "Prompts and completion"
_ICONS = [{"src": "https://example.com/i.png"}]
DEFINITION = {
    "description": "Greets",
    "arguments": [{"name": "who", "description": "Whom", "required": True}],
    "x-vendor": {"n": None},
}
"""How each prompt is listed, besides its name."""
_NEWS = {"title": ("2025-06-18", "A title"), "icons": ("2025-11-25", _ICONS)}
"""What later revisions add to that."""
SINCE = {"greeting": OLDEST, "picture": OLDEST, "document": OLDEST, "sound": "2025-03-26", "pointer": "2025-06-18"}
"""Name of a prompt → the first revision whose servers have it."""


def definition_in(revision: str) -> dict[str, Any]:
    """How a server of this revision lists a prompt, besides its name."""
    return {**DEFINITION, **{name: value for name, (since, value) in _NEWS.items() if revision >= since}}


def block_of(prompt: str, server: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What the message of a prompt holds."""
    return {
        "greeting": text(f"Hello {arguments.get('who')}"),
        "picture": IMAGE,
        "document": embedded_in(server),
        "sound": AUDIO,
        "pointer": link_to(server),
    }[prompt]


def say(server: Server, request: dict[str, Any]) -> None:
    """Answer `prompts/get`."""
    block = block_of(request["params"]["name"], server.name, request["params"].get("arguments", {}))
    server.reply(request, {"description": "Greets", "messages": [{"role": "user", "content": block}]})


async def _get(pair: Pair, prompt: str) -> Any:
    params = {"name": pair.name_of(prompt), "arguments": {"who": "Ann"}}
    result = pair.plain((await pair.client.ask("prompts/get", params)).result)
    assert result["description"] == "Greets"
    (message,) = result["messages"]
    assert message["role"] == "user"
    return message["content"]


@subject("list of prompts", PROMPTS)
async def prompt_list(pair: Pair) -> Outcome:
    """Descriptions begin with the server. Members that no revision knows are listed too."""
    shown = (await pair.client.listed("prompts"))[pair.name_of("greeting")]
    got = {name: value for name, value in shown.items() if name not in _NEWS}
    return same(got, {"name": pair.name_of("greeting"), **DEFINITION, "description": f"[{pair.server.name}] Greets"})


@subject("`title` of a prompt", PROMPTS, since="2025-06-18")
async def prompt_title(pair: Pair) -> Outcome:
    """A name for people."""
    shown = (await pair.client.listed("prompts"))[pair.name_of("greeting")]
    return same(shown["title"], "A title") if "title" in shown else converted("left out")


@subject("`icons` of a prompt", PROMPTS, since="2025-11-25")
async def prompt_icons(pair: Pair) -> Outcome:
    """Pictures to show beside it."""
    shown = (await pair.client.listed("prompts"))[pair.name_of("greeting")]
    return same(shown["icons"], _ICONS) if "icons" in shown else converted("left out")


@subject("prompt of text, with arguments", PROMPTS)
async def prompt_text(pair: Pair) -> Outcome:
    """What nearly every prompt is."""
    return same(await _get(pair, "greeting"), text("Hello Ann"))


@subject("prompt with an image", PROMPTS)
async def prompt_image(pair: Pair) -> Outcome:
    """Known to every revision."""
    return same(await _get(pair, "picture"), IMAGE)


@subject("prompt with an embedded resource", PROMPTS)
async def prompt_embedded(pair: Pair) -> Outcome:
    """Known to every revision."""
    return same(await _get(pair, "document"), embedded_in(pair.server.name))


@subject("prompt with audio", PROMPTS, since=SINCE["sound"])
async def prompt_audio(pair: Pair) -> Outcome:
    """As in a result, older clients get something they know."""
    block = await _get(pair, "sound")
    resource = {"uri": "muxway://audio/0", "mimeType": "audio/wav", "blob": "AA=="}
    if block == {"type": "resource", "resource": resource}:
        return converted("an embedded resource")
    return same(block, AUDIO)


@subject("prompt with a resource link", PROMPTS, since=SINCE["pointer"])
async def prompt_link(pair: Pair) -> Outcome:
    """Older clients get its name and address."""
    block = await _get(pair, "pointer")
    sent = link_to(pair.server.name)
    return converted("a text") if block == text(f"log: {sent['uri']}") else same(block, sent)


@subject("a prompt that does not exist", PROMPTS)
async def prompt_unknown(pair: Pair) -> Outcome:
    """-32602 in every revision."""
    reply = await pair.client.ask("prompts/get", {"name": pair.name_of("nothing")})
    return same(reply.error["code"], -32602)


# --- completion -------------------------------------------------------------------------------


def complete(server: Server, request: dict[str, Any]) -> None:
    """Complete with what was asked, so that a client sees what arrived."""
    params = request["params"]
    asked = [params["ref"], params["argument"], params.get("context")]
    server.reply(request, {"completion": {"values": [json.dumps(asked)], "total": 1, "hasMore": False}})


async def _completed(pair: Pair, ref: dict[str, Any], native: dict[str, Any], **context: Any) -> Any:
    """Ask for a completion of what the server knows as `native`; returns the context that it was given."""
    params = {"ref": ref, "argument": {"name": "who", "value": "A"}, **context}
    completion = (await pair.client.ask("completion/complete", params)).result["completion"]
    (value,) = completion["values"]
    assert completion == {"values": [value], "total": 1, "hasMore": False}
    got_ref, argument, got_context = json.loads(value)
    assert (got_ref, argument) == (native, params["argument"])
    return got_context


@subject("completion for a prompt", PROMPTS)
async def prompt_completion(pair: Pair) -> Outcome:
    """Under the name that the prompt has here."""
    ref, native = ({"type": "ref/prompt", "name": name} for name in (pair.name_of("greeting"), "greeting"))
    return same(await _completed(pair, ref, native), None)


@subject("completion for a resource template", PROMPTS)
async def template_completion(pair: Pair) -> Outcome:
    """By its text."""
    ref = {"type": "ref/resource", "uri": f"matrix://{pair.server.name}/item/{{id}}"}
    return same(await _completed(pair, ref, ref), None)


@subject("completion with `context`", PROMPTS, clients_since="2025-06-18")
async def completion_context(pair: Pair) -> Outcome:
    """Servers before 2025-06-18 are not told of the arguments that are known already."""
    ref, native = ({"type": "ref/prompt", "name": name} for name in (pair.name_of("greeting"), "greeting"))
    context = {"arguments": {"title": "Dr"}}
    got = await _completed(pair, ref, native, context=context)
    if got is None:
        assert pair.server.revision < "2025-06-18"
        return converted("left out")
    return same(got, context)
