"""Fills the generated parts of the pages: between `<!-- generated: NAME -->` and `<!-- end -->`.

    .venv/bin/python docs/generate.py

The rest of a page is written by hand and left alone. `tests/docs` fails while a page is not up to date.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from muxway.cli import cli
from muxway.config.access import RULE
from muxway.config.auth import AUTH, CLAIMS, INTROSPECTION, OWN_SERVER, SIGN_ON
from muxway.config.dialects import CONTAINERS
from muxway.config.model import CUSTOM_TOOL, EXAMPLE, GATEWAY, SERVER, STEP, SUBTOOL, VIEW
from muxway.config.oauth import IDP, OAUTH
from muxway.config.programs import ARGUMENT as PROGRAM_ARGUMENT
from muxway.config.programs import COMMAND as PROGRAM_COMMAND
from muxway.config.shaping import ARGUMENT, SHAPE
from muxway.config.tls import LISTENER_TLS, SERVER_TLS
from muxway.setup.clients import CLIENTS

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from muxway.config.fields import Field, Section

DOCS: Final = Path(__file__).parent
PAGES: Final = (DOCS / "configuration.md", DOCS / "cli.md", DOCS / "setup.md", DOCS / "programs.md")
_PART = re.compile(r"(?<=<!-- generated: )(?P<name>[\w-]+) -->\n.*?(?=<!-- end -->)", re.DOTALL)
_WIDTH: Final = 78
"""What click makes of a terminal of 80 columns."""


def render(page: str) -> str:
    """The page with its generated parts made anew."""
    return _PART.sub(lambda part: f"{part['name']} -->\n\n{PARTS[part['name']]()}\n\n", page)


# --- configuration ----------------------------------------------------------------------------


def containers() -> str:
    """Which client keeps its servers under which key."""
    rows = [(_code(".".join(path)), users) for path, users in CONTAINERS]
    return _table(("Key", "Who keeps them there"), rows)


def fields(section: Section, without: Container[str] = ()) -> str:
    """The keys of one section."""
    rows = [_row(row) for row in section.fields if row.key not in without]
    return _table(("Key", "Meaning", "Default", "Also"), rows)


def _row(row: Field) -> tuple[str, ...]:
    shown = "required" if row.required else "" if row.default is None else _code(json.dumps(row.default))
    doc = row.doc + (f" One of {', '.join(map(_code, row.kind.choices))}." if row.kind.choices else "")
    example = json.dumps({row.key: row.example}, ensure_ascii=False)[1:-1]
    return _code(row.key), f"{doc}<br>{_code(example)}", shown, ", ".join(map(_code, row.aliases))


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`"


# --- set up ---------------------------------------------------------------------------------------


def clients() -> str:
    """The clients, their files and what makes them read these again."""
    rows = [
        (_code(client.id), client.title, "<br>".join(_code(_place(file)) for file in client.files), client.then)
        for client in CLIENTS.values()
    ]
    return _table(("Client", "", "File", "After a change"), rows)


def _place(file: str) -> str:
    words = {"home": "~", "xdg": "~/.config", "claude": "~", "codex": "~/.codex", "copilot": "~/.copilot"}
    return file.format(**words, config="{config}")


# --- command ----------------------------------------------------------------------------------


def verbs() -> str:
    """What `--help` says, of every verb."""
    return "\n\n".join(f"## {path}\n\n```text\n{text}\n```" for path, text in _helps(cli, "muxway", None))


def _helps(command: click.Command, name: str, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    settings = {**command.context_settings, "terminal_width": _WIDTH, "color": False}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    yield context.command_path, command.get_help(context).rstrip()
    if isinstance(command, click.Group):
        for verb in command.list_commands(context):
            below = command.get_command(context, verb)
            if below is not None:
                yield from _helps(below, verb, context)


PARTS: Final = {
    "containers": containers,
    "servers": lambda: fields(SERVER),
    "gateway": lambda: fields(GATEWAY),
    "auth": lambda: fields(AUTH),
    "claims": lambda: fields(CLAIMS),
    "introspection": lambda: fields(INTROSPECTION),
    "sign-on": lambda: fields(SIGN_ON),
    "own-server": lambda: fields(OWN_SERVER),
    "compound-tools": lambda: fields(CUSTOM_TOOL, {row.key for row in CUSTOM_TOOL.fields[2:]}),
    "subtools": lambda: fields(SUBTOOL),
    "composed-tools": lambda: fields(CUSTOM_TOOL, {"subtools"}),
    "steps": lambda: fields(STEP),
    "examples": lambda: fields(EXAMPLE),
    "shapes": lambda: fields(SHAPE),
    "arguments": lambda: fields(ARGUMENT),
    "program-commands": lambda: fields(PROGRAM_COMMAND),
    "program-arguments": lambda: fields(PROGRAM_ARGUMENT),
    "oauth": lambda: fields(OAUTH),
    "idp": lambda: fields(IDP),
    "server-tls": lambda: fields(SERVER_TLS),
    "listener-tls": lambda: fields(LISTENER_TLS),
    "views": lambda: fields(VIEW),
    "access-rules": lambda: fields(RULE),
    "verbs": verbs,
    "clients": clients,
}


def main() -> None:
    """Write the pages anew."""
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        new = render(old)
        page.write_text(new, encoding="utf-8")
        sys.stdout.write(f"{page.name}: {'unchanged' if new == old else 'written'}\n")


if __name__ == "__main__":
    main()
