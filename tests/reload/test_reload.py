"""Reloading, with real processes: what changed changes, the rest does not notice."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..pace import PATIENCE
from ..serve.harness import initialize, modern
from .harness import CHILD, Held, Traffic, alive, called, config, notices, serve, server, tools, who

THREE = {"a": server(), "b": server(), "c": server()}


async def test_what_did_not_change_keeps_its_process_and_fails_no_call(tmp_path: Path) -> None:
    """docs/behaviour.md#reload: make before break; unchanged servers keep their process and sessions."""
    async with serve(tmp_path, config(THREE), "--no-watch") as served:
        client = await served.web.session()
        before = {name: (await who(client, f"{name}__who"))["pid"] for name in THREE}
        traffic = {name: Traffic(await served.web.session(), f"{name}__who") for name in THREE}
        for number in range(3):
            await traffic["a"].more()
            changes = await served.reload(config({**THREE, "b": server(f"extra{number}")}))
            assert changes == '"swap b (args)"'
            await traffic["a"].more()
        await asyncio.gather(*(one.more() for one in traffic.values()))
        await asyncio.gather(*(one.stop() for one in traffic.values()))
        assert {name: one.failures for name, one in traffic.items()} == {"a": [], "b": [], "c": []}
        assert {*traffic["a"].pids} == {before["a"]}
        assert {*traffic["c"].pids} == {before["c"]}
        assert len({*traffic["b"].pids}) >= 2
        assert traffic["b"].pids[0] == before["b"]
        # The session that was there before everything is there after it.
        assert await tools(client) == ["a__who", "b__who", "b__extra2", "c__who"]
        await served.until(lambda: not alive(before["b"]))


async def test_a_change_of_the_file_is_enough(tmp_path: Path) -> None:
    """docs/reload.md#reloading-the-config: `--watch`, default on for `serve`."""
    async with serve(tmp_path, config()) as served:
        client = await served.web.session()
        served.write(config({"a": server(), "new": server()}))
        await served.until(lambda: 'config reloaded changes="start new"' in served.log())
        assert (await who(client, "new__who"))["pid"] != (await who(client, "a__who"))["pid"]
        served.write(config({"new": server()}))
        await served.until(lambda: 'config reloaded changes="stop a"' in served.log())
        assert await tools(client) == ["new__who"]


async def test_without_watching_only_a_signal_reloads(tmp_path: Path) -> None:
    """docs/reload.md#reloading-the-config: `--no-watch`; SIGHUP."""
    async with serve(tmp_path, config(), "--no-watch") as served:
        served.write(config({"a": server(), "new": server()}))
        await asyncio.sleep(2)
        assert served.times("config reloaded") == 0
        served.hang_up()
        await served.until(lambda: served.times("config reloaded") == 1)
        client = await served.web.session()
        assert (await who(client, "new__who"))["pid"] != (await who(client, "a__who"))["pid"]


async def test_an_invalid_file_changes_nothing_and_every_problem_is_told(tmp_path: Path) -> None:
    """docs/reload.md#a-file-with-mistakes: an invalid file changes nothing and says every problem."""
    async with serve(tmp_path, config(THREE)) as served:
        client = await served.web.session()
        before = [(await who(client, f"{name}__who"))["pid"] for name in THREE]
        bad = {"a": {"command": 5}, "b": server(args={}), "c": server(callTimeout="soon"), "d": server()}
        served.write(config(bad, gateway={"separator": "?"}))
        await served.until(lambda: "config not reloaded" in served.log())
        problems = [line for line in served.log().splitlines() if "config problem" in line]
        for place in ("mcpServers.a.command", "mcpServers.b.args", "mcpServers.c.callTimeout", "gateway.separator"):
            assert any(place in line for line in problems), place
        assert len(problems) == 4
        assert [(await who(client, f"{name}__who"))["pid"] for name in THREE] == before
        served.file.unlink()
        await served.until(lambda: served.times("config not reloaded") == 2)
        assert [(await who(client, f"{name}__who"))["pid"] for name in THREE] == before
        served.write(config({**THREE, "d": server()}))
        await served.until(lambda: 'changes="start d"' in served.log())
        assert [(await who(client, f"{name}__who"))["pid"] for name in THREE] == before
        assert served.times("config not reloaded") == 2


