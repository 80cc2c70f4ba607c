"""Putting something harmless in place of what nobody should see, in every text that leaves the gateway.

Works on the strings inside JSON: each is decoded, looked at, and written anew only if it was changed, so all else stays
the bytes that came. For accidents, not for servers that want to leak: a text that is reversed, or encoded in a way that
is not among those below, is not recognised.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from muxway.errors import RpcError, UpstreamSaid
from muxway.middleware.builtin.patterns import KINDS, WITHHELD, Search, has, replaced
from muxway.middleware.engine.base import Aside, Middleware, Result
from muxway.wire import envelopes, reading
from muxway.wire.envelopes import Raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from muxway.calls.server_request import ServerRequest
    from muxway.middleware.engine.base import Next, Request
    from muxway.regexes import Regex
    from muxway.wire.envelopes import Buffer, Params

SHORTEST: Final = 4
"""Characters of the shortest secret that is masked: hiding every `ab` would hide nothing and spoil everything."""
# Nothing in this can be matched in two ways, so it takes time in proportion to the text.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_COLON: Final = re.compile(rb"\s*+:")
_BACKSLASH: Final = ord("\\")
_PLAIN_RUN: Final = re.compile(r"[A-Za-z0-9_.+=-]+")
_WORDS: Final = frozenset(("text", "image", "audio", "resource", "resource_link", "user", "assistant"))
"""The protocol's own words. A pattern that happens to fit one must not make a result unreadable."""
_UNTOUCHED: Final = frozenset(("requestState", "nextCursor", "resultType", "taskId"))
"""Members of results that are not for reading."""
_FREE: Final = frozenset(("structuredContent", "_meta", "data"))
"""Members in which the keys are anybody's choice, too."""
_NESTED: Final = frozenset(("content", "contents", "messages", "resource"))
_OUTCOMES: Final = frozenset(("result", "error"))
"""Members of a task that are what its call would have been answered with."""
_ENCODED: Final = frozenset(("image", "audio"))
_DEEPEST: Final = 6
_ASKED: Final = frozenset(("message", "messages", "systemPrompt"))
"""What of a question is for reading. The rest must come through: a masked URL leads nowhere."""
_TOLD: Final = frozenset(("message", "data", "logger", "_meta"))
"""What of a notice is for reading."""
_LARGE: Final = 32 * 1024
"""Bytes of a result from which on it is searched beside the event loop."""
_LONG: Final = 64 * 1024
_MOST_STRINGS: Final = 2048
"""Bytes, and strings, of what is searched at once: with all kinds, up to 200 ns and 3 µs each. Notices do not wait."""
_LONGER: Final = 16
"""How many times as much a question may have: it cannot be put without, and few servers ask."""
_LISTS: Final = frozenset(("tools/list", "resources/list", "resources/templates/list", "prompts/list"))


def change_strings(raw: Buffer, change: Callable[[str], str], *, keys: bool = False) -> Buffer:
    """A JSON text with its strings changed; the very object that came in if nothing was.

    Keys that were different stay different.
    """
    text = bytes(raw)
    pieces: list[bytes] = []
    renamed: dict[str, str] = {}
    names: _Names | None = None
    done = 0
    for start, end, is_key in _strings(text):
        if is_key and not keys:
            continue
        old = _decoded(text[start:end])
        new = change(old)
        if new is old or new == old:
            continue
        if is_key:
            if old not in renamed:
                names = names or _Names(text)
                renamed[old] = names.free(new)
            new = renamed[old]
        pieces += (text[done:start], reading.encoded(new))
        done = end
    return b"".join((*pieces, text[done:])) if pieces else raw


def _strings(text: bytes) -> Iterator[tuple[int, int, bool]]:
    """Where the strings of a JSON text begin and end, and whether they are keys."""
    start = text.find(b'"')
    while start >= 0:
        end = text.find(b'"', start + 1) + 1
        if end == 0:
            return  # No JSON: some middleware made it.
        if text[end - 2] == _BACKSLASH and (match := _STRING.match(text, start)) is not None:
            end = match.end()
        yield start, end, _COLON.match(text, end) is not None
        start = text.find(b'"', end)


def _decoded(string: bytes) -> str:
    # The decoder is needed for escapes only, and where to decode all at once would take long.
    return reading.text(string) or "" if b"\\" in string or len(string) > reading.LONG else string[1:-1].decode()


