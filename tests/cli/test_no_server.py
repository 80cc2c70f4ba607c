"""What is said of programs that are no MCP servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (
            {"command": "echo", "args": ["hello there"]},
            (
                "exited with status 0 before it answered, as a program does that is no MCP server; "
                "its first line on stdout: hello there\n"
            ),
        ),
        ({"command": "true"}, "exited with status 0 before it answered, as a program does that is no MCP server\n"),
        (
            {"command": "sh", "args": ["-c", "echo hello there; exec sleep 60"], "startTimeout": "1.5s"},
            "was not ready after 1.5 s (startTimeout); its first line on stdout: hello there\n",
        ),
        ({"command": "false"}, "exited with status 1\n"),
    ],
)
def test_a_program_that_is_no_server_is_told_by_what_it_does(
    entry: dict[str, object], says: str, muxway: Callable[..., Result], write: Callable[..., Path]
) -> None:
    """Ours: an error says what happened, and what to look at."""
    assert muxway("list", write({"mcpServers": {"odd": entry}})).stdout.endswith(f"odd: {says}")
