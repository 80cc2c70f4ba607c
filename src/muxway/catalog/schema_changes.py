"""How one JSON Schema of a tool differs from another, and what that means for those who use the tool.

For arguments, whatever was valid must stay valid; for results, whatever was there must stay there. What is not
understood counts as breaking: a change that nobody has a word for is never no change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from muxway.wire import envelopes
from muxway.wire.envelopes import as_list, as_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TEXTS: Final = frozenset(("description", "title", "$comment", "examples", "default", "$schema", "$id", "format"))
"""What says something to models and decides nothing."""
_LOWER: Final = frozenset(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"))
_UPPER: Final = frozenset(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"))
_TYPES: Final = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))
_DEEPEST: Final = 32


class Difference(NamedTuple):
    """One thing that is otherwise than it was."""

    class_: Literal["breaking", "risk", "safe"]
    what: str


def same(one: object, other: object) -> bool:
    """Whether two values are the same JSON. To Python `true` is 1, and to a model it is not."""
    return one == other and envelopes.encode_sorted(one) == envelopes.encode_sorted(other)


def of_input(before: object, after: object) -> list[Difference]:
    """How what a tool takes has changed."""
    return [*_changes("", before, after, 0)]


def of_output(before: object, after: object) -> list[Difference]:
    """How what a tool gives has changed."""
    if before is None:
        return [Difference("risk" if has_words(after) else "safe", "outputSchema is new")]
    if after is None:
        return [Difference("breaking", "outputSchema is not there any more")]
    old, new = (as_object(as_object(one).get("properties")) for one in (before, after))
    found = [Difference("breaking", f"result {name} is not there any more") for name in sorted(old.keys() - new.keys())]
    found += [
        Difference("risk" if has_words(new[name]) else "safe", f"result {name} is new")
        for name in sorted(new.keys() - old.keys())
    ]
    changed = [name for name in sorted(old.keys() & new.keys()) if not same(old[name], new[name])]
    found += [Difference("breaking", f"result {name} has changed") for name in changed]
    rest = [{**as_object(one), "properties": None} for one in (before, after)]
    if not found or not same(*rest):
        found.append(Difference("breaking", "outputSchema has changed"))
    return found


def has_words(schema: object) -> bool:
    """Whether a schema says something to models, at any depth."""
    left = [schema]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            members = cast("dict[str, object]", one)
            if not _TEXTS.isdisjoint(members):
                return True
            left += members.values()
        elif isinstance(one, list):
            left += cast("list[object]", one)
    return False


def _changes(at: str, before: object, after: object, depth: int) -> Iterator[Difference]:
    if depth > _DEEPEST or not all(isinstance(one, dict) for one in (before, after)):
        if not same(before, after):
            yield Difference("breaking", f"{at or 'inputSchema'} has changed")
        return
    old, new = as_object(before), as_object(after)
    understood = set[str]()
    if all(isinstance(one.get("properties", {}), dict) and _is_strings(one.get("required", [])) for one in (old, new)):
        understood = {"properties", "required"}
        yield from _properties(at, old, new, depth)
    for word in sorted({*old, *new} - understood):
        if word not in old or word not in new or not same(old[word], new[word]):
            yield from _word(at, word, old, new, depth)


def _properties(at: str, before: Mapping[str, Any], after: Mapping[str, Any], depth: int) -> Iterator[Difference]:
    old, new = as_object(before.get("properties")), as_object(after.get("properties"))
    needed, needs = set(as_list(before.get("required"))), set(as_list(after.get("required")))
    for name in sorted({*old, *new, *cast("set[str]", needed | needs)}):
        label = f"{at}.{name}" if at else name
        if name in old and name not in new:
            yield Difference("breaking", f"argument {label} is not there any more")
        elif name in new and name not in old:
            class_ = "breaking" if name in needs else "risk" if has_words(new[name]) else "safe"
            yield Difference(class_, f"argument {label} is new{', and required' * (name in needs)}")
        elif name in needs and name not in needed:
            yield Difference("breaking", f"argument {label} is required now")
        elif name in needed and name not in needs:
            yield Difference("safe", f"argument {label} is not required any more")
        if name in old and name in new:
            yield from _changes(label, old[name], new[name], depth + 1)


def _word(at: str, word: str, before: Mapping[str, Any], after: Mapping[str, Any], depth: int) -> Iterator[Difference]:
    where = f"{word} of {at}" if at else word
    old, new = before.get(word), after.get(word)
    if word in _TEXTS:
        yield Difference("risk", f"{where} has changed")
    elif None in (before.get(word, 0), after.get(word, 0)):
        # A `null` that is said is a value like any other, and no word of a schema takes it.
        yield Difference("breaking", f"{where} has changed")
    elif word == "type":
        was, is_ = _types(old), _types(new)
        wider = new is None or (old is not None and was <= is_ <= _TYPES)
        yield Difference("safe" if wider else "breaking", f"{where} is {_said(new)}, was {_said(old)}")
    elif word == "enum":
        was, is_ = ({envelopes.encode_sorted(one) for one in as_list(given)} for given in (old, new))
        if new is not None and (not isinstance(new, list) or old is None or was - is_):
            yield Difference("breaking", f"{where} takes fewer values")
        else:
            yield Difference("safe", f"{where} takes {'the same values' if was == is_ else 'more values'}")
    elif word in _LOWER or word in _UPPER:
        yield Difference(
            "safe" if _is_looser(word, old, new) else "breaking", f"{where} is {_said(new)}, was {_said(old)}"
        )
    elif word == "additionalProperties":
        looser = new is None or new is True
        yield Difference("safe" if looser else "breaking", f"{where} is {_said(new)}, was {_said(old)}")
    elif word == "items" and isinstance(old, dict) and isinstance(new, dict):
        yield from _changes(f"{at}[]", before[word], after[word], depth + 1)
    elif new is None and word in ("pattern", "const", "not", "uniqueItems", "multipleOf"):
        yield Difference("safe", f"{where} is not there any more")
    else:
        yield Difference("breaking", f"{where} has changed")


def _is_looser(word: str, old: Any, new: Any) -> bool:
    if new is None:
        return True
    if not isinstance(old, int | float) or not isinstance(new, int | float):
        return False
    return new <= old if word in _LOWER else new >= old


def _types(value: object) -> frozenset[object]:
    types = frozenset(str(one) for one in (cast("list[object]", value) if isinstance(value, list) else [value]))
    return types | {"integer"} if "number" in types else types


def _said(value: object) -> str:
    return "not said" if value is None else str(value).lower() if isinstance(value, bool) else str(value)[:60]


def _is_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in cast("list[object]", value))
