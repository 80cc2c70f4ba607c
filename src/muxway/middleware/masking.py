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
from math import inf
from operator import is_
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from muxway.errors import RpcError, UpstreamSaid
from muxway.log import EventLog
from muxway.middleware.base import Middleware, Result
from muxway.protocol import messages
from muxway.protocol.messages import Raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from muxway.core.asks import Ask
    from muxway.middleware.base import Next, Request
    from muxway.protocol.messages import Buffer, Params

SHORTEST: Final = 4
"""Characters of the shortest secret that is masked: hiding every `ab` would hide nothing and spoil everything."""
_PIECES: Final = ((4096, 1024), (4096, 1024), (128, 256), (32, 128))
"""For so many open-ended repetitions of a user's pattern: the characters it is begun at in one go, and those it sees
beyond. Each repetition multiplies the time by what is seen, and while a pattern runs nothing can stop it."""
_FEW: Final = 10
_MOST_WAYS: Final = 1024
_PATIENCE: Final = 0.25
"""Seconds all of a user's patterns may take for one message. What is not searched by then is not shown."""
_WITHHELD: Final = "[redacted: too slow to search]"

# Nothing in this can be matched in two ways, so it takes time in proportion to the text.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_COLON: Final = re.compile(rb"\s*+:")
_BACKSLASH: Final = ord("\\")
_PLAIN_RUN: Final = re.compile(r"[A-Za-z0-9_.+=-]+")
_TOKEN: Final = re.compile(
    r"\\."
    r"|\[\^?\]?(?:[^\]\\]|\\.)*+\]"
    r"|\((?:\?(?:P?<\w+>|<?[=!]|P=\w+|#[^)]*|\(\w+\)|>|[a-zA-Z-]*:?))?"
    r"|(?P<repeat>[*+?]|\{(?:\d+(?:,\d*)?|,\d+)\})(?P<mode>[?+])?"
    r"|.",
    re.DOTALL,
)
"""A piece of a regular expression: a class, the opening of a group, a repetition, or a character."""

_WORDS: Final = frozenset(("text", "image", "audio", "resource", "resource_link", "user", "assistant"))
"""The protocol's own words. A pattern that happens to fit one must not make a result unreadable."""
_UNTOUCHED: Final = frozenset(("requestState", "nextCursor", "resultType"))
"""Members of results that are not for reading."""
_FREE: Final = frozenset(("structuredContent", "_meta", "data"))
"""Members in which the keys are anybody's choice, too."""
_NESTED: Final = frozenset(("content", "contents", "messages", "resource"))
_ENCODED: Final = frozenset(("image", "audio"))
_DEEPEST: Final = 6
_ASKED: Final = frozenset(("message", "messages", "systemPrompt"))
"""What of a question is for reading. The rest must come through: a masked URL leads nowhere."""
_TOLD: Final = frozenset(("message", "data", "logger", "_meta"))
"""What of a notice is for reading."""
_LISTS: Final = frozenset(("tools/list", "resources/list", "resources/templates/list", "prompts/list"))

log = EventLog("middleware")


class Kind(NamedTuple):
    """Something that can be recognised by its look."""

    pattern: re.Pattern[str]
    marks: tuple[str, ...]
    """Texts of which one is in everything of this kind, and in its JSON: to look for them takes next to no time."""
    check: Callable[[str], bool] | None = None
    """Whether a match is one indeed."""

    def may_be_in(self, text: str) -> bool:
        """Whether the pattern is worth running."""
        return any(mark in text for mark in self.marks)


