"""JMESPath with an end: an expression over a server's result may take so many steps and no more.

The result's size is the server's choice, the expression is the user's, and Python has no way to stop a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import jmespath
from jmespath.visitor import TreeInterpreter

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_STEPS: Final = 2_000_000
"""Nodes that are visited, and items of lists that are made: a few seconds."""


class TooMuch(Exception):
    """An expression over this result takes too long."""


class _CountingInterpreter(TreeInterpreter):
    def __init__(self) -> None:
        super().__init__()
        self._left = MOST_STEPS

    def visit(self, node: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        made: object = cast("Any", super()).visit(node, *args, **kwargs)
        self._left -= 1 + (len(cast("list[Any]", made)) if isinstance(made, list) else 0)
        if self._left < 0:
            raise TooMuch(f"the expression takes more than {MOST_STEPS:,} steps over it")
        return cast("Any", made)


def pick(expression: str, data: Any) -> Any:
    """What the expression gives. Raises `TooMuch`, and whatever JMESPath raises."""
    return _CountingInterpreter().visit(cast("Any", jmespath.compile(expression)).parsed, data)
