"""What the references of a composed tool stand for, once there is something they can stand for. Pure.

Values are kept as the JSON they came as: a reference is a cut out of that text, so `1.0` and numbers of thirty digits
pass from one tool to the next as they are, and nothing in them can be taken for a reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import Raw

from muxway.config.templates import Condition, Constant, Operation, Reference, Template, Text
from muxway.errors import RpcError
from muxway.wire import envelopes
from muxway.wire.framing import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.wire.envelopes import Params

LARGEST_COMPARED: Final = 64 * 1024
"""Bytes of a value that a condition compares: everybody waits meanwhile."""
MOST_COMMAS: Final = 500_000
"""Commas in what `forEach` goes through: to find its items takes time for each of its values."""
_NULL: Final = Raw(b"null")


class Unfit(Exception):
    """A value is not what a step needs; the message says which and why."""


class StepOutcome(msgspec.Struct, frozen=True):
    """How a step ended."""

    result: Raw | None = None
    error: str | None = None
    skipped: bool = False

    @property
    def ok(self) -> bool:
        """Whether it was made and did not fail."""
        return self.error is None and not self.skipped


class StepScope(msgspec.Struct, frozen=True):
    """What references can lead to at one moment."""

    input: Params
    steps: Mapping[str, StepOutcome]
    item: Raw | None = None
    index: int = 0
    known: dict[tuple[str | int, ...], Raw | None] = msgspec.field(
        default_factory=dict["tuple[str | int, ...]", "Raw | None"]
    )
    """Step and path → what they led to. A result is large, and may be asked for again by each of many items."""


def look_up(reference: Reference, scope: StepScope, *, strict: bool = False) -> Raw | None:
    """The value a reference leads to; None if there is none.

    Raises:
        Unfit: if strict, a step has a result and there is no such thing in it.
    """
    if reference.root == "index":
        return Raw(b"%d" % scope.index)
    if reference.root == "input":
        if not reference.path:
            return Raw(envelopes.object_of(scope.input.items()))
        first, *rest = reference.path
        return _follow(scope.input.get(str(first)), rest)
    if reference.root == "item":
        found = _follow(scope.item, reference.path)
        whole = scope.item
    else:
        outcome = scope.steps[reference.step]
        if reference.part != "result":
            return Raw(envelopes.encode(getattr(outcome, reference.part)))
        found = _follow_known(scope.known, (reference.step,), outcome.result, reference.path)
        whole = outcome.result
    if found is None and strict and whole is not None:
        raise Unfit(f"{reference.written} leads nowhere: {_what(whole)} came, without such a part")
    return found


def _follow(raw: Raw | None, path: Sequence[str | int]) -> Raw | None:
    for key in path:
        if raw is None:
            return None
        if isinstance(key, str):
            raw = (envelopes.members(raw) or {}).get(key)
        else:
            items = envelopes.items(raw) or []
            raw = items[key] if -len(items) <= key < len(items) else None
    return raw


def _follow_known(
    known: dict[tuple[str | int, ...], Raw | None],
    start: tuple[str | int, ...],
    raw: Raw | None,
    path: Sequence[str | int],
) -> Raw | None:
    """The same, from what was found before, if it was."""
    for key in path:
        start = (*start, key)
        if start not in known:
            known[start] = _follow(raw, (key,))
        raw = known[start]
    return raw


def _what(raw: Raw) -> str:
    """What kind of value this is."""
    kinds = {"{": "an object", "[": "an array", '"': "text", "t": "true", "f": "false", "n": "null"}
    return kinds.get(chr(memoryview(raw)[0]), "a number")


def fill(template: Template, scope: StepScope, *, strict: bool = False) -> object:
    """The template with values in place of its references, ready to be encoded.

    What a reference does not lead to is null. If strict, it is left out where it would be a member of an object.

    Raises:
        Unfit: if strict, a reference into a result leads nowhere.
    """
    if isinstance(template, Reference):
        found = look_up(template, scope, strict=strict)
        return _NULL if found is None else found
    if isinstance(template, Text):
        return "".join(
            part if isinstance(part, str) else shown(look_up(part, scope, strict=strict)) for part in template.parts
        )
    if isinstance(template, Mapping):
        return {
            key: fill(member, scope, strict=strict)
            for key, member in template.items()
            if not (strict and isinstance(member, Reference) and look_up(member, scope, strict=True) is None)
        }
    if isinstance(template, tuple):
        return [fill(item, scope, strict=strict) for item in template]
    return template


def shown(raw: Raw | None) -> str:
    """A value inside a text: text as it is, nothing for null, all else as JSON."""
    if raw is None or envelopes.is_null(raw):
        return ""
    text = envelopes.text(raw)
    return bytes(raw).decode() if text is None else text


def items_of(template: Template, scope: StepScope) -> list[Raw]:
    """The items to make a call for.

    Raises:
        Unfit: it is no array.
    """
    encoded = envelopes.encode(fill(template, scope, strict=True))
    raw = Raw(encoded)
    if encoded.count(b",") > MOST_COMMAS:
        raise Unfit(f"forEach goes through {len(encoded):,} bytes with too many values in them")
    items = envelopes.items(raw)
    if items is None:
        raise Unfit(f"forEach needs an array, found {_what(raw)}")
    return items


# --- conditions -------------------------------------------------------------------------------


def holds(condition: Condition, scope: StepScope) -> bool:
    """Whether a condition holds.

    Raises:
        Unfit: it compares what cannot be compared.
    """
    if isinstance(condition, Reference):
        return _is_something(condition, scope)
    if not isinstance(condition, Operation):
        return bool(_value(condition, scope))
    operator, parts = condition.operator, condition.parts
    if operator == "not":
        return not holds(parts[0], scope)
    if operator in ("and", "or"):
        answers = (holds(part, scope) for part in parts)
        return all(answers) if operator == "and" else any(answers)
    left, right = (_value(part, scope) for part in parts)
    if operator in ("==", "!="):
        return same(left, right) == (operator == "==")
    numbers = all(isinstance(side, int | float) and not isinstance(side, bool) for side in (left, right))
    if not numbers and not (isinstance(left, str) and isinstance(right, str)):
        raise Unfit(f"`{operator}` compares two numbers or two texts, nothing else")
    return {
        "<": lambda: left < right,
        ">": lambda: left > right,
        "<=": lambda: left <= right,
        ">=": lambda: left >= right,
    }[operator]()


def _is_something(reference: Reference, scope: StepScope) -> bool:
    """Whether it leads to anything but null, false, zero and what is empty."""
    raw = look_up(reference, scope)
    if raw is not None and memoryview(raw).nbytes > LARGEST_COMPARED:
        # Not decoded: so much is something, unless it is blanks between brackets, or a number.
        text = bytes(raw).strip()
        if text[:1] in (b"[", b"{"):
            return bool(text[1:-1].strip())
        if text[:1] == b'"':
            return True
    return bool(_value(reference, scope))


def _value(condition: Condition, scope: StepScope) -> Any:
    if isinstance(condition, Constant):
        return condition.value
    if isinstance(condition, Operation):
        return holds(condition, scope)
    raw = look_up(condition, scope)
    if raw is not None and (size := memoryview(raw).nbytes) > LARGEST_COMPARED:
        raise Unfit(f"{condition.written} has {size:,} bytes, more than the {LARGEST_COMPARED:,} that can be compared")
    try:
        return None if raw is None else envelopes.value(raw)
    except RpcError:
        raise Unfit(f"{condition.written} is a value that cannot be compared") from None


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: 1 is 1.0, but true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        ours, theirs = cast("list[Any]", one), cast("list[Any]", other)
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(one, dict) and isinstance(other, dict):
        mine, yours = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        return mine.keys() == yours.keys() and all(same(mine[key], yours[key]) for key in mine)
    return bool(one == other)


# --- results ----------------------------------------------------------------------------------


def read_result(raw: bytes) -> StepOutcome:
    """What a tool's result means to later steps.

    Its structured content; or the object or array that its one text is; or its text; or else its content blocks.
    """
    fields = envelopes.members(raw) or {}
    blocks = envelopes.items(fields.get("content", b"[]")) or []
    texts = [_text_of(block) for block in blocks]
    if bytes(fields.get("isError", b"")) == b"true":
        said = "\n".join(text for text in texts if text)
        return StepOutcome(error=said or "the tool says that it failed, and nothing more")
    structured = fields.get("structuredContent")
    if structured is not None and not envelopes.is_null(structured):
        return StepOutcome(structured)
    if not all(text is not None for text in texts):
        return StepOutcome(Raw(bytes(fields.get("content", b"[]"))))
    text = "\n".join(text for text in texts if text is not None)
    data = text.strip().encode()
    if len(texts) == 1 and data[:1] in (b"{", b"["):
        # A message is one line; in JSON, line ends stand only between values.
        flat = one_line(data)
        if (envelopes.members(flat) if data[:1] == b"{" else envelopes.items(flat)) is not None:
            return StepOutcome(Raw(flat))
    return StepOutcome(Raw(envelopes.encode(text)))


def _text_of(block: Raw) -> str | None:
    fields = envelopes.members(block) or {}
    return envelopes.text(fields.get("text")) if envelopes.text(fields.get("type")) == "text" else None


def make_result(value: Raw) -> bytes:
    """A composed tool's result: the value as structured content, and as text for who knows only that.

    Text alone needs no structure. What is neither text nor object is wrapped, since most clients know only objects.
    """
    text = envelopes.text(value)
    content = envelopes.encode([{"type": "text", "text": bytes(value).decode() if text is None else text}])
    if text is not None:
        return b'{"content":%b}' % content
    structured = bytes(value) if envelopes.is_object(value) else b'{"result":%b}' % bytes(value)
    return b'{"content":%b,"structuredContent":%b}' % (content, structured)


def make_failure(why: str) -> bytes:
    """The result of a composed tool that failed."""
    return envelopes.encode({"content": [{"type": "text", "text": why}], "isError": True})
