"""The kinds of things that servers list: one table for reading, naming, listing and paging them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind, as far as it differs from the others."""

    name: str
    """What we call the list."""
    word: str
    """What we call one of it."""
    capability: str
    """The capability of a server that has such a list."""
    method: str
    """The request that lists it."""
    member: str
    """The member of the answer that holds the list."""
    identity: str
    """The member that tells one from another."""
    use: bytes = b""
    """The request that uses one, by its name."""
    exposed: str = "exposedResources"
    """The key of the configuration that says what to show."""
    hidden: str = "hiddenResources"
    """The key of the configuration that says what to hide."""


TOOLS: Final = Kind(
    "tools", "tool", "tools", "tools/list", "tools", "name", b"tools/call", "exposedTools", "hiddenTools"
)
PROMPTS: Final = Kind(
    "prompts", "prompt", "prompts", "prompts/list", "prompts", "name", b"prompts/get", "exposedPrompts", "hiddenPrompts"
)
RESOURCES: Final = Kind("resources", "resource", "resources", "resources/list", "resources", "uri")
TEMPLATES: Final = Kind(
    "templates", "resource template", "resources", "resources/templates/list", "resourceTemplates", "uriTemplate"
)
KINDS: Final = (TOOLS, PROMPTS, RESOURCES, TEMPLATES)
