"""Shaped tools: the definition a client sees, and the way from its arguments to the server's and back.

A definition is changed once, when the catalog is built; what its shape does not name stays the bytes that came. What
is left for each call is a `Shaping`. A tool whose calls need nothing has none, and one without a shape pays nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from fnmatch import translate
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from msgspec import Raw

from muxway.catalog.globs import is_glob
from muxway.errors import InvalidParams, RpcError
from muxway.likeness import short
from muxway.regexes import Regex, encoded
from muxway.wire import envelopes
from muxway.wire.framing import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.wire.envelopes import Buffer, Params
    from muxway.wire.result_types import Converter

MOST_VALUES: Final = 300_000
"""Commas in a result that an expression is evaluated over: to decode that many values is the longest single step."""
_PLAIN_TYPES: Final = {"integer": int, "number": (int, float), "boolean": bool}


class WantedArgument(Protocol):
    """What the configuration wants of one argument."""

    @property
    def hide(self) -> bool:
        """Whether callers do not see it."""
        ...

    @property
    def value(self) -> object:
        """What a hidden one always is; None: nothing."""
        ...

    @property
    def env(self) -> str | None:
        """The same as the text of a variable, which becomes what the argument takes."""
        ...

    @property
    def rename(self) -> str | None:
        """What callers call it."""
        ...

    @property
    def default(self) -> object:
        """What it is if the caller does not say; None: nothing."""
        ...

    @property
    def description(self) -> str | None:
        """What callers are told about it."""
        ...

    @property
    def enum(self) -> Sequence[object] | None:
        """All it may be."""
        ...

    @property
    def pattern(self) -> str | None:
        """What its text must match."""
        ...


class Wanted(Protocol):
    """What the configuration wants of some tools."""

    @property
    def match(self) -> str:
        """The tool's name, or a pattern of names."""
        ...

    @property
    def name(self) -> str | None:
        """Its public name."""
        ...

    @property
    def title(self) -> str | None:
        """Its title."""
        ...

    @property
    def description(self) -> str | None:
        """Its description."""
        ...

    @property
    def annotations(self) -> Mapping[str, object] | None:
        """What is put over its annotations."""
        ...

    @property
    def arguments(self) -> Mapping[str, WantedArgument]:
        """What becomes of its arguments, by their own names."""
        ...

    @property
    def result(self) -> str | None:
        """The JMESPath expression that its result goes through."""
        ...


class Wishes(NamedTuple):
    """All that is wanted of one tool: what patterns say, in their order, and over it what its own name says."""

    shapes: Sequence[Wanted]

    def last(self, attribute: str) -> Any:
        """What the last shape that says something about this says."""
        said = [getattr(shape, attribute) for shape in self.shapes]
        return next((value for value in reversed(said) if value is not None), None)

    @property
    def label(self) -> str:
        """How messages call it."""
        return f'shape "{self.shapes[-1].match}"'

    def annotations(self) -> dict[str, object]:
        """What is put over the annotations."""
        return {key: value for shape in self.shapes for key, value in (shape.annotations or {}).items()}

    def arguments(self) -> dict[str, WantedArgument]:
        """What becomes of the arguments."""
        return {name: wanted for shape in self.shapes for name, wanted in shape.arguments.items()}


class Shapes:
    """The shapes of a configuration, ready to be asked about many tools."""

    def __init__(self, shapes: Sequence[Wanted]) -> None:
        self._own = {shape.match: shape for shape in shapes}
        self._patterns = [(shape, re.compile(translate(shape.match)).match) for shape in shapes if is_glob(shape.match)]

    def of(self, tool: str) -> Wishes | None:
        """What they want of a tool; None if they want nothing."""
        own = self._own.get(tool)
        matching = [shape for shape, matches in self._patterns if shape is not own and matches(tool)]
        if own is not None:
            matching.append(own)
        return Wishes(matching) if matching else None


class _Check(NamedTuple):
    """What an argument may be."""

    enum: Sequence[object] | None
    pattern: Regex | None

    def refusal(self, raw: Raw) -> str | None:
        """What it must be instead; None if it is right."""
        try:
            value = envelopes.value(raw)
        except RpcError:
            return "must be a value that can be read"
        if self.enum is not None and not any(_same(value, allowed) for allowed in self.enum):
            return f"must be one of {', '.join(envelopes.encode(allowed).decode() for allowed in self.enum)}"
        if self.pattern is None:
            return None
        if isinstance(value, str) and len(encoded(value)) > self.pattern.longest:
            return f"must have at most {self.pattern.longest} bytes, because it must match {self.pattern.pattern}"
        matches = isinstance(value, str) and self.pattern.fits(value)
        return None if matches else f"must be text that matches {self.pattern.pattern}"


