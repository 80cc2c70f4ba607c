"""What a server may want of its caller (the user's word, a model's, the roots of the workspace), in every revision.

Handshake servers send a request in the middle of a call; servers of 2026-07-28 end the call with `input_required`
and are called again with the answers. What is asked, and how it is answered, is the same in both but for spelling.
Nothing here knows of connections or clients: it is only about words.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from muxway.errors import MISSING_CAPABILITY, InvalidParams, MethodNotFound, ParseError, RpcError
from muxway.wire import envelopes, forms
from muxway.wire.labels import labelled
from muxway.wire.revisions import PREFIX, PROGRESS_TOKEN, RELATED_TASK

if TYPE_CHECKING:
    from muxway.wire.envelopes import Buffer, Params, Raw
    from muxway.wire.revisions import Revision

ELICIT: Final = "elicitation/create"
SAMPLE: Final = "sampling/createMessage"
ROOTS: Final = "roots/list"
METHODS: Final = frozenset((ELICIT, SAMPLE, ROOTS))
REPEATABLE: Final = frozenset(("tools/call", "prompts/get", "resources/read"))
"""Requests of 2026-07-28 that may be answered with questions, and are then sent again with the answers."""
MOST_OPEN: Final = 32
"""Questions of one call that may be open at once."""
UI_EXTENSION: Final = PREFIX + "ui"
TASKS_EXTENSION: Final = PREFIX + "tasks"

EVERYTHING: Final[dict[str, Any]] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
    "extensions": {UI_EXTENSION: {"mimeTypes": ["text/html;profile=mcp-app"]}},
}
"""What a handshake server is told when many callers share its session: each question is then put only to callers
that can answer it."""

_KNOWN: Final = frozenset(("roots", "sampling", "elicitation", "extensions", "tasks"))
CANCELLED: Final = b'{"action":"cancel"}'
_ACTIONS: Final = ("accept", "decline", "cancel")
_PASSED_EXTENSIONS: Final = frozenset((UI_EXTENSION,))
_HOP: Final = frozenset((PROGRESS_TOKEN, RELATED_TASK))
_LONGEST_REMEMBERED: Final = 4096
"""Bytes of capabilities from which on only few are remembered: callers choose them, and memory is ours."""


def needs_tasks(what: str) -> RpcError:
    """The error for a caller that wants tasks and did not declare them."""
    data: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
    return RpcError(f"{what} needs a client that declares tasks", code=MISSING_CAPABILITY, data=data)


class BadAnswer(RpcError):
    """The caller's answer is not what was asked for."""

    code = InvalidParams.code


def declared(capabilities: Buffer | None, caller: Revision, *, own: bool = False) -> dict[str, Any]:
    """What a server is told its caller can do, in the words of the newest revisions: what can be brought to it.

    `own`: nobody else uses the connection, or it is told with each request. Then also what nobody here has heard of.
    """
    given = _object(capabilities)
    told: dict[str, Any] = {key: value for key, value in given.items() if key not in _KNOWN} if own else {}
    if "roots" in given:
        told["roots"] = given["roots"] if own and isinstance(given["roots"], dict) else {}
    if isinstance(given.get("sampling"), dict):
        told["sampling"] = given["sampling"] if caller.sampling_arrays else {}
    elicitation = given.get("elicitation")
    if isinstance(elicitation, dict) and caller.elicitation:
        told["elicitation"] = elicitation if elicitation and caller.url_elicitation else {"form": {}}
    extensions = given.get("extensions")
    if isinstance(extensions, dict):
        items = cast("dict[str, Any]", extensions).items()
        passed = {key: value for key, value in items if key in _PASSED_EXTENSIONS or (own and key != TASKS_EXTENSION)}
        if passed:
            told["extensions"] = passed
    return told


class Told(NamedTuple):
    """What servers are told of a caller."""

    with_calls: bytes
    """What it can do, as JSON for stateless servers: `declared`, and whether its calls may become tasks."""
    can_be_asked: bool
    """Whether there is a question that it can answer."""
    kind: str
    """The few of these things that make a server treat its callers differently."""
    knows_tasks: bool
    """Whether it may be answered with a task of 2026-07-28. In older revisions the extension means nothing."""


