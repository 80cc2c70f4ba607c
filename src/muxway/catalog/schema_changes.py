"""How one JSON Schema of a tool differs from another, and what that means for those who use the tool.

For arguments, whatever was valid must stay valid; for results, whatever was there must stay there. What is not
understood counts as breaking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TEXTS: Final = frozenset(("description", "title", "$comment", "examples", "default", "$schema", "$id", "format"))
"""What says something to models and decides nothing."""
_LOWER: Final = frozenset(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"))
_UPPER: Final = frozenset(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"))
_DEEPEST: Final = 32


class Difference(NamedTuple):
    """One thing that is otherwise than it was."""

    class_: Literal["breaking", "risk", "safe"]
    what: str


def of_input(before: object, after: object) -> list[Difference]:
    """How what a tool takes has changed."""
    return [*_changes("", _object(before), _object(after), 0)]


def of_output(before: object, after: object) -> list[Difference]:
    """How what a tool gives has changed."""
    if before is None:
        return [Difference("safe", "outputSchema is new")]
    if after is None:
        return [Difference("breaking", "outputSchema is not there any more")]
    old, new = (_object(_object(one).get("properties")) for one in (before, after))
    found = [Difference("breaking", f"result {name} is not there any more") for name in sorted(old.keys() - new.keys())]
    found += [Difference("safe", f"result {name} is new") for name in sorted(new.keys() - old.keys())]
    changed = [name for name in sorted(old.keys() & new.keys()) if old[name] != new[name]]
    found += [Difference("breaking", f"result {name} has changed") for name in changed]
    return found or [Difference("breaking", "outputSchema has changed")]


def _changes(at: str, before: Mapping[str, Any], after: Mapping[str, Any], depth: int) -> Iterator[Difference]:
    if depth > _DEEPEST:
        if before != after:
            yield Difference("breaking", f"{at} has changed")
        return
    yield from _properties(at, before, after, depth)
    for word in sorted({*before, *after} - {"properties", "required"}):
        old, new = before.get(word), after.get(word)
        if old != new:
            yield from _word(at, word, old, new, depth)


def _properties(at: str, before: Mapping[str, Any], after: Mapping[str, Any], depth: int) -> Iterator[Difference]:
    old, new = _object(before.get("properties")), _object(after.get("properties"))
    needed, needs = _strings(before.get("required")), _strings(after.get("required"))
    for name in sorted(old.keys() | new.keys()):
        label = f"{at}.{name}" if at else name
        if name not in new:
            yield Difference("breaking", f"argument {label} is not there any more")
        elif name not in old:
            required = name in needs
            yield Difference(
                "breaking" if required else "safe", f"argument {label} is new{', and required' * required}"
            )
        else:
            if name in needs and name not in needed:
                yield Difference("breaking", f"argument {label} is required now")
            elif name in needed and name not in needs:
                yield Difference("safe", f"argument {label} is not required any more")
            yield from _changes(label, _object(old[name]), _object(new[name]), depth + 1)
    for name in sorted(needs - needed - new.keys()):
        yield Difference("breaking", f"argument {f'{at}.{name}' if at else name} is required now")


def _word(at: str, word: str, old: Any, new: Any, depth: int) -> Iterator[Difference]:
    where = f"{word} of {at}" if at else word
    if word in _TEXTS:
        yield Difference("risk", f"{where} has changed")
    elif word == "type":
        was, is_ = _types(old), _types(new)
        wider = new is None or (old is not None and was <= is_)
        yield Difference("safe" if wider else "breaking", f"{where} is {_said(new)}, was {_said(old)}")
    elif word == "enum":
        lost = [one for one in _list(old) if one not in _list(new)] if new is not None else []
        if new is not None and (old is None or lost):
            yield Difference("breaking", f"{where} takes fewer values")
        else:
            yield Difference("safe", f"{where} takes more values")
    elif word in _LOWER or word in _UPPER:
        yield Difference(
            "safe" if _is_looser(word, old, new) else "breaking", f"{where} is {_said(new)}, was {_said(old)}"
        )
    elif word == "additionalProperties":
        yield Difference("breaking" if new is False else "safe", f"{where} is {_said(new)}, was {_said(old)}")
    elif word == "items" and isinstance(old, dict) and isinstance(new, dict):
        yield from _changes(f"{at}[]", cast("dict[str, Any]", old), cast("dict[str, Any]", new), depth + 1)
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


def _object(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _strings(value: object) -> set[str]:
    return {one for one in _list(value) if isinstance(one, str)}
