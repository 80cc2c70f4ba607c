"""The small language of composed tools: references inside values, and conditions.

    "${input.city}"                    the value itself, with its JSON type
    "Weather in ${input.city}"         text
    "${steps.find.result.items[0].id}" a part of what a step gave
    "not ${steps.find.ok} or ${input.limit} > 10"

Everything is read once, when the configuration is: what is put in later is data and is never read again. There is no
`eval` anywhere; a condition is a handful of nodes. `$${` is `${` as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

if TYPE_CHECKING:
    from muxway.config.report import Path

Root = Literal["input", "steps", "item", "index"]
Part = Literal["result", "ok", "error", "skipped"]
Operator = Literal["not", "and", "or", "==", "!=", "<", ">", "<=", ">="]

PARTS: Final = ("result", "ok", "error", "skipped")
"""What there is to say about a step."""
NAME: Final = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
"""What a step may be called, and what may follow a dot."""
_MARK: Final = re.compile(r"\$\$\{|\$\{(?P<inner>[^}]*)(?P<closed>\})?")
_KEY: Final = re.compile(r'\.(?P<name>[A-Za-z_][\w-]*)|\[(?P<index>-?\d{1,9})\]|\["(?P<quoted>[^"\\]+)"\]', re.ASCII)
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<reference>\$\{[^}]*\})|(?P<text>'[^']*'|\"[^\"]*\")|(?P<number>-?\d+(?:\.\d+)?(?![\w.]))"
    r"|(?P<word>[A-Za-z]+)|(?P<mark>==|!=|<=|>=|<|>|\(|\)))"
)
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_COMPARISONS: Final = frozenset(("==", "!=", "<", ">", "<=", ">="))
_LONGEST_CONDITION: Final = 2000
_DEEPEST_CONDITION: Final = 20


class BadTemplate(Exception):
    """It is not written as it should be; the message says how."""


@dataclass(frozen=True, slots=True)
class Reference:
    """`${…}`: something that is known only when the tool is called."""

    root: Root
    step: str = ""
    """The step it is about, for `steps`."""
    part: Part = "result"
    path: tuple[str | int, ...] = ()
    """The way from there to the value."""
    written: str = ""
    """As it stands in the file, for messages."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text with references in it."""

    parts: tuple[str | Reference, ...]