def told(capabilities: Buffer | None, caller: Revision) -> Told:
    """What servers are told of a caller. Worked out once for all calls of all callers that declare the same."""
    raw = bytes(capabilities or b"")
    return (_told if len(raw) <= _LONGEST_REMEMBERED else _told_lately)(raw, caller)


def _tell(capabilities: bytes, caller: Revision) -> Told:
    plain = declared(capabilities or None, caller)
    extensions = _object(capabilities or None).get("extensions")
    tasks = caller.stateless and isinstance(extensions, dict) and TASKS_EXTENSION in extensions
    with_tasks = declared(capabilities or None, caller, own=True)
    if "roots" in plain:
        with_tasks["roots"] = {}
    if tasks:
        with_tasks["extensions"] = {**with_tasks.get("extensions", {}), TASKS_EXTENSION: {}}
    can_be_asked = bool(plain.keys() - {"extensions"})
    return Told(envelopes.encode(with_tasks), can_be_asked, _kind(plain), tasks)


def _kind(told: dict[str, Any]) -> str:
    elicitation, sampling = told.get("elicitation"), told.get("sampling")
    flags = ["roots"] if "roots" in told else []
    if elicitation is not None:
        flags += [mode for mode in ("form", "url") if mode in elicitation] or ["form"]
    if sampling is not None:
        flags += ["sampling", *(f"sampling.{one}" for one in ("context", "tools") if one in sampling)]
    if "extensions" in told:
        flags.append("ui")
    return " ".join(flags)


_told = lru_cache(1000)(_tell)
_told_lately = lru_cache(16)(_tell)


def knows_tasks(capabilities: Buffer | None, caller: Revision) -> bool:
    """Whether a caller may be answered with a task of 2026-07-28."""
    return caller.stateless and capabilities is not None and told(capabilities, caller).knows_tasks


def required(method: str, params: Params) -> dict[str, Any]:
    """The capability that a caller needs to be asked this, as `data.requiredCapabilities` spells it."""
    if method == ELICIT:
        return {"elicitation": {_mode(params): {}}}
    if method == SAMPLE:
        return {"sampling": {"tools": {}} if "tools" in params or "toolChoice" in params else {}}
    return {"roots": {}}


def refusal(capabilities: Buffer | None, caller: Revision, method: str, params: Params) -> RpcError | None:
    """Why this caller may not be asked this; None if it may."""
    if method not in METHODS:
        return InvalidParams(f"no client knows the question {method}")
    can = declared(capabilities, caller)
    if method == ELICIT:
        modes = can.get("elicitation")
        if modes is None:
            return MethodNotFound(f"{method}: the client did not declare elicitation")
        mode = _mode(params)
        # An empty object means forms, as it did when there was nothing else.
        if mode not in modes and not (mode == "form" and not modes):
            return InvalidParams(f"{method}: the client did not declare the elicitation mode {mode}")
    elif method == SAMPLE:
        if "sampling" not in can:
            return MethodNotFound(f"{method}: the client did not declare sampling")
        if ("tools" in params or "toolChoice" in params) and "tools" not in can["sampling"]:
            return InvalidParams(f"{method}: the client did not declare sampling.tools")
    elif "roots" not in can:
        return MethodNotFound(f"{method}: the client did not declare roots")
    return None


def worded(caller: Revision, method: str, params: Params, label: str) -> bytes | None:
    """The params to ask a caller of this revision with; None where there are none. `label`, if any, says who asks.

    Raises:
        RpcError: its revision has no words for this.
    """
    if method == ROOTS:
        return None
    fields: dict[str, Buffer] = {name: raw for name, raw in params.items() if name not in ("task", "_meta")}
    meta = envelopes.members(params.get("_meta", b""))
    if meta is not None:
        fields["_meta"] = envelopes.object_of((name, raw) for name, raw in meta.items() if name not in _HOP)
    if method == ELICIT:
        _word_elicitation(caller, fields, _mode(params), label)
    else:
        _word_sampling(caller, fields, label)
    return envelopes.object_of(fields.items())


