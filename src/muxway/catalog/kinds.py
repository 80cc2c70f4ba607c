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
    exposed: str = ""
    """The key of the configuration that says which names to show."""
    hidden: str = ""
    """The key of the configuration that says which names to hide."""
    not_found: str = ""
    """What a caller is told who uses a name that nobody has."""
    ambiguous: str = ""
    """What a caller is told who uses a name that several might have."""


TOOLS: Final = Kind(
    "tools",
    "tool",
    "tools",
    "tools/list",
    "tools",
    "name",
    use=b"tools/call",
    exposed="exposedTools",
    hidden="hiddenTools",
    not_found="Tool not found",
    ambiguous="Tool name is ambiguous",
)
PROMPTS: Final = Kind(
    "prompts",
    "prompt",
    "prompts",
    "prompts/list",
    "prompts",
    "name",
    use=b"prompts/get",
    exposed="exposedPrompts",
    hidden="hiddenPrompts",
    not_found="Prompt not found",
    ambiguous="Prompt name is ambiguous",
)
RESOURCES: Final = Kind("resources", "resource", "resources", "resources/list", "resources", "uri")
TEMPLATES: Final = Kind(
    "templates", "resource template", "resources", "resources/templates/list", "resourceTemplates", "uriTemplate"
)
KINDS: Final = (TOOLS, PROMPTS, RESOURCES, TEMPLATES)
