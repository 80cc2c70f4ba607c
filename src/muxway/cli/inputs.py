"""Asking for the inputs of a config (`${input:ID}`): once, on a terminal; then they are in the sealed store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from muxway.cli.output import badge, one_line
from muxway.config.documents import read_document
from muxway.config.references import Input, read_inputs, references_in
from muxway.config.report import Report, as_mapping
from muxway.errors import ConfigError
from muxway.net.secret_store import SecretStore, is_name

if TYPE_CHECKING:
    from pathlib import Path


def ask_inputs(file: Path) -> None:
    """Ask for every input that the config refers to and nobody has given yet, if somebody is there to answer.

    Raises:
        StoreError: the store cannot be used.
    """
    if file.suffix == ".py" or not (os.isatty(0) and os.isatty(2)):
        return
    try:
        root = read_document(file).value
    except ConfigError:
        return  # who reads the whole of it will tell
    # What is switched off needs none.
    found = references_in(root, off=False)
    wanted = dict.fromkeys(name for kind, name in found if kind == "input" and is_name(name))
    if not wanted:
        return
    inputs = read_inputs((as_mapping(root) or {}).get("inputs"), Report())
    store = SecretStore()
    for name in wanted:
        if store.read(name) is None:
            wanted_input = inputs.get(name) or Input(name, password=True)
            store.write(name, _answer(wanted_input, file))
            click.echo(f"{badge('ok')}  kept; another one: muxway secret set {one_line(name)}", err=True)


def _answer(wanted: Input, file: Path) -> str:
    words = one_line(wanted.description or f"{wanted.id}, an input of {file.name}")
    if wanted.options:
        default = wanted.default if wanted.default in wanted.options else None
        return str(click.prompt(words, type=click.Choice(wanted.options), default=default, err=True))
    return str(click.prompt(words, default=wanted.default, hide_input=wanted.password, err=True))
