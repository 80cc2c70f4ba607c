"""How help looks: summary, examples, then options with their defaults, in 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 80, "show_default": True}
"""click's settings for every command."""
_LONGEST_SENTENCE = 200


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Write the examples as they are, never wrapped: they are there to be copied."""
    with formatter.section("Examples"):
        for line in examples:
            formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class Verb(click.Command):
    """A command whose help shows examples first."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **keys: Any) -> None:
        super().__init__(*args, context_settings=SETTINGS, **keys)
        self._examples = examples

    def get_short_help_str(self, limit: int = 45) -> str:  # noqa: ARG002 - click's signature
        """Its first sentence, whole: what does not fit into the line goes on in the next."""
        return super().get_short_help_str(_LONGEST_SENTENCE)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        if self._examples:
            write_examples(formatter, self._examples)


class VerbWithParts(click.Group):
    """The same for a verb that does something by itself, and has verbs of its own."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **keys: Any) -> None:
        super().__init__(*args, context_settings=SETTINGS, invoke_without_command=True, **keys)
        self._examples = examples

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        write_examples(formatter, self._examples)