class _Names:
    """The keys of a JSON text, and those that stand in place of some of them."""

    def __init__(self, text: bytes) -> None:
        self._taken = {_decoded(text[start:end]) for start, end, is_key in _strings(text) if is_key}
        self._used: Counter[str] = Counter()

    def free(self, name: str) -> str:
        """This name, or one made of it that no other key has."""
        while True:
            self._used[name] += 1
            found = name if self._used[name] == 1 else f"{name} ({self._used[name]})"
            if found not in self._taken:
                self._taken.add(found)
                return found


class Masker:
    """Knows what to mask, and with what."""

    def __init__(
        self,
        literals: Mapping[str, str],
        kinds: Sequence[str] = (),
        patterns: Sequence[Regex] = (),
    ) -> None:
        """Prepare.

        Args:
            literals: text → what stands in its place. Texts shorter than `SHORTEST` are left alone.
            kinds: names of `KINDS`.
            patterns: a user's own.
        """
        self._literals = {
            spelled: mask for text, mask in literals.items() if len(text) >= SHORTEST for spelled in _spellings(text)
        }
        # The longest first, and all in one go: what stands in place of one must not be taken for another.
        longest_first = sorted(self._literals, key=len, reverse=True)
        self._any_literal = re.compile("|".join(map(re.escape, longest_first)))
        self._kinds = {name: KINDS[name] for name in kinds}
        self._patterns = patterns
        hints = {max(_PLAIN_RUN.findall(text), key=len, default="") for text in self._literals}
        looks = {mark for kind in self._kinds.values() for mark in kind.marks}
        self._marks = tuple((min(mark, key=_commonness).encode(), mark.encode()) for mark in (*hints, *looks) if mark)
        self._blind = bool(patterns) or any(len(hint) < SHORTEST for hint in hints)

    def may_mask(self, raw: bytes) -> bool:
        """Whether there may be something to mask in this JSON. Quick, and right if it says no."""
        if self._blind or (b"\\" in raw and (has(raw, b"\\u") or has(raw, b"\\/"))):
            return True
        # To look for one character is many times quicker than for several, and most often enough.
        return any(rare in raw and has(raw, mark) for rare, mark in self._marks)

    def may_take_long(self, raw: bytes, times: int = 1) -> bool:
        """Whether to mask this JSON may take more than so many times what a turn of the event loop may."""
        return _is_long(raw, times) and self.may_mask(raw)

    # --- whole messages -----------------------------------------------------------------------

    def result(self, raw: bytes) -> bytes:
        """A result, masked; pictures, sounds and other base64 stay as they are."""
        return bytes(self._readable(raw, self._change())) if self.may_mask(raw) else raw

    def error(self, error: RpcError) -> None:
        """Mask an error, in place: its kind says what happened, and must stay."""
        change = self._change()
        error.message = change(error.message)
        error.args = (error.message,)
        if error.data is not None:
            error.data = envelopes.value(change_strings(envelopes.encode(error.data), change, keys=True))
        if isinstance(error, UpstreamSaid):
            error.raw = bytes(self._readable(error.raw, change))

    def notice(self, params: dict[str, Buffer]) -> dict[str, Buffer]:
        """The params of a notice, masked. What would take long to search is withheld."""
        change = self._change()
        shown = dict(params)
        for name in _TOLD.intersection(params):
            raw = bytes(params[name])
            if self.may_take_long(raw):
                shown[name] = b"{}" if name == "_meta" else envelopes.encode(WITHHELD)
            elif self.may_mask(raw):
                shown[name] = change_strings(raw, change, keys=True)
        return shown

    def question(self, params: Params) -> Params:
        """The params of a question, masked where people and models read it. Raises RpcError if that would take long."""
        if any(self.may_take_long(bytes(raw), _LONGER) for name, raw in params.items() if name in _ASKED):
            raise RpcError("the question is too long to be searched for what nobody should see")
        return self._asked(params, self._change())

    def _asked(self, params: Params, change: Callable[[str], str]) -> Params:
        return {
            name: Raw(bytes(self._readable(raw, change))) if name in _ASKED and self.may_mask(bytes(raw)) else raw
            for name, raw in params.items()
        }

    def _readable(self, raw: Buffer, change: Callable[[str], str], depth: int = 0) -> Buffer:
        """JSON of the protocol's own making, masked where it is for reading."""
        try:
            fields = reading.few_members(raw)
        except envelopes.TooManyMembers:
            # Nobody's words for anything: all of it is searched.
            return change_strings(raw, change, keys=True)
        if fields is None:
            found = reading.few_items(raw) if depth < _DEEPEST else None
            if found is None:
                return change_strings(raw, change)
            items, others = found
            if others:
                return change_strings(raw, change, keys=True)
            masked = [self._readable(item, change, depth + 1) for item in items]
            return raw if all(map(is_, masked, items)) else b"[" + b",".join(masked) + b"]"
        encoded = "blob" if "blob" in fields else "data" if envelopes.text(fields.get("type")) in _ENCODED else ""
        changed: dict[str, Buffer] = {}
        for name, value in fields.items():
            if name in _UNTOUCHED or name == encoded:
                continue
            if name == "inputRequests":
                new = self._questions(value, change)
            elif (name in _NESTED and depth < _DEEPEST) or (name in _OUTCOMES and not depth):
                new = self._readable(value, change, depth + 1)
            else:
                new = change_strings(value, change, keys=name in _FREE)
            if new is not value:
                changed[name] = new
        return envelopes.object_of({**fields, **changed}.items()) if changed else raw

    def _questions(self, raw: Raw, change: Callable[[str], str]) -> Buffer:
        """What a stateless caller is asked: key → method and params."""
        entries: dict[str, Buffer] = {}
        for key, entry in (envelopes.members(raw) or {}).items():
            fields: dict[str, Buffer] = {**(envelopes.members(entry) or {})}
            params = envelopes.members(fields.get("params", b""))
            if params is not None:
                fields["params"] = envelopes.object_of(self._asked(params, change).items())
            entries[key] = envelopes.object_of(fields.items())
        return envelopes.object_of(entries.items())

    # --- texts --------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """The text, masked."""
        return self._change()(text)

    def _change(self) -> Callable[[str], str]:
        """What masks the texts of one message, in the time that one message may take."""
        return partial(self._masked, Search(self._patterns) if self._patterns else None)

    def _masked(self, search: Search | None, text: str) -> str:
        if text in _WORDS:
            return text
        if self._literals and any(has(text, literal) for literal in self._literals):
            text = replaced(self._any_literal, text, lambda match: self._literals[match[0]])
        for name, kind in self._kinds.items():
            if kind.may_be_in(text):
                text = kind.masked(text, f"[redacted: {name}]")
        return text if search is None else search.masked(text)


