"""A key of the configuration is one row, and the row is an attribute of the class that it fills.

    call_max: float = kinds.seconds("Longest duration of one call.", default=600.0, example="10m")

Reading, defaults, JSON Schema, `muxway config explain` and docs/configuration.md are all made from it. The key is the
attribute's name in camelCase (`callMax`), and may also be written in snake_case. A spelling that means something else
(another unit, a negation, names instead of values) is a row of its own, beside the attribute that it helps to fill.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import MISSING, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muxway.config.report import Path
    from muxway.config.values import Reader

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
D = TypeVar("D")
_UNSET: Any = MISSING


class FieldKind(Generic[T_co]):
    """What a key may hold. Called in the body of a model, it makes the attribute that one key of the file fills."""

    def __init__(
        self,
        words: str,
        schema: Mapping[str, Any],
        read: Callable[[Reader, Path, object], T_co | None],
        choices: tuple[str, ...] = (),
    ) -> None:
        self.words = words
        """What that is, for people."""
        self.schema = schema
        """The same for editors."""
        self.read = read
        """Checks and converts a value. None for one that is wrong or unknown, after reporting it."""
        self.choices = choices
        """All it may be, where that is a few words."""

    def __call__(
        self,
        doc: str,
        *,
        example: object,
        default: D = _UNSET,
        default_factory: Callable[[], D] = _UNSET,
        key: str = "",
        aliases: tuple[str, ...] = (),
        also: tuple[Field, ...] = (),
        required: bool | None = None,
        repr: bool = True,  # noqa: A002 - as `dataclasses.field` calls it
        compare: bool = True,
    ) -> T_co | D:
        """The row of one key: see `Field`; `also` are keys that help to fill the attribute.

        A `default` is documented, a `default_factory` goes without saying. With neither, the key is required.
        """
        if required is None:
            required = default is MISSING and default_factory is MISSING
        shown: object = None if default is MISSING else default
        if shown == () and self.schema.get("type") == "object":
            shown = {}  # written as an object, kept in order
        made: Any = field
        return made(
            default=default,
            default_factory=default_factory,
            repr=repr,
            compare=compare,
            metadata={
                "row": partial(
                    Field, kind=self, doc=doc, example=example, aliases=aliases, default=shown, required=required
                ),
                "key": key,
                "also": also,
            },
        )


def kind(words: str, schema: Mapping[str, Any]) -> Callable[[Callable[[Reader, Path, object], T | None]], FieldKind[T]]:
    """Make a kind of the function that reads it."""
    return lambda read: FieldKind(words, schema, read)


@dataclass(frozen=True, slots=True)
class Field:
    """One key: how it may be spelled, what it holds, what it is for."""

    key: str
    """The spelling we recommend."""
    kind: FieldKind[Any]
    """What it holds and how that is read."""
    doc: str
    """What it does, for the person writing the file. The first sentence stands alone in overviews."""
    example: object
    """A value that works."""
    attribute: str | None = None
    """The attribute of the model that it fills. None: it only helps to fill one."""
    aliases: tuple[str, ...] = ()
    """Other spellings of the same meaning, mostly those of MCP clients."""
    default: object = None
    """What applies if the key is left out, as it is written in a file; None also if there is no such thing."""
    required: bool = False

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every way to write the key, the recommended one first."""
        return tuple(dict.fromkeys((self.key, snake_case(self.key), *self.aliases)))


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def settings(model: type[T]) -> type[T]:
    """Make a model of a class whose attributes are keys, or facts found while reading."""
    return dataclass(frozen=True, slots=True, kw_only=True, repr="__repr__" not in vars(model))(model)


class Section:
    """One kind of object in the file: what its model says of it, and where it stands."""

    def __init__(self, name: str, model: type) -> None:
        rows: list[Field] = []
        for attribute in dataclasses.fields(model):
            if attribute.metadata:
                key = attribute.metadata["key"] or camel_case(attribute.name)
                rows += [attribute.metadata["row"](key, attribute=attribute.name), *attribute.metadata["also"]]
        self.name = name
        """Where it stands, `*` for a name the user chooses."""
        self.doc = " ".join((model.__doc__ or "").split())
        self.model = model
        self.fields = tuple(rows)
        self.by_spelling = {spelling: row for row in rows for spelling in row.spellings}
        """Every spelling → its row."""


def snake_case(key: str) -> str:
    """`callTimeout` → `call_timeout`."""
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", key).lower()


def camel_case(attribute: str) -> str:
    """`call_timeout` → `callTimeout`."""
    first, *others = attribute.split("_")
    return first + "".join(map(str.capitalize, others))
