"""Middlewares as they are configured: by name, with options that only the middleware itself understands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from muxway.config.fields import kind
from muxway.config.kinds import FILLED, STRING
from muxway.config.report import as_mapping, dotted
from muxway.config.values import is_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.config.report import Path
    from muxway.config.values import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class MiddlewareSpec:
    """A middleware as it is configured."""

    use: str
    """The name of a built-in one or of a plug-in, or `module:Class`."""
    match: tuple[str, ...] = ()
    """Globs of the tools, prompts and URIs it is for; none: all."""
    options: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    where: str = field(default="", compare=False)
    """Where it was configured."""
    line: int | None = field(default=None, compare=False)
    """Line in the file, where known."""
    folders: tuple[str, ...] = field(default=(), compare=False)
    """Where a module of the user's own may lie: beside the file, or where muxway was started if there is no file."""


@kind(
    "array of names or {use, match, …options}",
    {
        "type": "array",
        "items": {
            "anyOf": [
                FILLED,
                {
                    "type": "object",
                    "properties": {"use": STRING, "match": {"anyOf": [STRING, {"type": "array", "items": STRING}]}},
                    "required": ["use"],
                },
            ]
        },
    },
)
def middlewares(reader: Reader, path: Path, raw: object) -> tuple[MiddlewareSpec, ...] | None:
    """What is done around requests, the outermost first."""

    def one(place: Path, item: object) -> MiddlewareSpec | None:
        if as_mapping(item) is None:
            use = reader.named(place, item, "the name of a middleware or {use, …options}")
            return None if use is None else made(place, use, (), {})
        entries = dict(reader.entries(place, item) or {})
        if "use" not in entries:
            reader.report.error(place, "needs `use`: the name of a middleware, or module:Class")
            return None
        use = reader.named((*place, "use"), entries.pop("use"))
        globs = entries.pop("match", [])
        globs = [globs] if isinstance(globs, str) else globs
        match = reader.items((*place, "match"), globs, reader.named, "an array of globs")
        options = {key: reader.expanded((*place, key), value) for key, value in entries.items()}
        if use == "secrets":
            reader.report.secrets.update(
                text
                for text in (as_mapping(options.get("values")) or {}).values()
                if isinstance(text, str) and is_secret(text)
            )
        return None if use is None or match is None else made(place, use, match, options)

    def made(place: Path, use: str, match: tuple[str, ...], options: dict[str, object]) -> MiddlewareSpec:
        line, folders = reader.report.line(place), reader.scope.folders
        return MiddlewareSpec(use=use, match=match, options=options, where=dotted(place), line=line, folders=folders)

    return reader.items(path, raw, one, "an array of middlewares")
