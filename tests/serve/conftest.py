"""A door to knock at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .harness import a_web

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from .harness import Web


@pytest.fixture
def web() -> Callable[..., AbstractAsyncContextManager[Web]]:
    return a_web
