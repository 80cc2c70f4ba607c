"""A registry on loopback, with records of our own: as the `/v0.1` API answers, or as badly as a test wants."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

OFFICIAL = "io.modelcontextprotocol.registry/official"


def record(
    name: str, version: str = "1.0.0", *, status: str = "active", latest: bool = True, **server: Any
) -> dict[str, Any]:
    """A record as the registry gives it."""
    standing = {"status": status, "isLatest": latest, "updatedAt": "2026-11-01T00:00:00Z"}
    description = server.pop("description", f"The {name.rpartition('/')[2]} of tests")
    return {
        "server": {"name": name, "version": version, "description": description, **server},
        "_meta": {OFFICIAL: standing},
    }


def package(kind: str, identifier: str, version: str | None = "1.0.0", **more: Any) -> dict[str, Any]:
    """A package as a record has it."""
    given = {"registryType": kind, "identifier": identifier, "transport": {"type": "stdio"}, **more}
    return given if version is None else {**given, "version": version}


def zipped(files: dict[str, str | bytes], *, links: dict[str, str] | None = None) -> bytes:
    """A zip with these files, and links."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o100755 << 16
            archive.writestr(info, text)
        for name, leads in (links or {}).items():
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o120777 << 16
            archive.writestr(info, leads)
    return out.getvalue()


class RegistryStub:
    """The registry; `records` and `files` may be changed while it runs."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.page = 2
        self.answer: Callable[[str, dict[str, str]], tuple[int, bytes] | None] = lambda _path, _words: None
        """Answers in the registry's place, if it gives anything."""
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = stub.reply(self.path)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def bundle(self, content: bytes, name: str = "x.mcpb", **more: Any) -> dict[str, Any]:
        """A package that is this bundle."""
        self.files[f"/{name}"] = content
        return package("mcpb", f"{self.url}/{name}", fileSha256=hashlib.sha256(content).hexdigest(), **more)

    def reply(self, address: str) -> tuple[int, bytes]:
        self.asked.append(address)
        parts = urlsplit(address)
        words = {key: values[0] for key, values in parse_qs(parts.query).items()}
        given = self.answer(parts.path, words)
        if given is not None:
            return given
        if parts.path in self.files:
            return 200, self.files[parts.path]
        status, document = self._document(parts.path, words)
        return status, json.dumps(document).encode()

    def _document(self, path: str, words: dict[str, str]) -> tuple[int, dict[str, Any]]:
        match path.removeprefix("/v0.1/").split("/"):
            case ["servers"]:
                return self._list(words)
            case ["servers", name, "versions", version]:
                for one in self.records:
                    is_wanted = one["_meta"][OFFICIAL]["isLatest"] if version == "latest" else False
                    if one["server"]["name"] == unquote(name) and (is_wanted or one["server"]["version"] == version):
                        return 200, one
        return 404, {"title": "Not Found", "status": 404, "detail": "Server not found"}

    def _list(self, words: dict[str, str]) -> tuple[int, dict[str, Any]]:
        search = words.get("search")
        if search is not None and len(search) < 3:
            return 422, {"title": "Unprocessable Entity", "status": 422, "detail": "search: length must be >= 3"}
        # Versions are sorted as text, and deleted ones are only told to those who ask what has changed.
        found = sorted(self.records, key=lambda one: (one["server"]["name"], one["server"]["version"]))
        if search is not None:
            found = [one for one in found if search in one["server"]["name"]]
        if "updated_since" in words:
            found = [one for one in found if one["_meta"][OFFICIAL]["updatedAt"] >= words["updated_since"]]
        else:
            found = [one for one in found if one["_meta"][OFFICIAL]["status"] != "deleted"]
        start = int(words.get("cursor", "0"))
        page = found[start : start + self.page]
        metadata: dict[str, Any] = {"count": len(page)}
        if start + self.page < len(found):
            metadata["nextCursor"] = str(start + self.page)
        return 200, {"servers": page, "metadata": metadata}
