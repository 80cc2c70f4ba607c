"""`muxway explain`: why a tool is called what it is called, who sees it, and why it fails."""

from __future__ import annotations

import os
import shutil
import textwrap
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from muxway.cli.config_lines import ConfigLines
from muxway.cli.exits import FAILED
from muxway.cli.help import Verb
from muxway.cli.options import json_option, known_view, read_config
from muxway.cli.output import badge, dim, heading, on_terminal, one_line, plural, show_json, width
from muxway.cli.running import answered, gateway_options, matching, nobody
from muxway.cli.verbs.status import why
from muxway.control.client import find

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.config import Config

_LABEL = 10
"""Characters for what a line is about."""


@click.command(
    cls=Verb,
    examples=[
        "muxway explain github__search",
        "muxway explain delete_repository --view agent",
        "muxway explain github__search --config servers.json",
        "muxway explain github__delete_repository --as ann@example.com --group eng",
    ],
)
@click.argument("tool")
@click.option("--view", metavar="NAME", help="Explain it for clients of this view.")
@click.option("--as", "user", metavar="USER", help="Explain it for this user, by the access rules.")
@click.option("--group", "groups", metavar="GROUP", multiple=True, help="Explain it for this group. May be repeated.")
@click.option("--key", metavar="NAME", help="Explain it for the API key of this name.")
@click.option("--client", metavar="ID", help="Explain it for the client with this id.")
@gateway_options
@json_option
def command(
    tool: str,
    view: str | None,
    user: str | None,
    groups: tuple[str, ...],
    key: str | None,
    client: str | None,
    pid: int | None,
    config: str | None,
    *,
    as_json: bool,
) -> None:
    """Explain why a tool is visible, hidden, renamed or failing.

    TOOL is a public name in any spelling, or the server's own name for it. Each
    reason comes with its line in the config file.

    Asks a running gateway if there is one (with --config or $MUXWAY_CONFIG, one
    that runs this config). Otherwise it starts the servers itself, and stops them
    afterwards.

    If there are access rules, it names the one that decides: for callers without
    credentials, or for the caller given by --as, --group, --key and --client.

    Exit 1 if there is no such tool, 4 if no gateway has the process id of --pid.
    """
    who = {"user": user, "groups": [*groups], "key": key, "client": client}
    every = _told(tool, view, who if any(who.values()) else None, pid, config)
    documents: list[dict[str, Any]] = []
    for told in every:
        lines = ConfigLines(told["config"])
        for fact in _facts(told):
            fact["path"], fact["line"] = lines.find(fact.pop("place"))
        near = _nearest(tool, told["unknown"].pop("names")) if told["unknown"] else []
        documents.append({**told, "nearest": near})
        if not as_json:
            _show(told, near, lines.file)
    if as_json:
        show_json(documents[0] if len(documents) == 1 else {"gateways": documents})
    if not any(told["tools"] for told in every):
        raise click.exceptions.Exit(FAILED)


def _told(
    tool: str, view: str | None, who: dict[str, Any] | None, pid: int | None, config: str | None
) -> list[dict[str, Any]]:
    """What each gateway says. Of those that run the same config, the first is asked: they would say the same."""
    from muxway.config.find import VARIABLES

    found = find()
    # Whoever names a config, by an option or a variable, means no gateway that runs another.
    named = config or next(filter(None, map(os.environ.get, VARIABLES)), None)
    running = matching(found, pid, config if pid is not None else named)
    if running:
        first = {one.config or one.pid: one for one in reversed(running)}
        with answered():
            told = [
                {
                    **one.ask("explain", tool=tool, view=view, who=who),
                    "config": one.config,
                    "pid": one.pid,
                }
                for one in reversed(first.values())
            ]
        # With several, those that do not know it have nothing to add; if none does, each has its own nearest names.
        return [one for one in told if one["tools"]] or told
    if pid is not None:
        raise nobody(found, pid, config)
    # Only now, as it loads the whole gateway.
    from muxway.cli.session import quiet_log, run

    quiet_log(debug=False)
    loaded = read_config(config)
    known_view(loaded, view)
    return [{**run(_explained(loaded, tool, view, who)), "pid": None}]