async def test_middleware_that_cannot_be_loaded_changes_nothing(tmp_path: Path) -> None:
    """Ours: the file is read before the gateway is asked, and the gateway too may have to say no."""
    async with serve(tmp_path, config(), "--no-watch") as served:
        client = await served.web.session()
        before = (await who(client, "a__who"))["pid"]
        problems = await served.refuse(config({"a": server("more")}, middleware=["no_such_module:Thing"]))
        assert len(problems) == 1
        assert "no_such_module" in problems[0]
        assert await tools(client) == ["a__who"]
        assert (await who(client, "a__who"))["pid"] == before


async def test_list_changed_is_told_once_for_each_change_and_never_for_none(tmp_path: Path) -> None:
    """docs/behaviour.md#reload: one `list_changed` per effective change."""
    async with serve(tmp_path, config(THREE), "--no-watch") as served:
        client = await served.web.session()
        stream = await client.listen()
        told = "notifications/tools/list_changed"
        assert await notices(stream) == []
        await served.reload(config({**THREE, "b": server("x")}))
        assert await notices(stream) == [told]
        assert await tools(client) == ["a__who", "b__who", "b__x", "c__who"]
        await served.reload(config({"a": server(), "b": server("x")}))
        assert await notices(stream) == [told]
        await served.reload(config({"a": server(), "b": server("x"), "c": server()}))
        assert await notices(stream) == [told]
        # Another process with the same tools, another time-out, another look of the file: nobody has to list again.
        await served.reload(config({**THREE, "b": server("x", env={"MORE": "1"}), "c": server(callTimeout=5)}))
        await served.reload(config({**THREE, "b": server("x", env={"MORE": "2"}), "c": server(callTimeout=6)}))
        same = json.dumps(config({**THREE, "b": server("x", env={"MORE": "2"}), "c": server(callTimeout=6)}), indent=4)
        assert await served.reload(same) == '"nothing changes"'
        assert await notices(stream) == []
        # Only the gateway thinks otherwise.
        await served.reload(config({**THREE, "b": server("x", env={"MORE": "2"}, hiddenTools=["x"])}))
        assert await notices(stream) == [told]
        assert await tools(client) == ["a__who", "b__who", "c__who"]


async def test_an_adjusted_server_keeps_its_process(tmp_path: Path) -> None:
    """docs/reload.md#what-happens-to-a-server: what only the gateway does with a server needs no new one."""
    async with serve(tmp_path, config({"a": server("x", "y")}), "--no-watch") as served:
        client = await served.web.session()
        pid = (await who(client, "a__who"))["pid"]
        adjusted = server("x", "y", prefix="other", hiddenTools=["y"], shape={"x": {"description": "as we say"}})
        assert await served.reload(config({"a": adjusted})) == '"adjust a (prefix, hiddenTools, shape)"'
        assert await tools(client) == ["other__who", "other__x"]
        assert (await who(client, "other__who"))["pid"] == pid
        assert "error" in (await client.ask("tools/call", {"name": "other__y"})).json
        quick = server("x", "y", callTimeout=1)
        assert (await served.reload(config({"a": quick}))).startswith('"adjust a (')
        answer = await called(client, "a__who", seconds=5)
        assert answer["error"]["data"]["muxway"]["reason"] == "timeout"
        assert (await who(client, "a__who"))["pid"] == pid