def _same(one: object, other: object) -> bool:
    """Whether two values are the same JSON; true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaping:
    """What is done to the calls of one tool, and to its results."""

    tool: str = ""
    """What callers call the tool."""
    label: str
    """What messages call the shape."""
    natives: Mapping[str, str] = field(default_factory=dict[str, str])
    """Argument as callers call it → as the server does, where these differ."""
    withheld: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    """Names that the server knows and callers may not use → the name they may use instead; None: there is none."""
    fixed: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    """Native name → the JSON that is always put in."""
    defaults: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Native name → the JSON that is put in where the caller gives nothing."""
    checks: Mapping[str, _Check] = field(default_factory=dict[str, _Check])
    """Argument as callers call it → what it may be."""
    result: str | None = None
    """The JMESPath expression that results go through."""
    inner: Shaping | None = None
    """What is done after this one to calls, and before it to results."""

    @property
    def idle(self) -> bool:
        """Whether calls and results need nothing at all."""
        own = self.natives or self.withheld or self.fixed or self.defaults or self.checks or self.result
        return not own and self.inner is None

    @property
    def reshapes(self) -> bool:
        """Whether results are changed."""
        return self.result is not None or (self.inner is not None and self.inner.reshapes)

    @property
    def reshaper(self) -> Converter | None:
        """What is done to results; None if they pass as they are."""
        return self.reshape if self.reshapes else None

    def called(self, public: str) -> Shaping:
        """The same for a tool that callers call so."""
        return replace(self, tool=public, inner=None if self.inner is None else self.inner.called(public))

    def arguments(self, raw: Raw | None) -> Raw:
        """What the server gets for a caller's arguments.

        Raises:
            InvalidParams: one is not allowed; the message says which, and what is.
        """
        given = {} if raw is None or envelopes.is_null(raw) else envelopes.members(raw) or {}
        native: dict[str, Buffer] = {}
        for name, value in given.items():
            if name in self.withheld and name not in self.natives:
                self._refuse(name)
            check = self.checks.get(name)
            why = None if check is None else check.refusal(value)
            if why is not None:
                raise InvalidParams(f'{self.tool}: argument "{short(name)}" {why}')
            native[self.natives.get(name, name)] = value
        for name, value in self.defaults.items():
            native.setdefault(name, value)
        native.update(self.fixed)
        shaped = Raw(envelopes.object_of(native.items()))
        return shaped if self.inner is None else self.inner.arguments(shaped)

    def _refuse(self, name: str) -> None:
        instead = self.withheld[name]
        hint = f'; it is called "{instead}" here' if instead is not None else ""
        raise InvalidParams(f'{self.tool}: there is no argument "{short(name)}"{hint}')

    def reshape(self, result: Buffer) -> Buffer:
        """A tool's result as callers get it; one that cannot be reshaped becomes one that says so."""
        if self.inner is not None:
            result = self.inner.reshape(result)
        if self.result is None:
            return result
        fields = envelopes.members(result)
        if fields is None:
            return envelopes.object_of(self._failure("it cannot be read").items())
        if "content" not in fields or bytes(fields.get("isError", b"")) == b"true":
            # A question, a task or a failure: nothing to pick from yet, or ever.
            return result
        try:
            made = _result_of(_search(self.result, _data(fields)))
        except _Unfit as error:
            made = self._failure(str(error))
        kept: dict[str, Buffer] = {key: raw for key, raw in fields.items() if key not in _REPLACED}
        return envelopes.object_of({**kept, **made}.items())

    def _failure(self, why: str) -> dict[str, bytes]:
        text = f"{self.tool} was run, but its result could not be reshaped by {self.label}: {why}"
        return {"content": envelopes.encode([{"type": "text", "text": text}]), "isError": b"true"}


_REPLACED: Final = frozenset(("content", "structuredContent", "isError"))


class _Unfit(Exception):
    """A result does not fit the expression."""