Template: TypeAlias = (
    "Reference | Text | Mapping[str, Template] | tuple[Template, ...] | str | int | float | bool | None"
)
"""A JSON value with references in it. Plain values stand for themselves."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A value written into a condition."""

    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator and what it is about."""

    operator: Operator
    parts: tuple[Condition, ...]


Condition: TypeAlias = "Reference | Constant | Operation"


def parse_reference(inner: str) -> Reference:
    """What stands between `${` and `}`.

    Raises:
        BadTemplate: it refers to nothing there is.
    """
    written = f"${{{inner}}}"
    head = NAME.match(inner)
    root = head[0] if head is not None else ""
    if head is None or root not in ("input", "steps", "item", "index"):
        raise BadTemplate(
            f"{_short(written)} is no reference: write ${{input.…}}, ${{steps.NAME.result…}}, ${{item…}} or ${{index}}"
            "; for a literal ${ write $${"
        )
    path = _path(inner, head.end(), written)
    if root != "steps":
        if root == "index" and path:
            raise BadTemplate(f"{_short(written)}: the index is a number and has no parts")
        return Reference(root, path=path, written=written)
    if len(path) < 2 or not isinstance(path[0], str) or path[1] not in PARTS:
        raise BadTemplate(f"{_short(written)}: say what of the step is meant: {_choice(path)}")
    if path[1] != "result" and len(path) > 2:
        raise BadTemplate(f"{_short(written)}: `{path[1]}` has no parts")
    return Reference("steps", path[0], path[1], path[2:], written)


def _path(inner: str, position: int, written: str) -> tuple[str | int, ...]:
    path: list[str | int] = []
    while position < len(inner):
        key = _KEY.match(inner, position)
        if key is None:
            raise BadTemplate(f'{_short(written)} cannot be read: after a name comes .name, [0] or ["other name"]')
        path.append(int(key["index"]) if key["index"] is not None else key["name"] or key["quoted"])
        position = key.end()
    return tuple(path)


def _choice(path: tuple[str | int, ...]) -> str:
    name = path[0] if path else "NAME"
    return ", ".join(f"steps.{name}.{part}" for part in PARTS)


def parse_text(text: str) -> Reference | Text | str:
    """A string of a template: one reference, text with some in it, or text without any.

    Raises:
        BadTemplate: a `${…}` in it is no reference.
    """
    parts: list[str | Reference] = []
    position = 0
    for mark in _MARK.finditer(text):
        parts.append(text[position : mark.start()])
        position = mark.end()
        if mark[0] == "$${":
            parts.append("${")
        elif mark["closed"] is None:
            raise BadTemplate("a ${ has no }; for a literal ${ write $${")
        else:
            parts.append(parse_reference(mark["inner"].strip()))
    parts.append(text[position:])
    parts = [part for part in parts if part != ""]
    if len(parts) == 1 and isinstance(parts[0], Reference):
        return parts[0]
    if any(isinstance(part, Reference) for part in parts):
        return Text(tuple(parts))
    return "".join(cast("list[str]", parts))


def parse_template(value: object, path: Path, complain: Callable[[Path, str], None]) -> Template:
    """A JSON value as a template. What is wrong with it is told with its place, and null stands in for it."""
    if isinstance(value, str):
        try:
            return parse_text(value)
        except BadTemplate as error:
            complain(path, str(error))
            return None
    if isinstance(value, Mapping):
        members = cast("Mapping[object, object]", value)
        return {str(key): parse_template(member, (*path, str(key)), complain) for key, member in members.items()}
    if isinstance(value, list | tuple):
        items = cast("list[object]", value)
        return tuple(parse_template(item, (*path, index), complain) for index, item in enumerate(items))
    if value is None or isinstance(value, bool | int | float):
        return value
    complain(path, f"{type(value).__name__} is nothing that JSON has")
    return None


def plain(template: Template) -> object:
    """The template as it was written, as plain JSON."""
    if isinstance(template, Reference):
        return template.written
    if isinstance(template, Text):
        return "".join(part.written if isinstance(part, Reference) else part for part in template.parts)
    if isinstance(template, Mapping):
        return {key: plain(member) for key, member in template.items()}
    if isinstance(template, tuple):
        return [plain(item) for item in template]
    return template


def references(node: Template | Condition, path: Path = ()) -> Iterator[tuple[Path, Reference]]:
    """Every reference in a template or condition, with its place."""
    if isinstance(node, Reference):
        yield path, node
    elif isinstance(node, Text):
        yield from ((path, part) for part in node.parts if isinstance(part, Reference))
    elif isinstance(node, Operation):
        for part in node.parts:
            yield from references(part, path)
    elif isinstance(node, Mapping):
        for key, member in node.items():
            yield from references(member, (*path, key))
    elif isinstance(node, tuple):
        for index, item in enumerate(node):
            yield from references(item, (*path, index))


# --- conditions -------------------------------------------------------------------------------


def parse_condition(text: str) -> Condition:
    """A condition: references, literals, `== != < > <= >=`, `not`, `and`, `or` and parentheses.

    Raises:
        BadTemplate: it is none.
    """
    if len(text) > _LONGEST_CONDITION:
        raise BadTemplate(f"a condition has at most {_LONGEST_CONDITION} characters")
    return _Conditions(text).whole()


class _Conditions:
    """A parser of the usual kind: one method a rank of operators, the weakest first."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        self._depth = 0
        position = 0
        while text[position:].strip():
            token = _TOKEN.match(text, position)
            if token is None:
                raise BadTemplate(f"cannot be read from {_short(text[position:].strip())!r} on. {_HOW}")
            self._tokens.append((str(token.lastgroup), token[str(token.lastgroup)]))
            position = token.end()

    def whole(self) -> Condition:
        condition = self._any()
        if self._at < len(self._tokens):
            raise BadTemplate(f"has {self._tokens[self._at][1]!r} where it should be over. {_HOW}")
        return condition

    def _any(self) -> Condition:
        return self._joined("or", lambda: self._joined("and", self._negated))

    def _joined(self, word: Literal["and", "or"], part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._takes("word", word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Operation(word, tuple(parts))

    def _negated(self) -> Condition:
        negations = 0
        while self._takes("word", "not"):
            negations += 1
        compared = self._compared()
        # Two are not none, since they make true or false of anything; more come to the same as one or two.
        for _ in range(2 - negations % 2 if negations else 0):
            compared = Operation("not", (compared,))
        return compared

    def _compared(self) -> Condition:
        left = self._operand()
        kind, mark = self._peek()
        if kind == "mark" and mark in _COMPARISONS:
            self._at += 1
            return Operation(cast("Operator", mark), (left, self._operand()))
        return left

    def _operand(self) -> Condition:
        kind, written = self._peek()
        self._at += 1
        if kind == "reference":
            return parse_reference(written[2:-1].strip())
        if kind == "text":
            return Constant(written[1:-1])
        if kind == "number":
            return Constant(float(written) if "." in written else int(written))
        if kind == "word" and written in _CONSTANTS:
            return Constant(_CONSTANTS[written])
        if (kind, written) == ("mark", "("):
            self._depth += 1
            if self._depth > _DEEPEST_CONDITION:
                raise BadTemplate(f"has parentheses more than {_DEEPEST_CONDITION} deep")
            inside = self._any()
            self._depth -= 1
            if not self._takes("mark", ")"):
                raise BadTemplate(f"lacks a ). {_HOW}")
            return inside
        raise BadTemplate(f"lacks a value {f'before {written!r}' if written else 'at its end'}. {_HOW}")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _takes(self, kind: str, token: str) -> bool:
        if self._peek() != (kind, token):
            return False
        self._at += 1
        return True


_HOW: Final = "Write it like: ${input.all} and not ${steps.a.result.count} > 10 or ${input.kind} == 'new'"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
