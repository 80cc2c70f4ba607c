"""The flat forms of elicitation: does an answer fit, and what becomes of a form for a client of 2025-06-18?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from muxway.wire.envelopes import as_list, as_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class CannotBeShown(Exception):
    """A form has a field that older clients have no control for."""


def misfit(schema: object, content: object) -> str | None:
    """What is wrong with the content of a filled-in form; None if it fits.

    Knows the keywords a form may have and lets pass what it does not know: the server looks at it, too.
    """
    if not isinstance(content, dict):
        return "the content must be an object"
    fields = cast("dict[str, object]", content)
    form = as_object(schema)
    for name in _strings(form.get("required")):
        if name not in fields:
            return f"the field {name} is missing"
    for name, wanted in as_object(form.get("properties")).items():
        if name in fields:
            why = _misfit_of_field(as_object(wanted), fields[name])
            if why is not None:
                return f"the field {name} {why}"
    return None


def _misfit_of_field(wanted: Mapping[str, Any], value: object) -> str | None:
    kind = wanted.get("type")
    check = _CHECKS.get(kind) if isinstance(kind, str) else None
    why = None if check is None else check(wanted, value)
    if why is not None:
        return why
    allowed = _choices(wanted)
    if allowed is not None and not isinstance(value, list) and value not in allowed:
        return "is none of the choices"
    return None


def _text(wanted: Mapping[str, Any], value: object) -> str | None:
    if not isinstance(value, str):
        return "must be text"
    return _within(len(value), wanted, "minLength", "maxLength", "characters")


def _number(wanted: Mapping[str, Any], value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "must be a number"
    if wanted.get("type") == "integer" and value != int(value):
        return "must be a whole number"
    return _within(value, wanted, "minimum", "maximum", "")


def _truth(_: Mapping[str, Any], value: object) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _choice_list(wanted: Mapping[str, Any], value: object) -> str | None:
    if not isinstance(value, list):
        return "must be a list"
    chosen = cast("list[object]", value)
    allowed = _choices(as_object(wanted.get("items")))
    if any(not isinstance(item, str) or (allowed is not None and item not in allowed) for item in chosen):
        return "has something in it that is none of the choices"
    return _within(len(chosen), wanted, "minItems", "maxItems", "choices")


_CHECKS: dict[str, Callable[[Mapping[str, Any], object], str | None]] = {
    "string": _text,
    "number": _number,
    "integer": _number,
    "boolean": _truth,
    "array": _choice_list,
}


def _within(size: float, wanted: Mapping[str, Any], least: str, most: str, of: str) -> str | None:
    low, high = wanted.get(least), wanted.get(most)
    if isinstance(low, (int, float)) and size < low:
        return f"must be at least {low:g} {of}".rstrip()
    if isinstance(high, (int, float)) and size > high:
        return f"must be at most {high:g} {of}".rstrip()
    return None


def _choices(wanted: Mapping[str, Any]) -> list[object] | None:
    plain = wanted.get("enum")
    if isinstance(plain, list):
        return cast("list[object]", plain)
    for key in ("oneOf", "anyOf"):
        titled = wanted.get(key)
        if isinstance(titled, list):
            return [as_object(choice).get("const") for choice in cast("list[object]", titled)]
    return None


def simplified(schema: object) -> dict[str, Any]:
    """A form in the words of 2025-06-18: choices with titles become `enum` and `enumNames`, defaults go.

    Raises:
        CannotBeShown: it has a multiple choice.
    """
    form = dict(as_object(schema))
    form.pop("$schema", None)
    form["properties"] = {name: _simpler(name, field) for name, field in as_object(form.get("properties")).items()}
    return form


def _simpler(name: str, field: object) -> object:
    wanted = dict(as_object(field))
    if wanted.get("type") == "array":
        raise CannotBeShown(f"the field {name} is a multiple choice")
    if wanted.get("type") != "boolean":
        wanted.pop("default", None)
    titled = wanted.pop("oneOf", None)
    if isinstance(titled, list):
        choices = [as_object(choice) for choice in cast("list[object]", titled)]
        wanted["enum"] = [choice.get("const") for choice in choices]
        wanted["enumNames"] = [str(choice.get("title", choice.get("const"))) for choice in choices]
    return wanted


def _strings(value: object) -> list[str]:
    return [item for item in as_list(value) if isinstance(item, str)]