async def test_names_follow_the_gateways_settings(tmp_path: Path) -> None:
    """Ours: everything in the file can change; the separator changes every name."""
    async with serve(tmp_path, config(), "--no-watch") as served:
        client = await served.web.session()
        pid = (await who(client, "a__who"))["pid"]
        assert await served.reload(config(gateway={"separator": "."})) == '"set gateway.separator"'
        assert await tools(client) == ["a.who"]
        assert (await who(client, "a.who"))["pid"] == pid


async def test_options_of_the_command_line_still_win(tmp_path: Path) -> None:
    """Ours: `--separator` was said by whoever started it, the file by anybody."""
    async with serve(tmp_path, config(), "--no-watch", "--separator", ":") as served:
        client = await served.web.session()
        await served.reload(config({"a": server("x")}, gateway={"separator": "."}))
        assert await tools(client) == ["a:who", "a:x"]


async def test_a_call_under_way_ends_at_the_old_process(tmp_path: Path) -> None:
    """docs/reload.md#what-happens-to-a-server: make before break. The old process ends when its last call has."""
    async with serve(tmp_path, config(), "--no-watch") as served:
        client = await served.web.session()
        old = (await who(client, "a__who"))["pid"]
        held = Held(tmp_path)
        slow = asyncio.create_task(who(await served.web.session(), "a__who", **held.arguments))
        await held.begun()
        served.write(config({"a": server("x")}))
        served.hang_up()
        # New calls are answered by the new process while the old one still works.
        async with asyncio.timeout(PATIENCE):
            while (new := (await who(client, "a__who"))["pid"]) == old:
                await asyncio.sleep(0.05)
        assert alive(old)
        assert not slow.done()
        held.let_go()
        assert (await slow)["pid"] == old
        await served.until(lambda: not alive(old))
        assert alive(new)
        assert await tools(client) == ["a__who", "a__x"]


async def test_a_call_under_way_at_a_server_that_goes_is_answered(tmp_path: Path) -> None:
    """Ours: a server that is removed gets the same time as one that is replaced."""
    async with serve(tmp_path, config({"a": server(), "b": server()}), "--no-watch") as served:
        client = await served.web.session()
        held = Held(tmp_path)
        slow = asyncio.create_task(who(await served.web.session(), "b__who", **held.arguments))
        await held.begun()
        served.write(config({"a": server()}))
        served.hang_up()
        async with asyncio.timeout(PATIENCE):
            while "b__who" in await tools(client):
                await asyncio.sleep(0.05)
        held.let_go()
        pid = (await slow)["pid"]
        await served.until(lambda: not alive(pid))


async def test_a_rotated_secret_is_gone_from_the_new_process(tmp_path: Path) -> None:
    """docs/behaviour.md#reload: secrets rotated by reload are gone from memory of new children."""
    variables = tmp_path / "secrets.env"
    variables.write_text("SECRET=first-of-all-secrets\n")
    entry = server(envFile=str(variables))
    async with serve(tmp_path, config({"a": entry, "b": server()})) as served:
        client = await served.web.session()
        old, beside = await who(client, "a__who"), await who(client, "b__who")
        assert old["secret"] == "first-of-all-secrets"
        variables.write_text("SECRET=the-second-one\n")
        await served.until(lambda: 'changes="swap a (env.SECRET)"' in served.log())
        await served.until(lambda: "server swapped upstream=a" in served.log())
        new = await who(client, "a__who")
        assert new["secret"] == "the-second-one"
        assert new["pid"] != old["pid"]
        environment = Path(f"/proc/{new['pid']}/environ").read_bytes()
        assert b"the-second-one" in environment
        assert b"first-of-all" not in environment
        assert (await who(client, "b__who"))["pid"] == beside["pid"]
        await served.until(lambda: not alive(old["pid"]))
        assert "secret" not in served.log().lower().replace("env.secret", "")


