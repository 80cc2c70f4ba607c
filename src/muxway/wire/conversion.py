"""Tools, prompts, resources and results in the words of the caller's revision.

What a caller cannot parse is put in words it can, or dropped; all else stays the bytes
that came, and a tool or result with nothing to convert is the very object that came in.
Texts are searched for the words in question before anything is opened: most have none.
Extra members break no client, unknown types of content do (docs/compatibility.md#what-crosses), so members are
taken away only where the table says so.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from muxway.errors import ParseError
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from muxway.wire.envelopes import Buffer, Params
    from muxway.wire.revisions import Revision

# ASCII can hide behind such an escape. Nobody writes our words like that, but whoever does is understood by clients.
_ESCAPE: Final = b"\\u00"
_LOCAL_REFERENCE: Final = re.compile(rb'("\$ref"\s*:\s*"#)(?=[/"])')
_NOTE: Final = envelopes.encode("(a sound that came without its data)")


def _marks(words: Iterable[str]) -> tuple[bytes, ...]:
    """What a text that has one of these words as a JSON string must contain."""
    marks = tuple(envelopes.encode(word) for word in words)
    return (*marks, _ESCAPE) if marks else ()


def marked(raw: bytes, marks: Sequence[bytes]) -> bool:
    """Whether a text may have something to convert. A false alarm costs time, nothing else."""
    return any(mark in raw for mark in marks)


# --- definitions ------------------------------------------------------------------------------


@cache
def tool_converter(caller: Revision) -> Callable[[bytes], bytes]:
    """The conversion of a listed tool's definition for callers of a revision; always the same one."""
    dropped = {"execution"}  # Says how to run it as a task; to whom that can be offered, it is offered in another way.
    if not caller.icons:
        dropped.add("icons")
    if not caller.structured:
        dropped.add("outputSchema")
    if not caller.titles:
        dropped.add("title")
    if not caller.annotations:
        dropped.add("annotations")
    wraps = caller.structured and not caller.any_structure
    marks = _marks([*sorted(dropped), *(("outputSchema",) if wraps else ())])

    def convert(definition: bytes) -> bytes:
        if not marked(definition, marks):
            return definition
        fields = envelopes.members(definition) or {}
        kept: dict[str, Buffer] = {name: raw for name, raw in fields.items() if name not in dropped}
        if "title" in dropped and "annotations" not in dropped:
            _move_title(fields, kept)
        if wraps and _is_wrapped(fields):
            _wrap_schema(kept, fields["outputSchema"])
        return definition if kept == fields else envelopes.object_of(kept.items())

    return convert


@cache
def item_converter(caller: Revision) -> Callable[[bytes], bytes]:
    """The same for a prompt, a resource or a resource template."""
    dropped = {name for name, known in (("icons", caller.icons), ("title", caller.titles)) if not known}
    marks = _marks(sorted(dropped))

    def convert(definition: bytes) -> bytes:
        if not marked(definition, marks):
            return definition
        fields = envelopes.members(definition) or {}
        kept = {name: raw for name, raw in fields.items() if name not in dropped}
        return definition if len(kept) == len(fields) else envelopes.object_of(kept.items())

    return convert


def _move_title(fields: Params, kept: dict[str, Buffer]) -> None:
    """Where a tool has no title of its own its annotations do. Of two titles the tool's own is the one shown."""
    if envelopes.text(fields.get("title")) is None:
        return
    annotations: dict[str, Buffer] = {**(envelopes.members(fields.get("annotations", b"{}")) or {})}
    annotations["title"] = fields["title"]
    kept["annotations"] = envelopes.object_of(annotations.items())


def is_wrapped(definition: bytes) -> bool:
    """Whether a tool's output is not said to be an object: callers that know only objects get it wrapped in one."""
    return marked(definition, _SCHEMA_MARKS) and _is_wrapped(envelopes.members(definition) or {})