def _luhn(text: str) -> bool:
    digits = [int(character) for character in reversed(text) if character.isdigit()]
    doubled = (digit * 2 - 9 if digit > 4 else digit * 2 for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"

KINDS: Final[Mapping[str, Kind]] = {
    "email": Kind(
        re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}+@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9-])"), ("@",)
    ),
    "credit_card": Kind(
        re.compile(r"(?<![\d.-])(?=[3-6]|2[2-7])\d(?:[ -]?\d){12,18}(?![\d-])"), ("2", "3", "4", "5", "6"), _luhn
    ),
    "aws_key": Kind(re.compile(r"(?<![A-Z0-9])A[KS]IA[A-Z0-9]{16}(?![A-Z0-9])"), ("AKIA", "ASIA")),
    "github_token": Kind(
        re.compile(r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_\w{22,255})"),
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    ),
    "private_key": Kind(
        re.compile(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]|-(?!----END)){0,16000}+(?:-----END [A-Z ]{0,40}-----)?"
        ),
        ("PRIVATE KEY-----",),
    ),
    "jwt": Kind(re.compile(r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*+"), ("eyJ",)),
    "ipv4": Kind(re.compile(rf"(?<![\w.]){_OCTET}(?:\.{_OCTET}){{3}}(?!\w|\.\d)"), (".",)),
}
"""Name → what it looks like."""


class Pattern(NamedTuple):
    """A user's own pattern. It is shown by its number: it may be made of a secret."""

    number: int
    regex: re.Pattern[str]
    piece: int
    """Characters of a text it is begun at before the clock is looked at."""
    reach: int
    """Characters it sees beyond its piece: the longest match that is found wherever it stands."""


def compiled(patterns: Sequence[str]) -> list[Pattern]:
    """A user's patterns.

    Raises:
        ValueError: one is none, fits the empty text, or is of the kind that can take forever.
    """
    made: list[Pattern] = []
    for number, pattern in enumerate(patterns, 1):
        try:
            regex = re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"pattern {number} is no regular expression: {error}") from None
        if regex.match("") is not None:
            raise ValueError(f"pattern {number} fits the empty text, so it fits everywhere; make it need something")
        shape = _Shape(pattern)
        if shape.tangled or shape.open_ended >= len(_PIECES) or shape.ways > _MOST_WAYS:
            why = "repeats what can be repeated in several ways" if shape.tangled else "has too many repetitions"
            raise ValueError(
                f"pattern {number} {why}, which takes forever on some texts; make them possessive: "
                "`a++`, `a*+`, `a{1,3}+` and `(…)++` never try a second way"
            )
        made.append(Pattern(number, regex, *_PIECES[shape.open_ended]))
    return made


class _Shape:
    """What of a pattern's text decides how long it can take. Possessive repetitions do no harm and do not count."""

    def __init__(self, pattern: str) -> None:
        self.tangled = False
        """Whether a group that can fit in several ways is repeated: `(a+)+`, `(a|b)*`."""
        self.open_ended = 0
        """How many repetitions there are that have no end, or a far one."""
        self.ways = 1
        """In how many ways all the others can fit together."""
        varies = [False]
        """For each open group, whether it can fit in several ways."""
        group = False
        """Whether what comes before this place is a group that can."""
        for token in _TOKEN.finditer(pattern):
            repeat = token["repeat"]
            if repeat is not None and token["mode"] == "+":
                group = False
                continue
            varies[-1] |= group
            if repeat is not None:
                self._count(repeat, group)
                varies[-1] |= not repeat.strip("{}").isdigit()
            elif token[0].startswith("("):
                varies.append(False)
            elif token[0] == "|":
                varies[-1] = True
            group = token[0] == ")" and len(varies) > 1 and varies.pop()

    def _count(self, repeat: str, group: bool) -> None:
        low, _, high = repeat.strip("{}").partition(",")
        if repeat == "?":
            self.ways *= 2
            return
        self.tangled |= group
        if repeat in "*+" or repeat.endswith(",}") or int(high or low) - int(low or 0) > _FEW:
            self.open_ended += 1
        else:
            self.ways *= int(high or low) - int(low or 0) + 1


def change_strings(raw: Buffer, change: Callable[[str], str], *, keys: bool = False) -> Buffer:
    """A JSON text with its strings changed; the very object that came in if nothing was.

    Keys that were different stay different.
    """
    text = bytes(raw)
    pieces: list[bytes] = []
    renamed: dict[str, str] = {}
    used: Counter[str] = Counter()
    done = 0
    for start, end, is_key in _strings(text):
        if is_key and not keys:
            continue
        # The decoder is needed for escapes only.
        string = text[start:end]
        old = messages.text(string) or "" if b"\\" in string else string[1:-1].decode()
        new = change(old)
        if new is old or new == old:
            continue
        if is_key:
            if old not in renamed:
                used[new] += 1
                renamed[old] = new if used[new] == 1 else f"{new} ({used[new]})"
            new = renamed[old]
        pieces += (text[done:start], messages.encode(new))
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


