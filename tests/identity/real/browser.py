"""What a user and a browser do at a login page that asks nothing: follow every redirect, up to the client's own."""

from __future__ import annotations

import http.cookiejar
import urllib.error
import urllib.parse
import urllib.request


class _Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def visit(url: str, callback: str) -> dict[str, str]:
    """Log in, starting at a URL; what the callback gets."""
    jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    browser = urllib.request.build_opener(jar, _Stays())
    for _ in range(12):
        if url.startswith(callback):
            return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
        try:
            with browser.open(url, timeout=10) as page:
                raise RuntimeError(f"the login ended at a page: {page.read(500)!r}")
        except urllib.error.HTTPError as answer:
            with answer:
                if not 300 <= answer.code < 400:
                    raise RuntimeError(f"the login ended with {answer.code}: {answer.read(500)!r}") from None
                url = urllib.parse.urljoin(url, answer.headers["Location"])
    raise RuntimeError("the login goes in circles")