def is_tasked(definition: bytes) -> bool:
    """Whether a tool says that it can only be run as a task."""
    if not marked(definition, _EXECUTION_MARKS):
        return False
    execution = envelopes.members((envelopes.members(definition) or {}).get("execution", b"")) or {}
    return envelopes.text(execution.get("taskSupport")) == "required"


_SCHEMA_MARKS: Final = _marks(("outputSchema",))
_EXECUTION_MARKS: Final = _marks(("execution",))


def _is_wrapped(fields: Params) -> bool:
    schema = fields.get("outputSchema")
    if schema is None:
        return False
    return envelopes.text((envelopes.members(schema) or {}).get("type")) != "object"


def _wrap_schema(kept: dict[str, Buffer], schema: Buffer) -> None:
    """Put a schema under `result` of an object's. What is no schema at all is dropped."""
    fields = envelopes.members(schema)
    if fields is None:
        if bytes(schema) in (b"true", b"false"):
            kept["outputSchema"] = _schema_of_result(schema)
        else:
            del kept["outputSchema"]
        return
    # The dialect is said at the root of a document, and the root is ours now.
    dialect = fields.pop("$schema", None)
    inner = envelopes.object_of(fields.items())
    if "$id" not in fields:
        # References count from the root, too; those of a schema with an id count from where that stands.
        inner = _LOCAL_REFERENCE.sub(rb"\1/properties/result", inner)
    kept["outputSchema"] = _schema_of_result(inner, dialect)


def _schema_of_result(schema: Buffer, dialect: Buffer | None = None) -> bytes:
    head: list[tuple[str, Buffer]] = [] if dialect is None else [("$schema", dialect)]
    properties = envelopes.object_of([("result", schema)])
    return envelopes.object_of(
        [*head, ("type", b'"object"'), ("properties", properties), ("required", b'["result"]')],
    )


# --- results ----------------------------------------------------------------------------------


def result_marks(caller: Revision, *, wrapped: bool) -> tuple[bytes, ...]:
    """Words without which a handshake server's result needs no conversion; empty if it never does.

    Args:
        caller: the revision of the caller.
        wrapped: whether the tool is one of those whose output is wrapped, see `is_wrapped`.
    """
    words: list[str] = []
    if not caller.audio:
        words.append("audio")
    if not caller.resource_links:
        words.append("resource_link")
    if not caller.structured or (wrapped and not caller.any_structure):
        words.append("structuredContent")
    return _marks(words)


def convert_result(caller: Revision, fields: dict[str, Buffer], *, wrapped: bool) -> bool:
    """Put the members of a result in the caller's words, in place. False if they all stayed as they were."""
    content = fields.get("content", b"null")
    # Many servers write null for what is absent.
    blocks = [] if envelopes.is_null(content) else envelopes.items(content)
    if blocks is None:
        return False  # Not a result of a tool; there is nothing in it that we know.
    shown: list[Buffer] = [*blocks]
    if not (caller.audio and caller.resource_links):
        shown = [_convert_block(caller, block, index) for index, block in enumerate(blocks)]
    structured = fields.get("structuredContent")
    changed = False
    if structured is not None and not caller.any_structure:
        if not caller.structured:
            del fields["structuredContent"]
            changed = True
            if not envelopes.is_null(structured):
                _ensure_copy(shown, structured)
        elif wrapped or not envelopes.is_object(structured):
            fields["structuredContent"] = envelopes.object_of([("result", structured)])
            changed = True
            _ensure_copy(shown, structured)
    if len(shown) != len(blocks) or any(new is not old for new, old in zip(shown, blocks, strict=True)):
        fields["content"] = b"[" + b",".join(shown) + b"]"
        changed = True
    return changed