def _data(fields: Params) -> Any:
    """What an expression is about: the structured content, or the JSON that the one text is."""
    structured = fields.get("structuredContent")
    if structured is not None and not envelopes.is_null(structured):
        return _value(structured)
    blocks = envelopes.items(fields["content"]) or []
    block = envelopes.members(blocks[0]) if len(blocks) == 1 else None
    text = envelopes.text((block or {}).get("text"))
    if text is None:
        raise _Unfit("it has neither structured content nor a single text")
    return _value(one_line(text.strip().encode()))


def _value(raw: Raw | bytes) -> Any:
    if bytes(raw).count(b",") > MOST_VALUES:
        raise _Unfit(f"it has more than {MOST_VALUES:,} values, which would hold up everybody else")
    try:
        return envelopes.value(raw)
    except RpcError:
        raise _Unfit("it is no JSON, or nested too deep, so it cannot be read") from None


def _search(expression: str, data: Any) -> Any:
    # Only for tools whose results are reshaped.
    import jmespath.exceptions

    from muxway.catalog.picking import TooMuch, pick

    try:
        return pick(expression, data)
    except TooMuch as error:
        raise _Unfit(str(error)) from None
    except jmespath.exceptions.JMESPathError as error:
        raise _Unfit(str(error).replace("\n", " ")) from None
    except (ArithmeticError, TypeError, ValueError, AttributeError, RecursionError) as error:
        # The library lets these of its own functions through.
        raise _Unfit(f"{type(error).__name__}: {error}") from None


def _result_of(value: Any) -> dict[str, bytes]:
    """A result that says this, as text and as structure; most clients know only objects as structure."""
    if isinstance(value, str):
        return {"content": envelopes.encode([{"type": "text", "text": value}])}
    try:
        encoded = envelopes.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        # An expression may give an expression.
        raise _Unfit("what it gives is no JSON") from None
    content = envelopes.encode([{"type": "text", "text": encoded.decode()}])
    return {"content": content, "structuredContent": encoded if isinstance(value, dict) else b'{"result":%b}' % encoded}


# --- definitions ------------------------------------------------------------------------------


class Shaped(NamedTuple):
    """A tool as its shapes make it."""

    members: Mapping[str, Buffer]
    shaping: Shaping | None
    """What is done to its calls; None: nothing."""
    problems: Sequence[str]


def shape(members: Mapping[str, Buffer], wishes: Wishes, inner: Shaping | None = None) -> Shaped:
    """Change a definition, given without its name, as is wanted. What cannot be done is left out and told.

    `inner` is what is done to the calls of the tool already.
    """
    changed: dict[str, Buffer] = dict(members)
    for key in ("title", "description"):
        text = wishes.last(key)
        if text is not None:
            changed[key] = envelopes.encode(text)
    if annotations := wishes.annotations():
        own: Mapping[str, Buffer] = envelopes.members(changed.get("annotations", b"")) or {}
        new = {key: envelopes.encode(value) for key, value in annotations.items()}
        changed["annotations"] = envelopes.object_of({**own, **new}.items())
    result = wishes.last("result")
    if result is not None:
        changed.pop("outputSchema", None)
    schema = _Schema(changed["inputSchema"], wishes)
    if wishes.arguments():
        changed["inputSchema"] = schema.encoded()
    shaping = Shaping(
        label=wishes.label,
        natives=schema.natives,
        withheld=schema.withheld,
        fixed=schema.fixed,
        defaults=schema.defaults,
        checks=schema.checks,
        result=result,
        inner=inner,
    )
    return Shaped(changed, None if shaping.idle else shaping, schema.problems)


