"""What can go wrong with one request to a remote server, in words that a person can act on.

Bodies of refusals are shown in part, because they often say what is wrong; never a secret that was sent along.
"""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING, Final

from muxway.log import masker, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muxway.errors import Reason

CONNECT: Final = 5.0
"""Seconds for a connection to be made."""
_SHOWN: Final = 160
_UNAUTHORIZED: Final = 401
_TOO_MANY: Final = 429
_AWAY: Final = frozenset((502, 503, 504))
"""Statuses that say that nobody is there to answer. A 500 is the answer to one request, by somebody."""
_LONGEST_WAIT: Final = 5
"""Digits of a Retry-After that still make sense."""
_HTML: Final = re.compile(rb"\s*(?:<!doctype html|<html|<head|<body)", re.IGNORECASE).match
_TITLE: Final = re.compile(rb"<title[^>]*>([^<]{1,200})", re.IGNORECASE).search

_ADVICE: Final = {
    401: "it wants other credentials: set or renew `headers`, such as Authorization, in its configuration, or try "
    "`muxway login`",
    403: "it does not allow this: check the credentials in `headers` and what they may do",
    404: "nothing is there: check the path of `url`",
    405: "it does not accept such requests: check the path of `url`, and `type` if it is given",
    406: "it offers no format that muxway accepts",
    413: "the message is too large for it",
    421: "it does not answer to this host name",
    429: "it gets too many requests; try again later",
    500: "it has an internal error",
    502: "the proxy in front of it cannot reach it",
    503: "it is not available now; try again later",
    504: "the proxy in front of it got no answer in time",
}
_WANTS_LOGIN: Final = (
    "it needs an OAuth login: leave out the Authorization of `headers` and run `muxway login`, or renew it there"
)


class HttpTrouble(Exception):
    """One request failed. `what` continues a sentence that begins with `server "x"`."""

    def __init__(
        self, what: str, reason: Reason = "lost", *, broken: bool = False, retry_after: float | None = None
    ) -> None:
        """Trouble; `broken`: the server could not be reached or broke off, so that others would fare no better."""
        super().__init__(what)
        self.what = what
        self.reason: Reason = reason
        self.broken = broken
        self.retry_after = retry_after


_NO_ISSUER: Final = frozenset((18, 19, 20, 21))
"""Verdicts of OpenSSL (X509_V_ERR_…) on a certificate whose authority is not known."""


def tls_refusal(error: ssl.SSLError) -> str:
    """Why there is no TLS connection, or not any more."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = (error.verify_message or "unknown reason").rstrip(".")
        why = why if why[:2].isupper() else why[:1].lower() + why[1:]
        hint = "; if it is of an authority of your own, name that under `tls.ca`"
        return f"has no TLS certificate that can be trusted: {why}{hint if error.verify_code in _NO_ISSUER else ''}"
    if error.reason == "WRONG_VERSION_NUMBER":
        return "does not speak TLS there: is it http://, or another port?"
    alert = re.sub(r"^(SSL|TLS)V?[0-9]*_ALERT_", "", error.reason or "no reason given").replace("_", " ")
    return f"does not take the TLS connection ({alert.lower()})"


def refusal(
    status: int,
    body: bytes,
    secrets: Iterable[str],
    *,
    retry_after: str | None = None,
    challenge: str | None = None,
    more: str = "",
) -> HttpTrouble:
    """What a status other than success means, and the beginning of what came with it.

    `challenge` is its `WWW-Authenticate`, which tells of a server that wants a login (RFC 9728, 5.1).
    """
    words = f"answered with HTTP status {status}"
    advice = _ADVICE.get(status)
    if status == _UNAUTHORIZED and challenge is not None and "resource_metadata" in challenge.lower():
        advice = _WANTS_LOGIN
    if advice is not None:
        words = f"{words} ({advice})"
    wait = None
    if retry_after is not None and retry_after.isdecimal() and len(retry_after) <= _LONGEST_WAIT:
        wait = int(retry_after)
        words = f"{words}; it asks to wait {wait} s"
    shown = excerpt(body, secrets)
    words = (f"{words}: {shown}" if shown else words) + more
    reason: Reason = "overloaded" if status == _TOO_MANY else "lost"
    return HttpTrouble(words, reason, broken=status in _AWAY, retry_after=wait)


def excerpt(body: bytes, secrets: Iterable[str]) -> str:
    """The beginning of a body for people: one line, no control characters, no secrets, of a page its title."""
    if _HTML(body) is not None:
        title = _TITLE(body)
        body = b"a web page" + (b"" if title is None else b' titled "' + title[1].strip() + b'"')
    text = masker(secrets)(body.decode("utf-8", "replace"))
    text = printable(" ".join(text.split()))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