class Masker:
    """Knows what to mask, and with what."""

    def __init__(
        self,
        literals: Mapping[str, str],
        kinds: Sequence[str] = (),
        patterns: Sequence[Pattern] = (),
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
        if self._blind or (b"\\" in raw and (b"\\u" in raw or b"\\/" in raw)):
            return True
        # To look for one character is many times quicker than for several, and most often enough.
        return any(rare in raw and mark in raw for rare, mark in self._marks)

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
            error.data = messages.value(change_strings(messages.encode(error.data), change, keys=True))
        if isinstance(error, UpstreamSaid):
            error.raw = bytes(self._readable(error.raw, change))

    def notice(self, params: dict[str, Buffer]) -> dict[str, Buffer]:
        """The params of a notice, masked."""
        change = self._change()
        return {
            name: change_strings(raw, change, keys=True) if name in _TOLD and self.may_mask(bytes(raw)) else raw
            for name, raw in params.items()
        }

    def question(self, params: Params) -> Params:
        """The params of a question, masked where people and models read it."""
        return self._asked(params, self._change())

    def _asked(self, params: Params, change: Callable[[str], str]) -> Params:
        return {
            name: Raw(bytes(self._readable(raw, change))) if name in _ASKED and self.may_mask(bytes(raw)) else raw
            for name, raw in params.items()
        }

    def _readable(self, raw: Buffer, change: Callable[[str], str], depth: int = 0) -> Buffer:
        """JSON of the protocol's own making, masked where it is for reading."""
        fields = messages.members(raw)
        if fields is None:
            items = messages.items(raw) if depth < _DEEPEST else None
            if items is None:
                return change_strings(raw, change)
            masked = [self._readable(item, change, depth + 1) for item in items]
            return raw if all(map(is_, masked, items)) else b"[" + b",".join(masked) + b"]"
        encoded = "blob" if "blob" in fields else "data" if messages.text(fields.get("type")) in _ENCODED else ""
        changed: dict[str, Buffer] = {}
        for name, value in fields.items():
            if name in _UNTOUCHED or name == encoded:
                continue
            if name == "inputRequests":
                new = self._questions(value, change)
            elif name in _NESTED and depth < _DEEPEST:
                new = self._readable(value, change, depth + 1)
            else:
                new = change_strings(value, change, keys=name in _FREE)
            if new is not value:
                changed[name] = new
        return messages.object_of({**fields, **changed}.items()) if changed else raw

    def _questions(self, raw: Raw, change: Callable[[str], str]) -> Buffer:
        """What a stateless caller is asked: key → method and params."""
        entries: dict[str, Buffer] = {}
        for key, entry in (messages.members(raw) or {}).items():
            fields: dict[str, Buffer] = {**(messages.members(entry) or {})}
            params = messages.members(fields.get("params", b""))
            if params is not None:
                fields["params"] = messages.object_of(self._asked(params, change).items())
            entries[key] = messages.object_of(fields.items())
        return messages.object_of(entries.items())

    # --- texts --------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """The text, masked."""
        return self._change()(text)

    def _change(self) -> Callable[[str], str]:
        """What masks the texts of one message, in the time that one message may take."""
        return partial(self._masked, perf_counter() + _PATIENCE if self._patterns else inf)

    def _masked(self, deadline: float, text: str) -> str:
        if text in _WORDS:
            return text
        if self._literals and any(literal in text for literal in self._literals):
            text = self._any_literal.sub(lambda match: self._literals[match[0]], text)
        for name, kind in self._kinds.items():
            if kind.may_be_in(text):
                text = kind.pattern.sub(partial(_checked, kind.check, f"[redacted: {name}]"), text)
        for pattern in self._patterns:
            text = _search(pattern, text, deadline)
        return text


def _commonness(character: str) -> int:
    """How often a character is met in JSON, roughly."""
    return 3 if character.islower() else 2 if character in ".,:-" else 1 if character.isdigit() else 0


def _checked(check: Callable[[str], bool] | None, mask: str, match: re.Match[str]) -> str:
    return mask if check is None or check(match[0]) else match[0]


def _spellings(secret: str) -> set[str]:
    """A secret as it is, in a URL, and inside JSON that stands in a text."""
    escaped, ascii_only = messages.encode(secret)[1:-1].decode(), json.dumps(secret)[1:-1]
    return {secret, quote(secret, safe=""), escaped, ascii_only, ascii_only.replace("/", r"\/")}


def _search(pattern: Pattern, text: str, deadline: float) -> str:
    """Mask what fits a user's pattern, a piece of the text at a time; what is not searched in time is withheld."""
    shown: list[str] = []
    done = 0
    for start in range(0, len(text), pattern.piece):
        if perf_counter() > deadline:
            log.warning("a pattern is too slow; a part of a message was withheld", pattern=pattern.number)
            return "".join((*shown, text[done : max(start, done)], _WITHHELD))
        end = start + pattern.piece
        for match in pattern.regex.finditer(text, max(start, done), end + pattern.reach):
            if match.start() >= end:
                break
            shown += (text[done : match.start()], "[redacted]")
            done = match.end()
    return "".join((*shown, text[done:])) if shown else text


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
            masker.error(error)
            raise
        raw = masker.result(result.raw)
        return result if raw is result.raw else Result(raw)

    def inward(self, request: Request) -> Request:
        """What goes on to the server."""
        return request

    def notice(self, request: Request, params: dict[str, Buffer]) -> dict[str, Buffer]:
        """Mask progress and log messages."""
        del request
        return self._masker.notice(params)

    def ask(self, request: Request, ask: Ask) -> Ask:
        """Mask questions to the user and to the user's model."""
        del request
        ask.params = self._masker.question(ask.params)
        return ask
