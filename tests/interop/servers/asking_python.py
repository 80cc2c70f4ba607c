"""What the two Python servers named `asking_*` offer in the same words, as both majors of the SDK take it."""

from __future__ import annotations

from typing import Any


def offer_what_asks_nothing(server: Any, name: str) -> None:
    """Resources, a template and a prompt; the URIs have the server's name as their scheme."""

    @server.resource(f"{name}://note", mime_type="text/plain")
    def note() -> str:
        return "a note: äöü"

    @server.resource(f"{name}://bytes", mime_type="application/octet-stream")
    def some_bytes() -> bytes:
        return bytes(range(256))

    @server.resource("shared://note", name="shared")
    def shared() -> str:
        """Every one of these servers has it."""
        return f"of {name}"

    @server.resource(name + "://square/{n}", mime_type="text/plain")
    def square(n: str) -> str:
        return str(int(n) ** 2)

    @server.prompt()
    def greet(who: str) -> str:
        """Greet somebody."""
        return f"Say hello to {who}"
