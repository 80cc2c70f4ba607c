"""What was said, with a name in place of each thing that differs from run to run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import muxway

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBERED = re.compile(r'("(?:id|requestId|progressToken|io\.modelcontextprotocol/subscriptionId)":\s?)(\d+)(?=[,}\s])')
"""Ids that the gateway made. All others here are strings."""
_WORDED = (
    ("state", re.compile(r'("requestState":\s?")([^"]{40,})(?=")')),
    ("task", re.compile(r'("taskId":\s?")([^"]{20,})(?=")')),
    ("session", re.compile(r"(mcp-session-id:\s?)(\S{12,})", re.IGNORECASE)),
    ("session", re.compile(r"((?:session_?id|session)=)([\w-]{12,})", re.IGNORECASE)),
    ("event", re.compile(r"((?:^|\n)id:\s?)(\S+)")),
    ("event", re.compile(r"(last-event-id:\s?)(\S+)", re.IGNORECASE)),
)
"""Tokens that are told apart: the same one has the same name wherever it comes up."""
_PASSING = (
    (re.compile(r"((?:^|\n)date:\s?)([^\r\n]+)", re.IGNORECASE), "<date>"),
    (re.compile(r"((?:^|\n)content-length:\s?)(\d+)", re.IGNORECASE), "<right>"),
    (re.compile(r"(127\.0\.0\.1:)(\d+)"), "<port>"),
    (re.compile(r'("(?:createdAt|lastUpdatedAt)":\s?")([^"]+)(?=")'), "<date>"),
    (re.compile(r'("retryAfterMs":\s?)(\d+)'), "<ms>"),
    (re.compile(r'("ttlMs":\s?)(\d{6,})'), "<ms left>"),
    (re.compile(r'("incident":\s?")([^"]+)(?=")'), "<incident>"),
    (re.compile(rf'((?:"version":\s?"|muxway/))({re.escape(muxway.__version__)})(?="|\s|$)'), "<version>"),
)


class Transcript:
    """A conversation as it is stored."""

    def __init__(self, title: str) -> None:
        self._lines = [f"# {title}"]
        self._names: dict[tuple[str, str], str] = {}

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def remark(self, text: str) -> None:
        """Something that happened."""
        self._lines += ["", f"-- {text}"]

    def said(self, speaker: str, listener: str, data: bytes) -> None:
        """Somebody said this; line ends of HTTP are shown as line ends."""
        peer = listener if speaker == "gateway" else speaker
        text = data.decode().replace("\r\n", "\n").rstrip("\n")
        text = _NUMBERED.sub(self._name("id", peer), text)
        for kind, pattern in _WORDED:
            text = pattern.sub(self._name(kind, ""), text)
        for pattern, name in _PASSING:
            text = pattern.sub(rf"\g<1>{name}", text)
        self._lines += ["", f"{speaker} → {listener}", *(f"    {line}".rstrip() for line in text.split("\n"))]

    def _name(self, kind: str, peer: str) -> Callable[[re.Match[str]], str]:
        def named(found: re.Match[str]) -> str:
            known = sum(key[0] == f"{kind} {peer}" for key in self._names)
            return found[1] + self._names.setdefault((f"{kind} {peer}", found[2]), f"<{kind} {known + 1}>")

        return named
