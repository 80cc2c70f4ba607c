"""What must hold of every reader of foreign bytes, whatever the bytes. Each target takes bytes and asserts a law.

`tests/proof/test_fuzz.py` tries a few thousand inputs in each run of the tests, `make fuzz` goes on for as long as
you like, led by coverage. What either finds becomes a file in `seeds/`, so that it is tried for ever.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec
from msgspec import Raw

from muxway.catalog.build import Source, assign_prefixes, build
from muxway.catalog.model import NativeTool
from muxway.catalog.naming import SEPARATORS, Naming
from muxway.catalog.shaping import Shaping
from muxway.clients.authenticator import Rejected
from muxway.composed.evaluation import StepOutcome, StepScope, Unfit, fill, holds, read_result
from muxway.config import Config, load_config, parse_config
from muxway.config.expand import Scope as Names
from muxway.config.expand import expand
from muxway.config.templates import BadTemplate, parse_condition, parse_template, parse_text
from muxway.errors import ConfigError, ParseError
from muxway.identity.challenges import Challenge, read_challenge
from muxway.middleware.builtin.masking import Masker
from muxway.middleware.builtin.patterns import KINDS
from muxway.search import answers
from muxway.search.index import Index
from muxway.wire import envelopes, headers, large, reading
from muxway.wire.envelopes import ABSENT, Envelope, NotAnEnvelope
from muxway.wire.framing import LineFramer, Oversized
from muxway.wire.sse import SseParser

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.catalog.model import Route
    from muxway.config.auth import AuthSettings
    from muxway.identity.jwks import IssuerKeys

ENVIRON = {"HOME": "/home/me", "TOKEN": "s3cr3t-t0ken"}
SECRET = "hunter2-hunter2"
_SCRATCH = tempfile.TemporaryDirectory(prefix="muxway-fuzz-")
_LONE = re.compile(r"\\u[dD][89a-fA-F]")


def _taken(data: bytes, count: int) -> tuple[list[int], bytes]:
    """Choices from the first bytes, and the rest; few bytes choose 0."""
    return [*data[:count].ljust(count, b"\0")], data[count:]


def _chopped(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut * len(data) // 255 for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


# --- the wire ---------------------------------------------------------------------------------


def framer(data: bytes) -> None:
    """Any split gives the same lines; none is over the limit; what is skipped is not kept."""
    (size, *cuts), stream = _taken(data, 5)
    limit = 1 + size // 4

    def lines(chunks: list[bytes]) -> tuple[list[bytes | None], bytes]:
        reader = LineFramer(limit)
        found = [line for chunk in chunks for line in reader.feed(chunk)]
        return [None if isinstance(line, Oversized) else bytes(line) for line in found], reader.end()

    whole = lines([stream])
    assert whole == lines(_chopped(stream, cuts)) == lines([stream[at : at + 1] for at in range(len(stream))])
    *ended, rest = stream.split(b"\n")
    expected = [line if len(line) <= limit else None for line in ended if line]
    if len(rest) > limit:
        # A line that never ends is reported when it is too long, not when it is over.
        expected, rest = [*expected, None], b""
    assert whole == (expected, rest)


def stepwise(data: bytes) -> None:
    """A message that is opened in steps is what it is at one look, wherever it is cut."""
    (step,), frame = _taken(data, 1)
    known = _allow((ParseError, NotAnEnvelope), envelopes.decode, frame)
    steps = large.opening(frame)
    with mock.patch.object(large, "_STEP", 16 + step), mock.patch.object(reading, "_STEP", 16 + step):
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                found: large.Opened = stop.value
                break
    assert (known is None) == (not isinstance(found, Envelope))
    if known is not None and isinstance(found, Envelope):
        assert (bytes(found.id), found.method) == (bytes(known.id), known.method)
        assert (bytes(found.result), bytes(found.error)) == (bytes(known.result), bytes(known.error))
        assert {name: bytes(raw) for name, raw in (found.params or {}).items()} == {
            name: bytes(raw) for name, raw in (known.params or {}).items()
        }


def classifier(data: bytes) -> None:
    """A frame is an envelope or one of two errors, and the standard library agrees on what it says."""
    envelopes.salvage(data)
    envelopes.visible_ids(data)
    envelopes.likely_id(data)
    envelopes.has_huge_integer(data)
    envelopes.is_batch(data)
    _allow(ParseError, envelopes.decode_batch, data)
    _allow((ParseError, NotAnEnvelope), envelopes.decode_strict, data)
    envelope = _allow((ParseError, NotAnEnvelope), envelopes.decode, data)
    known = _standard(data)
    if envelope is not None and known is not None:
        assert known["jsonrpc"] == "2.0"
        assert known.get("method") == envelope.method
        assert ("id" in known) == (envelope.id is not ABSENT)
        if "id" in known:
            assert _read(bytes(envelope.id).decode()) == known["id"]
        assert ("result" in known) == (envelope.result is not ABSENT)
        assert set(envelope.params or ()) == set(known.get("params") or ())
    elif known is not None and known.get("jsonrpc") == "2.0":
        well_formed = isinstance(known.get("method", ""), str | None) and isinstance(
            known.get("params", {}), dict | None
        )
        assert not well_formed, "the standard library reads a message here"
    elif envelope is not None:
        # What only we accept: numbers and names that the other cannot hold, and names that stand twice.
        assert _standard(data, strict=False) is not None, "the standard library reads no JSON here"


def _standard(data: bytes, *, strict: bool = True) -> dict[str, Any] | None:
    """The object as `json` reads it; None if it is none. If strict, also where two readers may well differ."""

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        if strict and len(dict(members)) < len(members):
            raise ValueError("a name stands twice")
        return dict(members)

    try:
        text = data.decode()
        if strict and (_LONE.search(text) or "\ufeff" in text[:1] or text.count("[") + text.count("{") > 100):
            return None
        read = _read(text, pairs)
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


@dataclass(frozen=True)
class Digits:
    """A long number as it is written: no text, so that nobody takes it for the name of a method."""

    text: str


def _read(text: str, pairs: Callable[[list[tuple[str, Any]]], dict[str, Any]] = dict) -> Any:
    """The standard library's reading. A number that it cannot hold or refuses for its length is its digits."""

    def constant(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    def number(text: str) -> object:
        return Digits(text) if len(text) > 300 else float(text)

    def integer(text: str) -> object:
        return Digits(text) if len(text) > 300 else int(text)

    return json.loads(text, object_pairs_hook=pairs, parse_constant=constant, parse_int=integer, parse_float=number)


def _allow(errors: Any, function: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return function(data)
    except errors:
        return None


def sse(data: bytes) -> None:
    """Any split gives the same events; no event is over the limit, and the limit cuts the same ones."""
    (size, *cuts), stream = _taken(data, 5)
    for limit in (size // 4, 1 << 20):

        def events(chunks: list[bytes], limit: int = limit) -> list[object]:
            parser = SseParser(limit)
            return ["cut" if event.cut else event for chunk in chunks for event in parser.feed(chunk)]

        # Whether a CR at the very end is half of a CRLF is not known yet: the rest decides.
        ended = stream.rstrip(b"\r")
        assert events([ended]) == events(_chopped(ended, cuts))
        assert events([ended]) == events([ended[at : at + 1] for at in range(len(ended))])


def header_codec(data: bytes) -> None:
    """Any value is read or refused, any text comes back as it was, and nothing of it can end a header."""
    headers.decode_value(data.decode("latin-1"))
    text = data.decode("utf-8", "replace")
    written = headers.encode_value(text)
    assert written.isascii()
    assert not written or written.isprintable()
    assert headers.decode_value(written) == text
    headers.is_session_id(text)
    schema = _json(data)
    try:
        headers.param_values(headers.param_headers(schema), {"a": schema})
    except headers.BadAnnotation:
        return


# --- names ------------------------------------------------------------------------------------


def naming(data: bytes) -> None:
    """Every tool has one public name, fit for its rule, and the name leads back to the tool."""
    (which, *_), rest = _taken(data, 1)
    rule = Naming.of(SEPARATORS[which % 3], 16 + which // 3 if which > 8 else None)
    offers: dict[str, list[str]] = {}
    for number, line in enumerate(rest.decode("utf-8", "replace").split("\n")[:12]):
        upstream, _, native = line.partition("\t")
        tools = offers.setdefault(upstream or "up", [])
        if (name := native or f"tool{number}") not in tools:
            tools.append(name)
    prefixes = assign_prefixes(rule, dict.fromkeys(offers))
    sources = [
        Source(
            upstream=name,
            prefix=prefixes[name],
            tools=[NativeTool(tool, {"inputSchema": Raw(b"{}")}) for tool in tools],
        )
        for name, tools in offers.items()
    ]
    catalog = build(rule, sources)
    for public, route in catalog.routes.items():
        assert len(public) <= rule.limit
        assert public == rule.legal(public)
        found = catalog.find(public).route
        assert found is not None
        assert (found.upstream, found.native) == (route.upstream, route.native)
    # Some tools are left out for what they are called, but none stands there twice.
    kept = [(route.upstream, route.native) for route in catalog.routes.values()]
    assert len({*kept}) == len(kept)


# --- the configuration ------------------------------------------------------------------------


def config(data: bytes) -> None:
    """Any file, in any of the formats, is a configuration or a `ConfigError` that lists what is wrong."""
    (which, *_), text = _taken(data, 1)
    file = Path(_SCRATCH.name, ("c.json", "c.toml", "c.yaml", "c.jsonc", "c")[which % 5])
    file.write_bytes(text)
    _configured(lambda: load_config(file, environ=ENVIRON))
    value = _json(text)
    if isinstance(value, dict):
        _configured(lambda: parse_config(value, environ=ENVIRON))


def _configured(load: Callable[[], Config]) -> None:
    try:
        loaded = load()
    except ConfigError as error:
        assert error.details
        assert all(str(problem).encode("utf-8", "surrogatepass") for problem in error.details)
    else:
        assert isinstance(loaded, Config)


def expansion(data: bytes) -> None:
    """Variables: any text is expanded or found missing or bad; what is put in is not looked at again."""
    text = data.decode("utf-8", "replace")
    outcome = expand(text, Names(ENVIRON, Path("/work")))
    if "$" not in text and "{" not in text:
        assert outcome.text == text


# --- what users compose -----------------------------------------------------------------------


def templates(data: bytes) -> None:
    """Templates and conditions of composed tools: read or refused; filled or unfit. Nothing else comes out."""
    text = data.decode("utf-8", "replace")
    scope = StepScope({"a": Raw(b'{"b":[1,"x",null]}')}, _Anything(), item=Raw(b'"i"'))
    with contextlib.suppress(BadTemplate, Unfit):
        template = parse_text(text)
        json.loads(envelopes.encode(fill(template, scope)))
        fill(template, scope, strict=True)
    with contextlib.suppress(BadTemplate, Unfit):
        holds(parse_condition(text), scope)
    wrong: list[str] = []
    value = _json(data)
    try:
        filled = fill(parse_template(value, (), lambda _, why: wrong.append(why)), scope)
    except Unfit:
        return
    if not wrong:
        json.loads(envelopes.encode(filled))
    # Results have been read as UTF-8 before.
    json.loads(envelopes.encode(read_result(text.encode())))


class _Anything(dict[str, StepOutcome]):
    def __missing__(self, step: str) -> StepOutcome:
        return StepOutcome(Raw(b'{"a":[{"b":1.5}],"c":"text"}'))


def shaping(data: bytes) -> None:
    """JMESPath on results: any expression is refused by the configuration or gives a result, of any result."""
    expression, _, rest = data.decode("utf-8", "replace").partition("\n")
    entry = {"command": "x", "shape": {"t": {"result": expression}}}
    try:
        parse_config({"mcpServers": {"s": entry}}, environ=ENVIRON)
    except ConfigError:
        return
    for structured in (rest.encode(), b'{"a":[{"b":2,"c":"x"},{"b":1}],"d":{"e":null}}'):
        if _json(structured) is not None:
            flat = structured.translate(bytes.maketrans(b"\r\n\t", b"   "))
            result = b'{"content":[],"structuredContent":%s}' % flat
            json.loads(bytes(Shaping(label="l", tool="t", result=expression).reshape(result)))


# --- secrets ----------------------------------------------------------------------------------


def redactor(data: bytes) -> None:
    """Whatever a result looks like, it stays JSON and no string of it holds the secret."""
    text = data.decode("utf-8", "replace")
    masker = Masker({SECRET: "***"}, [*KINDS])
    assert SECRET not in masker.text(text)
    value = _json(data)
    if value is None:
        masker.result(text.encode())
        return
    block = {"type": "text", "text": f"{text}{SECRET}"}
    for written in (envelopes.encode, lambda value: json.dumps(value).encode()):
        try:
            raw = written({"content": [block], "structuredContent": {"given": value, "also": [SECRET]}})
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError, UnicodeError):
            return
        masked = json.loads(masker.result(raw))
        assert SECRET not in json.dumps(masked["content"])
        assert SECRET not in json.dumps(masked["structuredContent"])


def _json(data: bytes) -> Any:
    """The value, if it is JSON for both readers; None if not."""
    try:
        json.loads(data)
        return envelopes.value(data)
    except (ValueError, RecursionError, ParseError):
        return None


# --- who calls --------------------------------------------------------------------------------

ISSUER = "https://login.example.com"
AUDIENCE = "https://mcp.example.com/mcp"


def token_header(data: bytes) -> None:
    """No bytes are a good token, whatever their head says, and none do more than be refused."""
    from muxway.identity.verify_jwt import UnknownKey, check_jwt

    keys, settings = _issuer()
    claims = b'{"iss":"%b","sub":"ann","aud":"%b","exp":9999999999}' % (ISSUER.encode(), AUDIENCE.encode())
    parts = [urlsafe_b64encode(part).rstrip(b"=") for part in (data, claims, b"signature")]
    for token in (data, b".".join(parts), b".".join((data, *parts[1:])), b".".join((*parts[:2], data))):
        with contextlib.suppress(UnknownKey):
            verdict = check_jwt(token, keys, settings, 1e9)
            assert isinstance(verdict, Rejected)
            assert verdict.status == 401


def token_claims(data: bytes) -> None:
    """Whatever an issuer writes into a token: it is refused, or says who somebody is, in texts."""
    from muxway.identity.verify_jwt import check_claims

    _, settings = _issuer()
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return
    whole = {"iss": ISSUER, "sub": "ann", "aud": AUDIENCE, "exp": 2e9}
    for claims in (said, {**whole, **said} if isinstance(said, dict) else whole):
        if not isinstance(claims, dict):
            continue
        verdict = check_claims(claims, settings, 1e9)
        if isinstance(verdict, Rejected):
            continue
        identity = verdict.identity
        texts = (
            identity.user,
            identity.subject,
            identity.client,
            *identity.groups,
            *identity.scopes,
            *verdict.audience,
        )
        assert all(isinstance(text, str) for text in texts)
        assert identity.subject or identity.client
        assert claims["iss"] == ISSUER
        assert len(verdict.principal) == 32


def challenge(data: bytes) -> None:
    """Any `WWW-Authenticate` is read, soon, and what is written as RFC 9110 says comes back as it was."""
    text = data.decode("latin-1")
    for values in ([text], text.split("\n"), [f"Bearer {text}", text]):
        told = read_challenge(values)
        assert told.bearer or told == Challenge()
        assert all(isinstance(one, str | None) for one in (told.resource_metadata, told.error))
        assert told.scope is None or all(one.split() == [one] for one in told.scope)
        assert len(set(told.scope or ())) == len(told.scope or ())
    quoted = text[:1000].replace("\\", "\\\\").replace('"', '\\"')
    written = f'Basic realm="{quoted}", Bearer error="{quoted}", resource_metadata="{quoted}"'
    assert read_challenge([written])[1::2] == (text[:1000], text[:1000])


@cache
def _issuer() -> tuple[IssuerKeys, AuthSettings]:
    from joserfc.jwk import ECKey

    from muxway.identity.jwks import IssuerKeys

    class OneKey(IssuerKeys):
        """Knows one key, and asks nobody for others."""

        def find(self, kid: str | None, algorithm: str) -> ECKey | None:
            return public if (kid, algorithm) == ("k1", "ES256") else None

    public, keys = ECKey.generate_key("P-256", auto_kid=False), OneKey(ISSUER)
    config = parse_config(
        {
            "mcpServers": {"off": {"command": "none"}},
            "gateway": {"auth": {"issuer": ISSUER, "claims": {"user": "who.name", "groups": "who.groups"}}},
        }
    )
    assert config.gateway.auth is not None
    return keys, config.gateway.auth


def search(data: bytes) -> None:
    """Any arguments of `search_tools` are a search or a reason, and any query has an answer within its limit."""
    (limit, flags), text = _taken(data, 2)
    index, routes = _searched()
    wanted = answers.asked(Raw(text)) if _is_json(text) and envelopes.is_object(text) else None
    query = wanted.query if isinstance(wanted, answers.SearchQuery) else text.decode("utf-8", "replace")
    most = 1 + limit % answers.MOST
    found = index.search(query, most, server="a" if flags & 1 else None)
    assert found == index.search(query, most, server="a" if flags & 1 else None)
    assert len(found.matches) <= min(most, found.total)
    told = answers.hits([routes[one.name] for one in found.matches], found.total, most, tiers=bool(flags & 2))
    assert len(told.encode()) <= answers.LARGEST
    assert len(answers.nothing(query, {"a": 1})) < 1000


def _is_json(text: bytes) -> bool:
    """Whether it is JSON: nothing else gets as far as this."""
    try:
        msgspec.json.decode(text, type=Raw)
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return False
    return True


@cache
def _searched() -> tuple[Index, dict[str, Route]]:
    schema = Raw(b'{"type":"object","properties":{"city":{"type":"string"},"when":{"$ref":"#/x"}}}')
    tools = {"get_weather": "Weather of a city", "天気": "天気予報を取得", "createIssue": "Open an issue", "é": "naïve"}
    natives = [
        NativeTool(name, {"inputSchema": schema, "description": Raw(envelopes.encode(said))})
        for name, said in tools.items()
    ]
    sources = [Source(upstream=server, prefix=server, tools=natives) for server in ("a", "b")]
    routes = dict(build(Naming.of("__", 64), sources).routes)
    index = Index()
    for _ in index.follow(routes):
        pass
    return index, routes


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        framer,
        stepwise,
        classifier,
        sse,
        header_codec,
        naming,
        config,
        expansion,
        templates,
        shaping,
        redactor,
        token_header,
        token_claims,
        challenge,
        search,
    )
}
