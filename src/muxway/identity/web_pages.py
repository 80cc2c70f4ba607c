"""How our web pages look, and what every one of them tells the browser: no scripts, no frames, no copies."""

from __future__ import annotations

import base64
import hashlib
import string
from html import escape
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from muxway.clients.pages import PageAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

_STYLE: Final = """
:root{color-scheme:light dark;--line:#d8dde3;--soft:#5b6672;--go:#1f6feb;--ok:#1a7f37;--bad:#b42318;--paper:#fff;
--ink:#1b2733}
@media(prefers-color-scheme:dark){:root{--line:#36404b;--soft:#9aa7b4;--go:#4c8dff;--ok:#4cc06a;--bad:#ff7b6b;
--paper:#151b22;--ink:#e6edf3}}
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:3rem auto;padding:0 1rem;background:var(--paper);
color:var(--ink)}
header{display:flex;justify-content:space-between;align-items:baseline;gap:1rem;border-bottom:1px solid var(--line)}
h1{font-size:1.4rem;margin:.2rem 0 .6rem}h2{font-size:1.05rem;margin:0}
section{border:1px solid var(--line);border-radius:.6rem;padding:1rem;margin:1rem 0}
section>div{display:flex;justify-content:space-between;align-items:center;gap:1rem;flex-wrap:wrap}
p{margin:.4rem 0}.soft{color:var(--soft);font-size:.9rem;overflow-wrap:anywhere}
.ok{color:var(--ok)}.bad{color:var(--bad)}
form{display:inline}label{display:block;margin:.6rem 0 .2rem;font-size:.9rem}
input,button{font:inherit;padding:.35rem .6rem;border:1px solid var(--line);border-radius:.4rem;
background:transparent;color:inherit}
input{width:20rem;max-width:100%}button{cursor:pointer}
button.go{background:var(--go);border-color:var(--go);color:#fff}
code{font-size:.9em}
""".replace("\n", "")
_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS: Final = (
    ("content-type", "text/html; charset=utf-8"),
    ("cache-control", "no-store"),
    # Not `no-referrer`, with which browsers do not say either which page a form was on.
    ("referrer-policy", "same-origin"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    (
        "content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; frame-ancestors 'none'",
    ),
)


def show(status: int, title: str, body: str, headers: Sequence[tuple[str, str]] = ()) -> PageAnswer:
    """A page. The title is any text; the body is HTML, in which whatever is not ours has been escaped."""
    text = (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(title)} · muxway</title><style>{_STYLE}</style><body>{body}</body></html>"
    )
    return PageAnswer(status, text.encode(), [*_HEADERS, *headers])


def say(status: int, title: str, text: str, headers: Sequence[tuple[str, str]] = ()) -> PageAnswer:
    """A page that says one thing."""
    return show(status, title, f"<h1>{escape(title)}</h1><p>{escape(text)}</p>", headers)


def send_to(location: str, headers: Sequence[tuple[str, str]] = ()) -> PageAnswer:
    """Send the browser elsewhere, with a GET."""
    # No character that could end the line, whoever wrote the address.
    location = quote(location, safe=string.punctuation)
    return PageAnswer(303, b"", [("location", location), ("cache-control", "no-store"), *headers])