async def test_a_server_that_does_not_start_does_not_disturb_the_others(tmp_path: Path) -> None:
    """Ours: a mistake in one entry that only its start can show is that entry's."""
    async with serve(tmp_path, config({"a": server(), "b": server()}), "--no-watch") as served:
        client = await served.web.session()
        pid = (await who(client, "a__who"))["pid"]
        await served.reload(config({"a": server(), "b": server("fail"), "c": {"command": "no-such-program-anywhere"}}))
        assert (await who(client, "a__who"))["pid"] == pid
        await served.reload(config({"a": server(), "b": server(), "c": server()}))
        assert (await who(client, "a__who"))["pid"] == pid
        assert {(await who(client, f"{name}__who"))["pid"] for name in "bc"}.isdisjoint({pid})


async def test_many_reloads_in_a_row_end_with_the_last(tmp_path: Path) -> None:
    """Ours: overlapping reloads follow each other; nothing is left of those between."""
    async with serve(tmp_path, config({"a": server(), "b": server()}), "--no-watch") as served:
        traffic = Traffic(await served.web.session(), "a__who")
        for number in range(20):
            served.write(config({"a": server(), "b": server(f"t{number}")}))
            served.hang_up()
            await asyncio.sleep(0.02)
        client = await served.web.session()
        async with asyncio.timeout(15):
            while await tools(client) != ["a__who", "b__who", "b__t19"]:
                await asyncio.sleep(0.05)
        await traffic.stop()
        assert traffic.failures == []
        assert len({*traffic.pids}) == 1
        await served.until(lambda: len(children(served.process.pid)) == 2)


