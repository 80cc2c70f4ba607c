"""What is done to tools for a client that cannot take them as they are: what `muxway check --client` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muxway.catalog.client_profiles import PROFILES
from muxway.cli.output import badge, one_line, plural, show_table

if TYPE_CHECKING:
    from muxway.catalog.client_profiles import Adapted
    from muxway.config import Config
    from muxway.gateway import Gateway

Forms = dict["str | None", "Adapted"]
"""View, or None for the whole → what is done to its tools for a client."""


def forms_of(config: Config, gateway: Gateway, client: str | None) -> Forms:
    """What is done for a client, if one is given."""
    return {} if client is None else {view: gateway.adapted_for(client, view) for view in (None, *config.views)}


def show_forms(client: str, forms: Forms, *, off: bool) -> None:
    """Print it; `off`: it is switched off."""
    title = PROFILES[client].title
    if off:
        click.echo(f"{badge('warning')}  `gateway.clientProfiles` is false: {title} gets everything as it is")
    for view, one in forms.items():
        where = "" if view is None else f", in view {one_line(view)}"
        if not one.changes:
            click.echo(f"{badge('ok')}  {title} takes all tools as they are{where}")
        else:
            changed = plural(len({change.tool for change in one.changes}), "tool")
            click.echo(f"{title} {'would get' if off else 'gets'} {changed} in a form that it takes{where}:")
            show_table([[one_line(change.tool), one_line(change.what)] for change in one.changes], indent=2)
        for warning in one.warnings:
            click.echo(f"{badge('warning')}  {one_line(warning)}{where}")


def forms_document(client: str, forms: Forms) -> dict[str, Any]:
    """The same for programs."""
    return {
        "name": client,
        "lists": [
            {
                "view": view,
                "changes": [{"tool": change.tool, "what": change.what} for change in one.changes],
                "warnings": list(one.warnings),
            }
            for view, one in forms.items()
        ],
    }
