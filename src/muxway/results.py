"""What the library gives back: tools, resources, prompts, servers and the results of using them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from muxway.errors import InvalidParams
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.servers.state import Status


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as the gateway lists it."""

    name: str
    """Public name: what `call` takes."""
    server: str
    """The server that has it; empty for a compound tool of the gateway itself."""
    original_name: str
    """What its server calls it."""
    raw: bytes = field(repr=False)
    """Its definition as JSON: there may be thousands, and most are never looked at."""

    @property
    def definition(self) -> Mapping[str, Any]:
        """The whole listed definition, unknown fields included."""
        return envelopes.value(self.raw)

    @property
    def description(self) -> str:
        """What the tool is for, in its author's words."""
        return str(self.definition.get("description", ""))

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of its arguments."""
        return self.definition["inputSchema"]


@dataclass(frozen=True, slots=True)
class FoundTool:
    """A tool that a search found."""

    tool: Tool
    score: float
    """How well it fits: comparable within one search."""
    fields: Mapping[str, float]
    """What each field of its definition adds by its words, and `meaning` with `gateway.semantic`."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave back."""

    raw: Mapping[str, Any]
    """The whole result, unknown fields included."""

    @property
    def content(self) -> Sequence[Mapping[str, Any]]:
        """The content blocks."""
        return self.raw.get("content", ())

    @property
    def structured_content(self) -> Any:
        """The structured result, if the tool has one."""
        return self.raw.get("structuredContent")

    @property
    def is_error(self) -> bool:
        """Whether the tool itself says that it failed."""
        return self.raw.get("isError") is True

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join(str(block["text"]) for block in self.content if block.get("type") == "text")


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource as the gateway lists it."""

    uri: str
    """Public URI: what `read` takes."""
    server: str
    """The server that has it."""
    original_uri: str
    """What its server calls it."""
    definition: Mapping[str, Any]
    """The whole listed definition, unknown fields included."""

    @property
    def name(self) -> str:
        """Its name, with the server's in front."""
        return str(self.definition.get("name", ""))

    @property
    def description(self) -> str:
        """What it is, in its author's words."""
        return str(self.definition.get("description", ""))

    @property
    def mime_type(self) -> str | None:
        """The type of its contents, if its server says."""
        return self.definition.get("mimeType")


@dataclass(frozen=True, slots=True)
class ResourceTemplate:
    """A resource template as the gateway lists it."""

    uri_template: str
    """Public template, after RFC 6570: `read` takes what it expands to."""
    server: str
    """The server that has it."""
    original_template: str
    """What its server calls it."""
    definition: Mapping[str, Any]
    """The whole listed definition, unknown fields included."""

    @property
    def name(self) -> str:
        """Its name, with the server's in front."""
        return str(self.definition.get("name", ""))

    @property
    def description(self) -> str:
        """What it is for, in its author's words."""
        return str(self.definition.get("description", ""))


@dataclass(frozen=True, slots=True)
class ResourceResult:
    """What was read."""

    raw: Mapping[str, Any]
    """The whole result, unknown fields included."""

    @property
    def contents(self) -> Sequence[Mapping[str, Any]]:
        """The contents, each with its `uri` and either `text` or a base64 `blob`."""
        return self.raw.get("contents", ())

    @property
    def text(self) -> str:
        """All texts, joined by newlines."""
        return "\n".join(str(content["text"]) for content in self.contents if "text" in content)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as the gateway lists it."""

    name: str
    """Public name: what `prompt` takes."""
    server: str
    """The server that has it."""
    original_name: str
    """What its server calls it."""
    definition: Mapping[str, Any]
    """The whole listed definition, unknown fields included."""

    @property
    def description(self) -> str:
        """What it is for, with the server's name in front."""
        return str(self.definition.get("description", ""))

    @property
    def arguments(self) -> Sequence[Mapping[str, Any]]:
        """What it takes: `name`, `description` and `required` of each."""
        return self.definition.get("arguments") or ()


@dataclass(frozen=True, slots=True)
class PromptResult:
    """A prompt, filled in."""

    raw: Mapping[str, Any]
    """The whole result, unknown fields included."""

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The messages, each with its `role` and one block of `content`."""
        return self.raw.get("messages", ())

    @property
    def text(self) -> str:
        """The text of all messages, joined by newlines."""
        blocks = [message.get("content", {}) for message in self.messages]
        return "\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")


@dataclass(frozen=True, slots=True)
class Server:
    """A server and how it is."""

    name: str
    status: Status
    error: str | None
    """Why it is not running, if it failed."""
    tools: Sequence[Tool]
    """Its tools in the catalog."""
    prompts: int = 0
    """How many prompts it shows."""
    resources: int = 0
    """How many resources it shows."""
    resource_templates: int = 0
    """How many resource templates it shows."""
    revision: str | None = None
    """The protocol revision spoken with it."""
    pid: int | None = None
    """The process id of a running child."""
    pids: Sequence[int] = field(default=())
    """The process ids of all its running children: callers that must not share have their own."""
    seconds: float | None = None
    """How long its start took, until it was ready or had failed."""
    restarts: int = 0
    """How often it was started again after it had ended by itself."""
    retry_in: float | None = None
    """Seconds until it is started again, while it is down."""
    uptime: float | None = None
    """Seconds since it was ready."""
    in_flight: int = 0
    """Calls under way at it."""
    queued: int = 0
    """Calls that wait for their turn."""
    calls: int = 0
    """Calls that have ended, well or badly."""
    errors: int = 0
    """Calls that have failed."""
    p50: float | None = None
    """Seconds within which half of the calls were done."""
    p99: float | None = None
    """Seconds within which 99 of 100 calls were done."""
    notes: Sequence[str] = field(default=())
    """What is odd about its tools and their names: left out, renamed, clashing, or asked for in vain."""
    stderr: Sequence[str] = field(default=(), repr=False)
    """The last lines it wrote to stderr."""


def encoded_arguments(arguments: Mapping[str, Any]) -> bytes:
    """Arguments as JSON.

    Raises:
        InvalidParams: one is infinite or no number, which JSON does not have and encoders quietly turn into null.
        TypeError: they are no mapping, or one is nothing that JSON can hold.
    """
    if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the arguments must be a mapping such as a dict, by name; found a {type(arguments).__name__}")
    encoded = envelopes.encode(dict(arguments))
    if b"null" in encoded and (place := _not_finite(arguments)) is not None:
        raise InvalidParams(f"the argument {place} is not a finite number: JSON has no NaN and no infinity")
    return encoded


def _not_finite(value: object, place: str = "") -> str | None:
    """Where in a value a number stands that JSON does not have."""
    match value:
        case float():
            return None if math.isfinite(value) else place
        case Mapping():
            inside = cast("Mapping[object, object]", value).items()
            found = (_not_finite(one, f"{place}.{key}" if place else str(key)) for key, one in inside)
        case list() | tuple():
            inside = enumerate(cast("list[object]", value))
            found = (_not_finite(one, f"{place}[{index}]") for index, one in inside)
        case _:
            return None
    return next((one for one in found if one is not None), None)
