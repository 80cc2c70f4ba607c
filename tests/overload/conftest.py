"""Doors to ask too much of, and what is logged about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from ..serve.harness import a_web

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from ..serve.harness import Web

    Logged = Callable[[str], list[dict[str, str]]]


@pytest.fixture
def web() -> Callable[..., AbstractAsyncContextManager[Web]]:
    return a_web


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Logged:
    """The facts of every log line about an event."""

    def lines(event: str) -> list[dict[str, str]]:
        said = [record.getMessage() for record in caplog.records]
        return [dict(re.findall(r"(\w+)=(\S+)", line)) for line in said if line.startswith(event)]

    return lines
