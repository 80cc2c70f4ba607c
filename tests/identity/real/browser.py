"""What a user and a browser do at a login page: follow every redirect, up to the client's own, and say yes."""

from __future__ import annotations

import html
import http.cookiejar
import os
import re
import urllib.error
import urllib.parse
import urllib.request


class _Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def visit(url: str, callback: str) -> dict[str, str]:
    """Log in, starting at a URL; what the callback gets."""
    # As browsers do: what is for safe connections is for this machine, too.
    policy = http.cookiejar.DefaultCookiePolicy(secure_protocols=("http", "https"))
    jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar(policy))
    browser = urllib.request.build_opener(jar, _Stays())
    form: bytes | None = None
    for _ in range(12):
        if url.startswith(callback):
            return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
        try:
            with browser.open(url, form, timeout=10) as page:
                text = page.read().decode()
            login = re.search(r'<form id="kc-form-login"[^>]* action="([^"]+)"', text)
            if login is not None:
                name, _, password = os.environ["LOGIN"].partition(":")
                url, form = (
                    html.unescape(login[1]),
                    urllib.parse.urlencode([("username", name), ("password", password)]).encode(),
                )
                continue
            if "value=allow" not in text:
                raise RuntimeError(f"the login ended at a page: {text[:500]}")
            hidden = re.findall(r"type=hidden name=(\w+) value=[\"']([^\"']*)[\"']", text)
            form = urllib.parse.urlencode([*((k, html.unescape(v)) for k, v in hidden), ("answer", "allow")]).encode()
            url = url.partition("?")[0]
        except urllib.error.HTTPError as answer:
            with answer:
                if not 300 <= answer.code < 400:
                    raise RuntimeError(f"the login ended with {answer.code}: {answer.read()[-1500:]!r}") from None
                url, form = urllib.parse.urljoin(url, answer.headers["Location"]), None
    raise RuntimeError("the login goes in circles")
