"""Durations are written the same way everywhere."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click
import pytest

from muxway.cli import cli
from muxway.config import durations, kinds, parse_config
from muxway.config.model import SECTIONS
from muxway.middleware.engine.loading import layers_of

if TYPE_CHECKING:
    from collections.abc import Iterator

WRITTEN = {"5m": 300.0, "30s": 30.0, "500ms": 0.5, "1h": 3600.0, "1.5 s": 1.5, "2": 2.0, "7H": 25200.0}


@pytest.mark.parametrize(("text", "seconds"), WRITTEN.items())
def test_a_duration_is_read(text: str, seconds: float) -> None:
    """docs/configuration.md#timeouts: a number of seconds, or text."""
    assert durations.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "m", "5 minutes", "-5s", "1e3", "5d", "٣s", "9" * 400 + "s", "inf", "nan"])
def test_what_is_no_duration_passes_no_limit(text: str) -> None:
    """Ours."""
    assert math.isnan(durations.seconds(text))


@pytest.mark.parametrize(
    ("section", "key", "attribute"),
    [
        (section.name, row.key, row.attribute)
        for section in SECTIONS
        for row in section.fields
        if row.kind in (kinds.seconds, kinds.seconds_or_zero)
        and row.attribute is not None
        and section.name in ("gateway", "mcpServers.*")
    ],
)
def test_every_key_in_seconds_takes_text(section: str, key: str, attribute: str) -> None:
    """Ours: the table of keys is the list."""
    value = {key: "5m"} if key != "callTimeout" else {key: "5m", "callMax": "1h"}
    server = {"command": "x", **(value if section != "gateway" else {})}
    if key == "idleStop":
        server["start"] = "lazy"
    config = parse_config({"mcpServers": {"s": server}, "gateway": value if section == "gateway" else {}})
    assert getattr(config.gateway if section == "gateway" else config.servers["s"], attribute) == 300


def _options(command: click.Command) -> Iterator[click.Parameter]:
    yield from command.params
    if isinstance(command, click.Group):
        context = click.Context(command)
        for verb in command.list_commands(context):
            below = command.get_command(context, verb)
            assert below is not None
            yield from _options(below)


def test_every_option_in_seconds_takes_text() -> None:
    """Ours: an option of the command that is a plain number of seconds would be the odd one out."""
    options = list(_options(cli))
    assert [option.opts for option in options if getattr(option, "metavar", None) == "SECONDS"] == []
    timed = [option for option in options if getattr(option, "metavar", None) == "DURATION"]
    assert len(timed) >= 3
    for option in timed:
        assert option.type.convert("5m", option, None) == 300
        with pytest.raises(click.BadParameter, match='give a number of seconds or text like "30s"'):
            option.type.convert("soon", option, None)


@pytest.mark.parametrize(
    "options",
    [
        {"use": "timeout", "seconds": "5m", "tools": {"x": "1h"}},
        {"use": "cache", "seconds": "5m"},
        {"use": "approve", "remember": "5m"},
        {"use": "retry", "pause": "500ms"},
    ],
)
def test_middlewares_take_text(options: dict[str, object]) -> None:
    """Ours: docs/middleware."""
    entry = {"command": "x"}
    assert layers_of(parse_config({"mcpServers": {"s": entry}, "gateway": {"middleware": [options]}}))
