"""`muxway approvals`: calls that wait because a rule says `ask`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from muxway.cli.exits import Failed
from muxway.cli.figures import duration
from muxway.cli.help import Verb
from muxway.cli.options import json_option
from muxway.cli.output import badge, dim, heading, one_line, show_json
from muxway.cli.running import answered, gateway_options, pick_any, several
from muxway.config import durations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.control.client import RunningGateway

_LONGEST = 24 * 3600.0


@click.command(
    cls=Verb,
    examples=[
        "muxway approvals",
        "muxway approvals allow 3fa9c1",
        "muxway approvals allow 3fa9c1 --remember 1h",
        "muxway approvals deny 3fa9c1",
    ],
)
@click.argument("action", type=click.Choice(["list", "allow", "deny"]), default="list")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option(
    "--remember",
    metavar="TIME",
    help="With allow: also allow later calls of the same tool by the same caller, for this time, up to 24h.",
)
@gateway_options
@json_option
def command(
    action: str, ids: tuple[str, ...], remember: str | None, pid: int | None, config: str | None, *, as_json: bool
) -> None:
    """Show calls that wait for approval; allow or deny them.

    A call waits here if an access rule says `ask` and the client cannot ask its
    user. Secrets in the arguments are masked. After `gateway.approvalTimeout` the
    call is denied.

    With --remember, the approval also applies to other arguments, until the server
    restarts or the config is reloaded.

    Exit 1 if the call no longer waits, 4 if no gateway runs.
    """
    seconds = _seconds(remember, action)
    if action == "list":
        if ids:
            raise click.UsageError("To answer, say `allow` or `deny` before the id.")
        _list(pick_any(pid, config), as_json=as_json)
        return
    if not ids:
        raise click.UsageError(f"Give the id of the call to {action}: see `muxway approvals`.")
    gateways = pick_any(pid, config)
    with answered():
        having = [(_having(one, gateways, config), one) for one in ids]
        done = [gateway.ask("approve", id=one, allow=action == "allow", remember=seconds) for gateway, one in having]
    if as_json:
        show_json({"answer": action, "calls": done})
        return
    for one in done:
        word = "allowed" if action == "allow" else "denied"
        click.echo(f"{badge('ok')}  {word} {one_line(one['name'])}")


def _having(call: str, gateways: list[RunningGateway], config: str | None) -> RunningGateway:
    """The gateway in which this call waits."""
    if len(gateways) == 1:
        return gateways[0]
    having = [one for one in gateways if any(it["id"] == call for it in one.ask("approvals")["waiting"])]
    if not having:
        why = f'none of the {len(gateways)} running gateways has a waiting call "{one_line(call)}"'
        raise Failed(f"{why}; `muxway approvals` shows those there are.")
    if len(having) > 1:
        raise several(having, config)
    return having[0]


def _seconds(remember: str | None, action: str) -> float:
    if remember is None:
        return 0.0
    if action != "allow":
        raise click.UsageError("--remember goes with allow.")
    try:
        seconds = durations.seconds(remember)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--remember") from None
    if not 0 < seconds <= _LONGEST:
        raise click.BadParameter("give a time of up to 24h, such as 10m", param_hint="--remember")
    return seconds


def _list(gateways: list[RunningGateway], *, as_json: bool) -> None:
    with answered():
        waiting = [{"pid": one.pid, **call} for one in gateways for call in one.ask("approvals")["waiting"]]
    if as_json:
        show_json({"waiting": waiting})
        return
    if not waiting:
        click.echo(f"{badge('ok')}  no call waits to be approved")
    for call in waiting:
        _show(call)


def _show(call: Mapping[str, Any]) -> None:
    click.echo(f"{heading(call['id'])}  {one_line(call['name'])}  {dim('waits for ' + duration(call['seconds']))}")
    who = call["user"] or (f"key {call['key']}" if call["key"] else call["principal"] or "somebody without credentials")
    client = f" with {call['client']}" if call["client"] else ""
    click.echo(f"  {dim('caller')}     {one_line(who + client)}")
    if call["arguments"] is not None:
        click.echo(f"  {dim('arguments')}  {one_line(json.dumps(call['arguments'], ensure_ascii=False))}")
    click.echo(f"  {dim('rule')}       {one_line(call['rule'])}")
