"""`muxway registry`: which servers there are in the MCP registry."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import msgspec

from muxway.cli.exits import Failed
from muxway.cli.help import SETTINGS, Verb
from muxway.cli.options import config_option, json_option
from muxway.cli.output import StatusLine, badge, dim, heading, one_line, plural, show_json, show_table
from muxway.cli.registry import base_of, name_and_version, registry_option, tell_standing
from muxway.cli.session import run
from muxway.config.find import find_config
from muxway.errors import ConfigError
from muxway.setup.registry.asking import Registry
from muxway.setup.registry.mirror import mirror_file, refreshed, renewed
from muxway.setup.registry.mirror import search as search_mirror
from muxway.setup.registry.records import RegistryError

if TYPE_CHECKING:
    from pathlib import Path

    from muxway.setup.registry.mirror import KnownServer, Mirror
    from muxway.setup.registry.records import RegistryInput, RegistryRecord


@click.group(context_settings=SETTINGS)
def command() -> None:
    """Search the MCP registry, or show one of its servers."""


@command.command(
    cls=Verb, examples=["muxway registry search postgres", "muxway registry search 'web search' --limit 50"]
)
@click.argument("query")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Most servers to show.")
@config_option
@registry_option
@json_option
def search(query: str, limit: int, config: str | None, registry: str | None, *, as_json: bool) -> None:
    """Find servers whose name, title or description has every word of QUERY.

    Searches a local copy. The copy is updated from the registry at most once an
    hour; if the registry cannot be reached, the existing copy is searched.
    """
    base = base_of(registry, _config(config)).rstrip("/")
    mirror, found, why = run(_search(base, query, limit))
    if why:
        click.echo(f"{badge('warning')}  {one_line(why)}", err=True)
    if as_json:
        show_json([
            {"name": one.name, "version": one.version, "title": one.title, "description": one.description,
             "status": one.status}
            for one in found
        ])  # fmt: skip
        return
    if not found:
        click.echo("Nothing was found.")
    show_table([
        (one.name, one_line(one.version), one_line(_status(one) + (one.description or one.title))) for one in found
    ])  # fmt: skip
    if mirror.fetched:
        moment = datetime.fromtimestamp(mirror.fetched, UTC).strftime("%Y-%m-%d %H:%M UTC")
        click.echo(dim(f"{plural(len(mirror.starts), 'server')} of {one_line(base)}, as of {moment}."), err=True)


@command.command(cls=Verb, examples=["muxway registry show io.github.owner/server", "muxway registry show NAME@1.2.3"])
@click.argument("name")
@config_option
@registry_option
@json_option
def show(name: str, config: str | None, registry: str | None, *, as_json: bool) -> None:
    """Show one server of the registry: description, packages and required values."""
    wanted = name_and_version(name)
    if wanted is None:
        raise click.BadParameter(f"{one_line(name)} is no name like io.github.owner/server.", param_hint="NAME")
    record = run(_record(base_of(registry, _config(config)), *wanted))
    if as_json:
        show_json(msgspec.to_builtins(record))
        return
    server = record.server
    click.echo(heading(f"{server.name} {one_line(server.version)}"))
    tell_standing(record)
    for text in (server.title, server.description):
        if text:
            click.echo(f"  {one_line(text)[:500]}")
    for package in server.packages or ():
        version = f" {package.version}" if package.version else ""
        click.echo(f"{one_line(package.registry_type)}: {one_line(package.identifier + version)}")
        _inputs(package.environment_variables)
        _inputs(package.package_arguments)
    for remote in server.remotes or ():
        click.echo(f"{one_line(remote.type)}: {one_line(remote.url or '')}")
        _inputs(remote.headers)
    click.echo(dim(f"To have it: muxway add {server.name}"))


def _inputs(given: list[RegistryInput] | None) -> None:
    rows = [
        (
            f"  {one_line(one.name or one.value_hint or '')}",
            "secret" if one.is_secret else "",
            "required" if one.is_required else "",
            one_line(one.description or ""),
        )
        for one in given or ()
        if one.value is None
    ]
    show_table(rows)


def _config(given: str | None) -> Path | None:
    try:
        return find_config(given)
    except ConfigError:
        if given is not None:
            raise
        return None


def _status(found: KnownServer) -> str:
    return "" if found.status == "active" else f"({found.status}) "


async def _search(base: str, query: str, limit: int) -> tuple[Mirror, list[KnownServer], str]:
    line = StatusLine()
    file = mirror_file(base)

    def tell(count: int) -> None:
        line.show(f"{count} servers of the registry …")

    try:
        async with Registry(base) as registry:
            mirror, why = await refreshed(registry, file, tell)
            try:
                found = search_mirror(mirror, query, limit)
            except msgspec.MsgspecError:
                # Damaged. It is only a copy.
                file.unlink(missing_ok=True)
                mirror, why = await refreshed(registry, file, tell)
                found = search_mirror(mirror, query, limit)
            if mirror.fetched:
                return mirror, found, why
            # There is no copy yet. The registry itself can be searched, by name.
            try:
                records = await registry.search(query[:100])
            except RegistryError:
                raise Failed(why) from None
            found = search_mirror(renewed(mirror, records, 0.0), query, limit)
            return mirror, found, f"{why} Only names are searched, by the registry."
    finally:
        line.wipe()


async def _record(base: str, name: str, version: str | None) -> RegistryRecord:
    async with Registry(base) as registry:
        return await registry.record(name, version)
