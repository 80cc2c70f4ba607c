"""The page on which somebody allows a program to use the gateway in their name. No script, no frame, one form."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from muxway.identity.client_registry import is_loopback_uri
from muxway.identity.sign_on import csrf_field
from muxway.identity.web_pages import show

if TYPE_CHECKING:
    from muxway.clients.pages import PageAnswer
    from muxway.identity.client_registry import OAuthClient
    from muxway.identity.sign_on import SignedOn


def consent_page(
    who: SignedOn, client: OAuthClient, redirect_uri: str, scopes: tuple[str, ...], resource: str, query: str
) -> PageAnswer:
    """Ask. `query` is what the program asked for, to be looked at again with the answer."""
    parts = urlsplit(redirect_uri)
    place = (
        f"<b>{escape(parts.netloc)}</b>" if parts.scheme == "https" else f"a program (<b>{escape(parts.scheme)}:</b>)"
    )
    if is_loopback_uri(redirect_uri):
        place = "a program on the computer in front of you"
    known = (
        f"It is described at <b>{escape(urlsplit(client.id).netloc)}</b>."
        if client.is_document
        else ("It has registered itself: nobody has checked its name.")
    )
    rows = "".join(f"<li><code>{escape(scope)}</code></li>" for scope in scopes)
    allowed = f", with</p><ul>{rows}</ul>" if rows else ".</p>"
    body = (
        "<header><h1>Allow this program?</h1>"
        f"<span class=soft>signed on as <b>{escape(who.user)}</b></span></header>"
        f"<section><h2>{escape(client.name or 'A program without a name')}</h2><p class=soft>{known}</p>"
        f"<p>It wants to use <b>{escape(resource)}</b> in your name{allowed}"
        f"<p>Your answer goes to {place}:</p><p class=soft>{escape(redirect_uri)}</p>"
        "<p>If you did not just ask for this yourself, say no.</p>"
        f"<form method=post action='authorize'>{csrf_field(who)}"
        f'<input type=hidden name=request value="{escape(query)}">'
        "<button class=go name=answer value=allow>Allow</button> <button name=answer value=deny>No</button></form>"
        "</section>"
    )
    return show(200, "Allow this program?", body)