async def _explained(config: Config, tool: str, view: str | None, who: dict[str, Any] | None) -> dict[str, Any]:
    from muxway.cli.session import opened
    from muxway.control.explaining import explain, identity_of

    async with opened(config) as gateway:
        return await explain(gateway, tool, view, identity_of(who))


def _facts(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    unknown = told["unknown"]
    return [fact for tool in told["tools"] for fact in tool["facts"]] + (unknown["facts"] if unknown else [])


def _nearest(name: str, names: list[str]) -> list[str]:
    own = [public for public in names if public.endswith(name)]
    return own[:3] or get_close_matches(name, names, n=3, cutoff=0.6)


# --- for people -------------------------------------------------------------------------------


def _show(told: Mapping[str, Any], near: list[str], file: str | None) -> None:
    for tool in told["tools"]:
        _show_tool(tool, told["asked"], told["view"])
        click.echo()
    if told["more"]:
        click.echo(f"… and {plural(told['more'], 'more tool')} with this name\n")
    if told["unknown"] is not None:
        _show_unknown(told, near)
        click.echo()
    by = "By the servers, started for this" if told["pid"] is None else f"By the gateway with pid {told['pid']}"
    click.echo(dim(f"{by}; lines are those of {one_line(file)}" if file else by))


def _show_tool(tool: Mapping[str, Any], asked: str, view: str | None) -> None:
    name = one_line(tool["name"] or asked)
    seen = f" in view {view}" if view is not None else ""
    mark = click.style("listed", fg="green") if tool["listed"] else click.style("not listed", fg="yellow")
    click.echo(f"{heading(name)}  {mark}{seen}")
    if tool["server"] is not None:
        _show_line("server", _state(tool["server"], tool["state"]))
        _show_line("own name", one_line(tool["originalName"]))
    about = ""
    for fact in tool["facts"]:
        # What goes on about the same thing need not say so again.
        _show_fact("" if fact["about"] == about else fact["about"], fact)
        about = fact["about"]
    state = tool["state"]
    if state is not None and state["status"] not in ("running", "sleeping"):
        _show_line("fails now", click.style(why({"name": tool["server"], **state}), fg="red"))
    elif state is not None and state["errors"]:
        _show_line("calls", f"{state['errors']} of {state['calls']} calls of this server failed")


def _show_unknown(told: Mapping[str, Any], near: list[str]) -> None:
    where = f" in view {told['view']}" if told["view"] is not None else ""
    click.echo(f"{badge('error')}  there is no tool {one_line(told['asked'])}{where}")
    unknown = told["unknown"]
    for fact in unknown["facts"]:
        _show_fact(fact["about"], fact)
    state = unknown["state"]
    if state is not None and state["status"] != "running":
        _show_line("why", why(state))
    if near:
        _show_line("nearest", ", ".join(map(one_line, near)))


def _state(server: str, state: Mapping[str, Any] | None) -> str:
    if state is None:
        return one_line(server)
    return f"{one_line(server)}, {badge(state['status'])}, {state['revision'] or 'revision not known'}"


def _show_fact(label: str, fact: Mapping[str, Any]) -> None:
    line = f"line {fact['line']}, " if fact["line"] is not None else ""
    place = "" if fact["path"] is None else dim(f"({line}{one_line(fact['path'])})")
    _show_line(label, one_line(fact["text"]), place)


def _show_line(label: str, text: str, place: str = "") -> None:
    start = f"  {dim(one_line(label).ljust(_LABEL))}  "
    room = shutil.get_terminal_size().columns
    if not on_terminal() or width(start + text) + width(place) + 2 <= room:
        click.echo(f"{start}{text}  {place}".rstrip())
        return
    indent = " " * width(start)
    wrapped = textwrap.wrap(click.unstyle(text), max(room - len(indent), 20), break_on_hyphens=False)
    click.echo(start + f"\n{indent}".join([*wrapped, *([place] if place else [])]))