def _is_long(raw: bytes, times: int = 1) -> bool:
    return len(raw) > _LONG * times or raw.count(b'"') > 2 * _MOST_STRINGS * times


def _commonness(character: str) -> int:
    """How often a character is met in JSON, roughly."""
    return 3 if character.islower() else 2 if character in ".,:-" else 1 if character.isdigit() else 0


def _spellings(secret: str) -> set[str]:
    """A secret as it is, in a URL, and inside JSON that stands in a text."""
    escaped, ascii_only = envelopes.encode(secret)[1:-1].decode(), json.dumps(secret)[1:-1]
    return {secret, quote(secret, safe=""), escaped, ascii_only, ascii_only.replace("/", r"\/")}


class Masking(Middleware):
    """What `redact` and `secrets` have in common: everything that goes out to the caller is masked."""

    plain = True

    def __init__(self, masker: Masker, listed: Masker) -> None:
        """Mask with `masker`, and in lists with `listed`."""
        self._masker = masker
        self._listed = listed

    async def any_request(self, request: Request, go: Next) -> Result:
        """Go on, and mask the outcome."""
        masker = self._listed if request.method in _LISTS else self._masker
        try:
            result = await go(self.inward(request))
        except RpcError as error:
            if _is_long(error.raw if isinstance(error, UpstreamSaid) else error.message.encode()):
                await Aside(partial(masker.error, error))
            else:
                masker.error(error)
            raise
        raw = result.raw
        if len(raw) > reading.LONG or (len(raw) > _LARGE and masker.may_mask(raw)) or masker.may_take_long(raw):
            raw = await Aside(partial(masker.result, raw))
        else:
            raw = masker.result(raw)
        return result if raw is result.raw else Result(raw)

    def inward(self, request: Request) -> Request:
        """What goes on to the server."""
        return request

    def notice(self, request: Request, params: dict[str, Buffer]) -> dict[str, Buffer]:
        """Mask progress and log messages."""
        del request
        return self._masker.notice(params)

    def ask(self, request: Request, ask: ServerRequest) -> ServerRequest:
        """Mask questions to the user and to the user's model."""
        del request
        ask.params = self._masker.question(ask.params)
        return ask
