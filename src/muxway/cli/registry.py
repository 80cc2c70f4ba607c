"""The registry as verbs use it: which one, what it is asked, and what its records ask of the user."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import click

from muxway.cli.changes import can_ask
from muxway.cli.output import badge, dim, one_line
from muxway.config.documents import read_document
from muxway.config.expand import home_of, working_folder
from muxway.config.report import as_mapping
from muxway.errors import ConfigError
from muxway.setup.registry.launching import choose, package_recipe, remote_recipe
from muxway.setup.registry.records import PUBLIC, VARIABLE, RegistryError, RegistryPackage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from muxway.setup.registry.questions import Question
    from muxway.setup.registry.recipes import Recipe
    from muxway.setup.registry.records import RegistryRecord

_F = TypeVar("_F", bound="Callable[..., object]")
_NAME = re.compile(r"([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+/[A-Za-z0-9][\w.-]*)(?:@(\S+))?", re.ASCII)


def registry_option(command: _F) -> _F:
    """`--registry URL`."""
    return click.option(
        "--registry",
        metavar="URL",
        help=f"MCP registry to ask.  [default: ${VARIABLE}, gateway.registry of the config, the official one]",
    )(command)


def base_of(registry: str | None, config: Path | None) -> str:
    """The address of the registry: as the option, the environment or the config says, else the official one."""
    given = registry or os.environ.get(VARIABLE)
    if given:
        return given
    if config is not None and config.suffix != ".py":
        try:
            gateway = as_mapping((as_mapping(read_document(config).value) or {}).get("gateway")) or {}
        except ConfigError:
            gateway = {}  # who reads the whole of it will tell
        written = gateway.get("registry")
        if isinstance(written, str) and written:
            return written
    return PUBLIC


def name_and_version(source: str) -> tuple[str, str | None] | None:
    """What a name of the registry says, `io.github.x/y` or `io.github.x/y@1.2.3`; None for anything else."""
    match = _NAME.fullmatch(source)
    if match is None:
        return None
    return match[1], None if match[2] in (None, "latest") else match[2]


async def look_up(base: str, name: str, version: str | None, wanted: str | None) -> tuple[RegistryRecord, Recipe]:
    """A record, and how its server is run or reached. Raises RegistryError."""
    # Only who asks pays for what asking takes.
    from muxway.setup.registry.asking import Registry
    from muxway.setup.registry.bundles import bundle_recipe

    async with Registry(base) as registry:
        record = await registry.record(name, version)
        if record.status == "deleted":
            raise RegistryError(f"{name} {record.server.version} was deleted from the registry: it is not added.")
        chosen = choose(record.server, wanted, os.environ)
        if not isinstance(chosen, RegistryPackage):
            return record, remote_recipe(chosen)
        if chosen.registry_type == "mcpb":
            return record, await bundle_recipe(chosen, registry, os.environ)
        return record, package_recipe(chosen, os.environ)


def tell_standing(record: RegistryRecord) -> None:
    """Warn of a record that its publisher has given up."""
    if record.status != "active":
        why = record.standing.status_message
        said = f": {one_line(why)[:200]}" if why else ""
        click.echo(f"{badge('warning')}  {record.server.name} is {one_line(record.status)}{said}")


def answers_for(
    questions: Mapping[str, Question], given: tuple[str, ...], secrets: tuple[str, ...]
) -> tuple[dict[str, Question], dict[str, list[str]]]:
    """The questions, with those secret that are given as secrets, and their answers: given, asked for, or defaults.

    Raises:
        UsageError: something is missing, unknown or wrong; says what, and never shows a value.
    """
    asked = dict(questions)
    found: dict[str, list[str]] = {}
    for item in given:
        key, equals, value = item.partition("=")
        question = _known(asked, key, "--set")
        if not equals:
            raise click.BadParameter("write NAME=VALUE.", param_hint="--set")
        if question.secret:
            raise click.BadParameter(
                f"{one_line(question.name)} is a secret, and a command line is no place for it: give --secret "
                f"{one_line(question.name)}.",
                param_hint="--set",
            )
        found.setdefault(question.name, []).append(value)
    piped = _Piped()
    for key in secrets:
        question = replace(_known(asked, key, "--secret"), secret=True)
        asked[question.name] = question
        found.setdefault(question.name, []).append(_secret(question, piped))
    missing = [one for name, one in asked.items() if name not in found and one.required and not one.default]
    if missing and not can_ask():
        words = [f"--secret {one.name}" if one.secret else f"--set {one.name}=…" for one in missing]
        raise click.UsageError(f"there is no terminal to ask for what is missing: {one_line(', '.join(words))}.")
    for question in missing:
        found[question.name] = _ask(question)
    for name, question in asked.items():
        if len(found.get(name, ())) > 1 and not question.repeated:
            raise click.UsageError(f"{one_line(name)} takes one value.")
        found[name] = [_checked(question, value) for value in found.get(name, question.default)]
    return asked, found


def tell_optional(questions: Mapping[str, Question], answers: Mapping[str, list[str]]) -> None:
    """Say what else could be given."""
    rest = [one_line(name) for name in questions if not answers.get(name)]
    if rest:
        click.echo(dim(f"Not set, and not needed: {', '.join(rest)} (--set NAME=VALUE, or --secret NAME)."))


def _known(questions: Mapping[str, Question], key: str, option: str) -> Question:
    plain = {name.lstrip("-").lower(): name for name in questions}
    name = key if key in questions else plain.get(key.lstrip("-").lower())
    if name is None:
        there = ", ".join(map(one_line, questions)) or "nothing"
        raise click.BadParameter(f"it does not ask for {one_line(key)}; it asks for {there}.", param_hint=option)
    return questions[name]


class _Piped:
    """What stands on stdin: one secret a line."""

    def __init__(self) -> None:
        self._lines: list[str] | None = None

    def next(self) -> str | None:
        if self._lines is None:
            self._lines = [] if sys.stdin.isatty() else sys.stdin.read(1 << 20).splitlines()
        return self._lines.pop(0) if self._lines else None


def _secret(question: Question, piped: _Piped) -> str:
    value = os.environ.get(question.name)
    if not value and not can_ask():
        value = piped.next()
    if not value and can_ask():
        value = str(click.prompt(_words(question), hide_input=True))
    if not value:
        name = one_line(question.name)
        raise click.UsageError(f"there is no terminal to ask for {name}: set that variable, or pipe the secret in.")
    return value


def _ask(question: Question) -> list[str]:
    """Ask until the answer will do; for what may be repeated, until nothing is answered."""
    values: list[str] = []
    while True:
        words = _words(question) + (" (another, or nothing)" if values else "")
        choices = click.Choice(question.choices) if question.choices and not values else None
        value = str(click.prompt(words, type=choices, hide_input=question.secret, default="" if values else None))
        if not value:
            return values
        try:
            values.append(_valid(question, value))
        except ValueError as why:
            click.echo(f"{badge('error')}  It {why}.")
            continue
        if not question.repeated:
            return values


def _words(question: Question) -> str:
    about = f" ({question.description})" if question.description else ""
    like = f", like {question.placeholder}" if question.placeholder else ""
    return one_line(f"{question.name}{about}{like}")


def _checked(question: Question, value: str) -> str:
    try:
        return _valid(question, value)
    except ValueError as why:
        raise click.UsageError(f"{one_line(question.name)} {why}.") from None


def _valid(question: Question, value: str) -> str:
    return question.check(value, working_folder(), home_of(os.environ))