class _Schema:
    """The schema of a tool's arguments while its shape is put on."""

    def __init__(self, raw: Buffer, wishes: Wishes) -> None:
        self.natives: dict[str, str] = {}
        self.withheld: dict[str, str | None] = {}
        self.fixed: dict[str, bytes] = {}
        self.defaults: dict[str, bytes] = {}
        self.checks: dict[str, _Check] = {}
        self.problems: list[str] = []
        self._fields: dict[str, Buffer] = dict(envelopes.members(raw) or {})
        listed = envelopes.members(self._fields.get("properties", b""))
        self._open = listed is None
        """Whether the server does not say what it takes."""
        self._properties: dict[str, Buffer] = dict(listed or {})
        self._required = [
            envelopes.text(item) or "" for item in envelopes.items(self._fields.get("required", b"")) or ()
        ]
        own: set[str] = {name for one in wishes.shapes if not is_glob(one.match) for name in one.arguments}
        wanted = wishes.arguments()
        for name in own - self._properties.keys():
            if not self._open:
                known = ", ".join(self._properties) or "none"
                self.problems.append(f'argument "{name}" does not exist; there are: {known}')
        wanted = {name: one for name, one in wanted.items() if name in self._properties or (self._open and name in own)}
        self._names = self._renamed(wanted)
        for name, one in wanted.items():
            if one.hide:
                self._hide(name, one)
            else:
                self._change(name, one)

    def encoded(self) -> bytes:
        """The schema as callers see it."""
        visible = {name: raw for name, raw in self._properties.items() if name in self._names}
        fields = self._fields
        if visible or not self._open:
            fields["properties"] = envelopes.object_of((self._names[name], raw) for name, raw in visible.items())
        if "required" in fields:
            required = [self._names[name] for name in self._required if name in visible and name not in self.defaults]
            required += [name for name in self._required if name not in self._properties and name not in self.withheld]
            if required:
                fields["required"] = envelopes.encode(required)
            else:
                del fields["required"]
        return envelopes.object_of(fields.items())

    def _renamed(self, wanted: Mapping[str, WantedArgument]) -> dict[str, str]:
        """What each argument that callers see is called."""
        names = {name: name for name in {**self._properties, **wanted} if not (name in wanted and wanted[name].hide)}
        renames = {name: one.rename for name, one in wanted.items() if one.rename is not None and not one.hide}
        kept = {name for name in names if name not in renames}
        for name, new in renames.items():
            if new in kept:
                self.problems.append(f'argument "{name}" cannot be called "{new}": there is another one of that name')
                kept.add(name)
            elif new != name:
                kept.add(new)
                names[name] = new
                self.natives[new] = name
                self.withheld[name] = new
        return names

    def _hide(self, name: str, one: WantedArgument) -> None:
        self.withheld[name] = None
        if one.env is not None:
            self.fixed[name] = self._of_variable(name, one.env)
        elif one.value is not None:
            self.fixed[name] = envelopes.encode(one.value)
        elif name in self._required:
            self.problems.append(
                f'argument "{name}" is hidden, but the server needs it, so that every call will fail: '
                "give it a `value` or `env`"
            )

    def _of_variable(self, name: str, text: str) -> bytes:
        """The text of a variable as what the argument takes: a port is a number."""
        kind = envelopes.text((envelopes.members(self._properties.get(name, b"{}")) or {}).get("type"))
        plain = _PLAIN_TYPES.get(kind or "")
        if plain is not None:
            try:
                value: object = envelopes.value(text.strip().encode())
            except RpcError:
                value = None
            if isinstance(value, plain) and isinstance(value, bool) == (kind == "boolean"):
                return envelopes.encode(value)
            self.problems.append(f'argument "{name}" is a {kind}, which its variable is not')
        return envelopes.encode(text)

    def _change(self, name: str, one: WantedArgument) -> None:
        said: dict[str, object] = {"description": one.description, "default": one.default, "pattern": one.pattern}
        if one.enum is not None:
            said["enum"] = list(one.enum)
        new = {key: envelopes.encode(value) for key, value in said.items() if value is not None}
        own: Mapping[str, Buffer] = envelopes.members(self._properties.get(name, b"")) or {}
        if new or name in self.withheld:
            self._properties[name] = envelopes.object_of({**own, **new}.items())
        if one.default is not None:
            self.defaults[name] = envelopes.encode(one.default)
        if one.enum is not None or one.pattern is not None:
            pattern = None if one.pattern is None else Regex(one.pattern)
            self.checks[self._names[name]] = _Check(one.enum, pattern)


def has_argument(members: Mapping[str, Buffer], argument: str) -> bool:
    """Whether a tool says that it takes this argument."""
    schema = envelopes.members(members.get("inputSchema", b"")) or {}
    return argument in (envelopes.members(schema.get("properties", b"")) or {})


def is_read_only(members: Mapping[str, Buffer]) -> bool:
    """Whether a tool says that it changes nothing."""
    hints = envelopes.members(members.get("annotations", b"")) or {}
    return bytes(hints.get("readOnlyHint", b"")) == b"true"
