"""What `muxway serve` says of itself when it starts; how it serves is tested in `tests/serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muxway import demo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from tests.cli.conftest import Launched


def test_views_tokens_and_middleware_are_told(launch: Callable[..., Launched], write: Callable[..., Path]) -> None:
    """Ours: how to connect, to what, and that nobody has a token for the whole; why a server failed is said once."""
    servers = {"clock": demo.config()["mcpServers"]["clock"], "missing": {"command": "no-such-program"}}
    views = {"reader": {"readOnly": True, "tokens": ["a-token-of-the-reader"]}}
    served = launch("serve", write({"mcpServers": servers, "views": views, "middleware": ["log"]}), "--port", "0")
    assert served.process.stderr is not None
    said = ""
    while "not up" not in said:
        line = served.process.stderr.readline().decode()
        assert line, said
        said += line
    served.process.terminate()
    assert served.end()[0] == 0
    assert '"type": "http"' in said
    assert '"headers": {"Authorization": "Bearer <the token>"}' in said
    assert "/mcp/reader\n" in said
    assert "only of views; clients can use nothing else unless you set --token" in said
    assert "Middleware:             log\n" in said
    assert "1 of 2 servers up, 2 tools\n  not up: missing; " in said
    assert said.count("command not found") == 1
    assert "a-token-of-the-reader" not in said


def test_an_address_that_is_not_ours_is_no_matter_of_the_port(muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: 192.0.2.1 is nobody's (RFC 5737)."""
    result = muxway("serve", servers, "--host", "192.0.2.1", "--insecure")
    assert result.exit_code == 1
    assert "Try another --host." in result.stderr