def lacks_page_id(caller: Revision, method: str, params: Params) -> bool:
    """Whether it sends a caller of this revision to a web page which must have an id, and has none."""
    return method == ELICIT and not caller.stateless and _mode(params) == "url" and "elicitationId" not in params


def _word_elicitation(caller: Revision, fields: dict[str, Buffer], mode: str, label: str) -> None:
    said = envelopes.text(fields.get("message")) or ""
    if label:
        fields["message"] = envelopes.encode(labelled(label, said))
    if caller.stateless:
        fields["mode"] = envelopes.encode(mode)
        fields.pop("elicitationId", None)
    elif mode != "url" and not caller.url_elicitation:
        fields.pop("mode", None)
        try:
            form = forms.simplified(envelopes.value(fields.get("requestedSchema", b"{}")))
        except forms.CannotBeShown as error:
            raise InvalidParams(f"{ELICIT}: the client cannot show this form: {error}") from None
        fields["requestedSchema"] = envelopes.encode(form)


def _word_sampling(caller: Revision, fields: dict[str, Buffer], label: str) -> None:
    if label and "includeContext" in fields:
        # To the client, "this server" would be all that stand behind the gateway.
        fields["includeContext"] = b'"none"'
    if caller.sampling_arrays:
        return
    single: list[bytes] = []
    for raw in envelopes.items(fields.get("messages", b"[]")) or []:
        message = envelopes.members(raw) or {}
        content = message.get("content", b"null")
        for block in [content] if (blocks := envelopes.items(content)) is None else blocks:
            kind = envelopes.text((envelopes.members(block) or {}).get("type"))
            if kind in ("tool_use", "tool_result") or (kind == "audio" and not caller.audio):
                raise InvalidParams(f"{SAMPLE}: the client's revision {caller.date} knows no {kind} content")
            single.append(envelopes.object_of({**message, "content": block}.items()))
    fields["messages"] = b"[" + b",".join(single) + b"]"


def checked(method: str, params: Params, answer: Buffer, upstream: Revision) -> bytes:
    """The caller's answer, as it may be given to the server.

    Raises:
        BadAnswer: it is none.
    """
    fields = envelopes.members(answer)
    if fields is None:
        raise BadAnswer(f"the answer to {method} must be an object")
    if upstream.stateless:
        fields.pop("_meta", None)
        fields.pop("resultType", None)
    if method == ELICIT:
        _check_elicitation(params, fields)
    elif method == SAMPLE:
        _check_sampling(fields, upstream)
    elif envelopes.items(fields.get("roots", b"")) is None:
        raise BadAnswer("the answer to roots/list must have a list of roots")
    return envelopes.object_of(fields.items())


def _check_elicitation(params: Params, fields: dict[str, Raw]) -> None:
    action = envelopes.text(fields.get("action"))
    if action not in _ACTIONS:
        raise BadAnswer(f"the answer to {ELICIT} must have an action: {', '.join(_ACTIONS)}")
    if action == "accept" and _mode(params) == "form":
        try:
            schema = envelopes.value(params.get("requestedSchema", b"{}"))
        except ParseError:
            # Valid JSON that Python cannot hold. The server has to look for itself.
            return
        why = forms.misfit(schema, envelopes.value(fields.get("content", b"{}")))
        if why is not None:
            raise BadAnswer(f"the answer to {ELICIT} does not fit what was asked for: {why}")


def _check_sampling(fields: dict[str, Raw], upstream: Revision) -> None:
    content = fields.get("content")
    if content is None or envelopes.text(fields.get("role")) is None:
        raise BadAnswer(f"the answer to {SAMPLE} must have a role and content")
    blocks = envelopes.items(content)
    if blocks is not None and not upstream.sampling_arrays:
        if len(blocks) != 1:
            raise BadAnswer(f"the answer to {SAMPLE} must be one block: the server speaks {upstream.date}")
        fields["content"] = blocks[0]


def _mode(params: Params) -> str:
    return envelopes.text(params.get("mode")) or "form"


def _object(raw: Buffer | None) -> dict[str, Any]:
    return {} if raw is None else envelopes.as_object(envelopes.value(raw))