def children(pid: int) -> list[str]:
    """The servers that run for this gateway, by their command lines."""
    listed = subprocess.run(["ps", "-wweo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    reapers = {row[0] for row in rows if row[1] == str(pid)}
    return [row[2] for row in rows if row[1] in reapers and "child.py" in row[2]]


async def test_a_chain_in_python_is_read_again(tmp_path: Path) -> None:
    """Ours: `muxway serve gateway.py` is watched like any config; what it holds in this process is made anew."""
    chain = tmp_path / "gateway.py"
    lines = [
        "from muxway import chain",
        "class Greeter:",
        "    def greet(self) -> str:",
        "        return 'GREETING'",
        f"gateway = chain().then(local=Greeter(), a=[{sys.executable!r}, {str(CHILD)!r}])",
    ]
    chain.write_text("\n".join(lines).replace("GREETING", "hello"))
    async with serve(tmp_path, config(), chain=chain) as served:
        client = await served.web.session()
        pid = (await who(client, "a__who"))["pid"]
        assert (await called(client, "local__greet"))["result"]["content"][0]["text"] == "hello"
        chain.write_text("\n".join(lines).replace("GREETING", "good evening"))
        await served.until(lambda: 'changes="swap local (object)"' in served.log())
        await served.until(lambda: "server swapped upstream=local" in served.log())
        assert (await called(client, "local__greet"))["result"]["content"][0]["text"] == "good evening"
        assert (await who(client, "a__who"))["pid"] == pid
        chain.write_text("this is no Python")
        await served.until(lambda: "config not reloaded" in served.log())
        assert (await called(client, "local__greet"))["result"]["content"][0]["text"] == "good evening"


async def test_a_reload_while_the_servers_rest_is_for_the_next_client(tmp_path: Path) -> None:
    """Ours: nothing is started for nobody, and the next client finds the new configuration."""
    async with serve(tmp_path, config(), "--no-watch") as served:
        sse = await served.web.open("GET", "/sse", {"Accept": "text/event-stream"})
        sse.drop()
        await served.until(lambda: "the last client has left" in served.log())
        await served.until(lambda: not children(served.process.pid))
        views = {"only": {"tools": ["b__*"]}}
        bad = await served.refuse(config(middleware=["no_such_module:Thing"]))
        assert len(bad) == 1
        assert await served.reload(config({"a": server(), "b": server()}, views=views)) == '"start b; add view only"'
        assert not children(served.process.pid)
        answer = await served.web.post(initialize(), path="/mcp/only")
        assert answer.status == 200
        await served.until(lambda: len(children(served.process.pid)) == 2)
        assert (await who(await served.web.session(), "b__who"))["arguments"] == []


# --- who may come in --------------------------------------------------------------------------


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_rotated_token_is_refused_and_the_new_one_let_in(tmp_path: Path) -> None:
    """docs/reload.md#tokens: tokens follow the reload, and whatever the old one has open ends."""
    first, second = "the-first-token", "the-second-token"
    servers = {"a": server(isolation="shared")}
    async with serve(tmp_path, config(servers, gateway={"token": first}), "--no-watch") as served:
        web = served.web
        client = await web.session(headers=bearer(first))
        stream = await client.listen()
        message, headers = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        listening = await web.open_post(message, {**headers, **bearer(first)})
        # A connection that stays open has its header remembered.
        sse = await web.open("GET", "/sse", {"Accept": "text/event-stream", **bearer(first)})
        assert (stream.status, sse.status, listening.status) == (200, 200, 200)
        assert "notifications/subscriptions/acknowledged" in str(await listening.message())
        pid = (await who(client, "a__who"))["pid"]

        assert await served.reload(config(servers, gateway={"token": second})) == '"set gateway.token"'
        assert (await web.post(initialize(), bearer(first))).status == 401
        assert (await client.ask("tools/list")).status == 401
        for kind, opened in {"session": stream, "sse": sse, "listen": listening}.items():
            try:
                async with asyncio.timeout(5):
                    while await opened.chunk():
                        pass
            except TimeoutError:
                pytest.fail(f"{kind} is still open")
        other = await web.session(headers=bearer(second))
        assert (await who(other, "a__who"))["pid"] == pid
        # Nor does the new one open what the old one had.
        client.headers |= bearer(second)
        assert (await client.ask("tools/list")).status == 404
        assert first not in served.log()
        assert second not in served.log()


async def test_views_come_and_go_with_their_tokens(tmp_path: Path) -> None:
    """docs/reload.md#tokens: views added and removed."""
    servers = {"a": server(), "b": server()}
    async with serve(tmp_path, config(servers), "--no-watch") as served:
        web = served.web
        assert (await web.post(initialize(), path="/mcp/only")).status == 404
        await served.reload(config(servers, views={"only": {"servers": ["a"]}}))
        answer = await web.post(initialize(), path="/mcp/only")
        assert answer.status == 200
        session = {"Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}

        async def seen() -> list[str] | int:
            listed = await web.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, session, path="/mcp/only")
            return [tool["name"] for tool in listed.json["result"]["tools"]] if listed.status == 200 else listed.status

        assert await seen() == ["a__who"]
        await served.reload(config(servers, views={"only": {"servers": ["b"]}}))
        assert await seen() == ["b__who"]
        await served.reload(config(servers))
        assert await seen() == 404
        assert (await web.post(initialize(), path="/mcp/only")).status == 404


async def test_a_token_that_moves_to_a_view_opens_nothing_else_any_more(tmp_path: Path) -> None:
    """Ours: what was found out about a connection's header before is not true after."""
    servers = {"a": server(), "b": server()}
    token = "the-token-that-moves"
    wide = config(servers, gateway={"token": token})
    narrow = config(servers, gateway={"token": "another-token"}, views={"v": {"servers": ["a"], "tokens": [token]}})
    async with serve(tmp_path, wide, "--no-watch") as served:
        message, headers = modern("tools/list")
        body = json.dumps(message).encode()
        lines = {"Host": served.web.host, "Accept": "application/json, text/event-stream", **headers, **bearer(token)}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        request = f"POST /mcp HTTP/1.1\r\n{head}{kind}".encode() + body
        opened = await served.web.connect()

        async def seen() -> list[str]:
            opened.writer.write(request)
            await opened.head()
            return [tool["name"] for tool in json.loads(await opened.rest())["result"]["tools"]]

        assert await seen() == await seen() == ["a__who", "b__who"]
        await served.reload(narrow)
        assert await seen() == ["a__who"]


async def test_a_token_of_the_command_line_stays_and_may_not_become_a_views(tmp_path: Path) -> None:
    """Ours: what would have ended `muxway serve` at its start does not get in by the back door."""
    given = "given-on-the-command-line"
    async with serve(tmp_path, config(), "--no-watch", MUXWAY_TOKEN=given) as served:
        problems = await served.refuse(config(views={"v": {"tokens": [given]}}))
        assert len(problems) == 1
        assert 'also one of the view "v"' in problems[0].replace("'", '"')
        assert given not in served.log()
        await served.reload(config(gateway={"token": "another-token"}))
        assert (await served.web.post(initialize(), bearer(given))).status == 200
        assert (await served.web.post(initialize(), bearer("another-token"))).status == 401


async def test_a_view_that_is_served_may_not_vanish(tmp_path: Path) -> None:
    """Ours: `--view` was said by whoever started it."""
    views = {"v": {"tools": ["a__*"]}}
    async with serve(tmp_path, config(views=views), "--no-watch", "--view", "v") as served:
        problems = await served.refuse(config())
        assert len(problems) == 1
        assert "has no view" in problems[0]
        assert await tools(await served.web.session()) == ["a__who"]


# --- asking for it ----------------------------------------------------------------------------


def muxway(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "muxway", *arguments],
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder / "run")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_the_running_gateway_tells_what_a_reload_would_do_and_does_it(tmp_path: Path) -> None:
    """docs/reload.md#what-would-it-do: `muxway check --plan`, `muxway reload`."""
    async with serve(tmp_path, config({"a": server(), "b": server()}), "--no-watch") as served:
        file = str(served.file)
        same = await asyncio.to_thread(muxway, tmp_path, "check", file, "--plan")
        assert "a reload changes nothing" in same.stdout, same
        served.write(config({"a": server(), "b": server("x"), "c": server()}))
        planned = await asyncio.to_thread(muxway, tmp_path, "check", file, "--plan", "--json")
        assert planned.returncode == 0, planned
        document: dict[str, Any] = json.loads(planned.stdout)["plan"]
        assert (document["keep"], document["start"], document["swap"]) == (["a"], ["c"], {"b": ["args"]})
        assert served.times("config reloaded") == 0
        assert await tools(await served.web.session()) == ["a__who", "b__who"]
        done = await asyncio.to_thread(muxway, tmp_path, "reload", "--config", file)
        assert done.returncode == 0, done
        assert "start" in done.stdout
        assert await tools(await served.web.session()) == ["a__who", "b__who", "b__x", "c__who"]
        served.write("{")
        refused = await asyncio.to_thread(muxway, tmp_path, "reload", "--config", file)
        assert refused.returncode == 3, refused


@pytest.mark.parametrize("as_json", [False, True])
def test_a_plan_can_be_made_of_two_files(as_json: bool, tmp_path: Path) -> None:
    """docs/reload.md#what-would-it-do: `muxway check --plan` without anything that runs."""
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps(config({"a": server(env={"KEY": "hidden-value"})})))
    new.write_text(json.dumps(config({"a": server(env={"KEY": "hidden-other"}), "b": server()})))
    done = muxway(tmp_path, "check", str(new), "--against", str(old), *(["--json"] if as_json else []))
    assert done.returncode == 0, done
    assert "hidden" not in done.stdout
    if as_json:
        assert json.loads(done.stdout)["plan"]["swap"] == {"a": ["env.KEY"]}
    else:
        assert "start  b\n  swap   a (env.KEY)" in done.stdout
    nobody = muxway(tmp_path, "check", str(new), "--plan")
    assert nobody.returncode == 4
    assert "no gateway of yours is running" in nobody.stderr