@cache
def prompt_converter(caller: Revision) -> Callable[[Buffer], Buffer] | None:
    """The conversion of the messages of a prompt; None if callers of this revision understand all of them."""
    known = {"audio": caller.audio, "resource_link": caller.resource_links}
    marks = _marks(word for word in known if not known[word])

    def convert(result: Buffer) -> Buffer:
        if not marked(bytes(result), marks):
            return result
        fields: dict[str, Buffer] = {**(envelopes.members(result) or {})}
        said = envelopes.items(fields.get("messages", b"")) or []
        shown = [_convert_message(caller, message, index) for index, message in enumerate(said)]
        if all(new is old for new, old in zip(shown, said, strict=True)):
            return result
        fields["messages"] = b"[" + b",".join(shown) + b"]"
        return envelopes.object_of(fields.items())

    return convert if marks else None


def _convert_message(caller: Revision, message: Buffer, index: int) -> Buffer:
    fields: dict[str, Buffer] = {**(envelopes.members(message) or {})}
    block = fields.get("content")
    if block is None or not envelopes.is_object(block):
        return message
    fields["content"] = _convert_block(caller, block, index)
    return message if fields["content"] is block else envelopes.object_of(fields.items())


def _convert_block(caller: Revision, block: Buffer, index: int) -> Buffer:
    fields = envelopes.members(block) or {}
    kind = envelopes.text(fields.get("type"))
    if kind == "audio" and not caller.audio:
        return _sound_as_resource(fields, index)
    if kind == "resource_link" and not caller.resource_links:
        return _link_as_text(fields)
    return block


def _sound_as_resource(fields: Params, index: int) -> bytes:
    converted: dict[str, Buffer] = {**fields}
    data = converted.pop("data", None)
    mime = converted.pop("mimeType", None)
    if data is None or envelopes.text(data) is None:
        return envelopes.object_of({**converted, "type": b'"text"', "text": _NOTE}.items())
    # A resource has an address; this one need only differ from the others in the result.
    resource: dict[str, Buffer] = {"uri": b'"muxway://audio/%d"' % index}
    if mime is not None and envelopes.text(mime) is not None:
        resource["mimeType"] = mime
    resource["blob"] = data
    converted |= {"type": b'"resource"', "resource": envelopes.object_of(resource.items())}
    return envelopes.object_of(converted.items())


def _link_as_text(fields: Params) -> bytes:
    converted: dict[str, Buffer] = {**fields}
    named = [envelopes.text(converted.pop(key, None)) for key in ("name", "uri")]
    text = ": ".join(part for part in named if part)
    return envelopes.object_of({**converted, "type": b'"text"', "text": envelopes.encode(text)}.items())


# --- the copy in words ------------------------------------------------------------------------


def _ensure_copy(blocks: list[Buffer], structured: Buffer) -> None:
    """Add structured content as text, unless the server has done so, as it should."""
    raw = bytes(structured)
    texts = [text.encode() for text in map(_text_of, blocks) if text is not None]
    if raw not in texts and not (texts and _said(raw, texts)):
        blocks.append(envelopes.object_of([("type", b'"text"'), ("text", envelopes.encode(raw.decode()))]))


def _text_of(block: Buffer) -> str | None:
    fields = envelopes.members(block) or {}
    return envelopes.text(fields.get("text")) if envelopes.text(fields.get("type")) == "text" else None


def _said(structured: bytes, texts: list[bytes]) -> bool:
    """Whether a text is the same value, spelled otherwise. Typed servers say bare what they put under `result`."""
    fields = envelopes.members(structured) or {}
    bare = bytes(fields["result"]) if fields.keys() == {"result"} else structured
    plain = envelopes.text(bare)
    if plain is not None and plain.encode() in texts:
        return True
    same = {_canonical(structured), _canonical(bare)} - {b""}
    return any(_canonical(text) in same for text in texts)


def _canonical(raw: bytes) -> bytes:
    """One spelling for equal JSON values; empty if it is no JSON, or none that can be compared."""
    try:
        return envelopes.encode(envelopes.value(raw), order="deterministic")
    except (ParseError, RecursionError):
        return b""
