"""What happens while a call runs."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from muxway.wire.revisions import LOG_LEVEL, LOG_LEVELS
from tests.compatibility.subjects.base import NEWEST, SAME, converted, impossible, same, subject, text
from tests.pace import PATIENCE

if TYPE_CHECKING:
    from tests.compatibility.matrix import Pair
    from tests.compatibility.server import Server
    from tests.compatibility.subjects.base import Outcome

UNDER_WAY = "While a call runs"


def _report(server: Server, request: dict[str, Any]) -> None:
    server.progress(request, 1, total=2, message="half")
    server.reply(request, {"content": []})


@subject("progress", UNDER_WAY, tool=_report)
async def progress(pair: Pair) -> Outcome:
    """Under the caller's own token. Clients of 2024-11-05 do not know its `message`."""
    token = f"token-{pair.server.name}"
    await pair.reply("progress", _meta={"progressToken": token})
    got = (await pair.client.notice("notifications/progress"))["params"]
    sent = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
    if got == {name: value for name, value in sent.items() if name != "message"}:
        return converted("without its message")
    return same(got, sent)


# --- cancellation -----------------------------------------------------------------------------


def counts(server: Server, request: dict[str, Any]) -> None:
    """Say how many calls wait, how many were cancelled, and how often one was made again with answers."""
    counted = {"running": len(server.waiting), "over": server.cancelled, "again": server.again}
    server.reply(request, {"content": [text(json.dumps(counted))]})


async def until(pair: Pair, tool: str, **wanted: int) -> None:
    """Wait until the server has such counts."""
    async with asyncio.timeout(PATIENCE):
        while wanted.items() - (await counted(pair, tool)).items():
            await asyncio.sleep(0.005)


async def counted(pair: Pair, tool: str) -> dict[str, int]:
    """The counts of the server."""
    return json.loads((await pair.content(tool, {"report": True}))[0]["text"])


async def _wait_for_cancel(server: Server, request: dict[str, Any]) -> None:
    if "report" in request["params"]["arguments"]:
        counts(server, request)
    else:
        await server.until_cancelled(request["id"])


@subject("cancellation", UNDER_WAY, tool=_wait_for_cancel)
async def cancel(pair: Pair) -> Outcome:
    """By a notice; over HTTP in 2026-07-28 by closing the connection, towards servers too."""
    before = (await counted(pair, "cancel"))["over"]
    call = pair.client.start("tools/call", {"name": pair.name_of("cancel"), "arguments": {}})
    await until(pair, "cancel", running=1)
    pair.client.cancel(call)
    await until(pair, "cancel", running=0, over=before + 1)
    return SAME


# --- log messages -----------------------------------------------------------------------------

_LOG = "notifications/message"
_UNASKED = "A server of 2026-07-28 may log only in calls that set a level, and sends nothing."
_NOT_TOLD = "A client of 2026-07-28 is told of logs only in calls that set a level: what the server says is dropped."


def _log(server: Server, request: dict[str, Any]) -> None:
    """Logs twice, as far as its revision lets it, and says what it logged."""
    if server.revision == NEWEST:
        level = request["params"]["_meta"].get(LOG_LEVEL)
        least = len(LOG_LEVELS) if level is None else LOG_LEVELS.index(level)
    else:
        least = server.log_level
    logged = [level for level in ("info", "error") if LOG_LEVELS.index(level) >= least]
    for level in logged:
        params = {"level": level, "logger": "disk", "data": {"free": None}}
        server.say({"jsonrpc": "2.0", "method": _LOG, "params": params})
    server.reply(request, {"content": [text(json.dumps(logged))]})


async def _logged(pair: Pair, tool: str, level: str | None) -> tuple[list[str], list[str]]:
    """The levels of what the server logged in a call with this level set, and of what the client heard."""
    client = pair.client
    client.forget_notices()
    meta = {}
    if level is not None and client.stateless:
        meta = {"_meta": {LOG_LEVEL: level}}
    elif level is not None:
        await client.ask("logging/setLevel", {"level": level})
    said = json.loads((await pair.reply(tool, **meta)).result["content"][0]["text"])
    heard = [notice["params"] for notice in client.notices if notice["method"] == _LOG]
    for params in heard:
        assert params == {"level": params["level"], "logger": f"{pair.server.name}/disk", "data": {"free": None}}
    return said, [params["level"] for params in heard]


@subject("log messages, no level set", UNDER_WAY, tool=_log)
async def log_unset(pair: Pair) -> Outcome:
    """Handshake servers then choose themselves, as long as no other client has set a level either."""
    said, heard = await _logged(pair, "log_unset", None)
    if not said:
        assert not heard
        return impossible(_UNASKED, pair.server.revision == NEWEST)
    assert said == ["info", "error"]
    if not heard:
        return impossible(_NOT_TOLD, pair.client.stateless)
    return same(heard, said)


@subject("log messages", UNDER_WAY, tool=_log)
async def log_set(pair: Pair) -> Outcome:
    """From the level on that the session, or in 2026-07-28 the call, has set. `logger` begins with the server."""
    said, heard = await _logged(pair, "log_set", "info")
    assert said == ["info", "error"]
    return same(heard, said)


@subject("log level", UNDER_WAY, tool=_log)
async def log_level(pair: Pair) -> Outcome:
    """What is below it is not heard, though others may have asked the server for more."""
    said, heard = await _logged(pair, "log_level", "error")
    assert "error" in said
    return same(heard, ["error"])
