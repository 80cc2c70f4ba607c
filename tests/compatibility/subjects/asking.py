"""How the servers of the matrix ask: those of a handshake in the middle of a call, those of 2026-07-28 in rounds.

The result of each call says what was answered, so that the client can tell what arrived.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muxway.wire.revisions import CLIENT_CAPABILITIES
from tests.compatibility.subjects.base import NEWEST, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.testing import ToolScript
    from tests.compatibility.server import Server

ELICIT, SAMPLE, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"


@dataclass(frozen=True)
class Question:
    """What a server asks."""

    method: str
    params: Mapping[str, Any] | None
    needs: tuple[str, ...]
    """The capability that a caller must have declared: its name, and the one inside it if there is one."""

    def in_words_of(self, revision: str) -> dict[str, Any] | None:
        """The params as a server of this revision spells them."""
        if self.params is None:
            return None
        params = dict(self.params)
        if self.method == ELICIT and revision == NEWEST:
            params.setdefault("mode", "form")
        if params.get("mode") == "url" and revision != NEWEST:
            params["elicitationId"] = "page-1"
        return params


def asks(*rounds: Mapping[str, Question]) -> ToolScript:
    """A tool that asks in rounds, the questions of a round at once, and answers with the answers."""
    return lambda server, request: _ask(server, request, rounds)  # pyright: ignore[reportArgumentType]


async def _ask(server: Server, request: dict[str, Any], rounds: tuple[Mapping[str, Question], ...]) -> None:
    given = await answers(server, request, rounds)
    if given is not None:
        server.reply(request, {"content": [text(json.dumps(given))]})


async def answers(
    server: Server, request: dict[str, Any], rounds: tuple[Mapping[str, Question], ...]
) -> dict[str, Any] | None:
    """Key → result, or `{"error": code}`; None while a stateless server has only asked so far."""
    if server.revision == NEWEST:
        return _answers_by_rounds(server, request, rounds)
    given: dict[str, Any] = {}
    for questions in rounds:
        asked = [server.ask(one.method, one.in_words_of(server.revision)) for one in questions.values()]
        for key, answer in zip(questions, await asyncio.gather(*asked), strict=True):
            given[key] = answer["result"] if "result" in answer else {"error": answer["error"]["code"]}
    return given


def _answers_by_rounds(
    server: Server, request: dict[str, Any], rounds: tuple[Mapping[str, Question], ...]
) -> dict[str, Any] | None:
    params = request["params"]
    # All it knows is in the state it gave away.
    given = {**json.loads(params.get("requestState", "{}")), **params.get("inputResponses", {})}
    declared = params["_meta"][CLIENT_CAPABILITIES]
    for questions in rounds:
        asked = {key: one for key, one in questions.items() if key not in given}
        for one in asked.values():
            name, *inside = one.needs
            if name not in declared or any(key not in declared[name] for key in inside):
                needed = {"requiredCapabilities": {name: {key: {} for key in inside}}}
                server.fail(request, -32021, f"I need {'.'.join(one.needs)}", needed)
                return None
        if asked:
            entries = {key: {"method": one.method, **_params_of(one)} for key, one in asked.items()}
            server.need(request, entries, json.dumps(given))
            return None
    return given


def _params_of(question: Question) -> dict[str, Any]:
    params = question.in_words_of(NEWEST)
    return {} if params is None else {"params": params}
