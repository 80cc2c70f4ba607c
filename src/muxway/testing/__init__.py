"""Peers for tests: a server that does what a script says, and a client that says and hears raw lines.

Used by muxway's own tests and shipped, so that users can test what they build on it.
"""

from muxway.testing.client import RawClient, Reply
from muxway.testing.scripted import ScriptedServer, ToolScript

__all__ = ["RawClient", "Reply", "ScriptedServer", "ToolScript"]
