"""Why a tool is listed as it is, written down while the catalogs are made: `explain` tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.catalog.globs import Globs
    from muxway.catalog.shaping import Wanted


class Verdict(NamedTuple):
    """Whether something is shown, and because of what. One for all that the same key of the configuration decides."""

    shown: bool
    text: str
    """In words. `{item}` is what the key lists that means the tool, `{server}` the tool's server."""
    key: str | None = None
    """The key of the configuration that decided it."""
    names: Globs | None = None
    """What that key lists, if it is that the tool is among it."""

    def of(self, name: str, server: str) -> tuple[str, str | None]:
        """What it says of one tool: in words, and what of all that the key lists means it."""
        item = None if self.names is None else self.names.match(name)
        if item is None and self.shown and "{server}" in self.text:
            item = server
        named = "it" if item == name else repr(item)
        return self.text.format(item=named, server=repr(server)), item


class Reasons(NamedTuple):
    """All that the configuration says of one tool. Shared by tools of which it says the same."""

    verdict: Verdict
    exposed_as: str | None = None
    """What `exposedTools` calls it."""
    shapes: Sequence[Wanted] = ()
    """What it is shaped by, the last one above the others."""

    @property
    def shown(self) -> bool:
        """Whether it is shown."""
        return self.verdict.shown

    @property
    def named_by(self) -> Wanted | None:
        """The shape that gives it its name."""
        return next((shape for shape in reversed(self.shapes) if shape.name is not None), None)

    @property
    def name(self) -> str | None:
        """What the configuration calls it; None: nothing."""
        return self.exposed_as if self.named_by is None else self.named_by.name


def because(shown: bool, text: str, key: str | None = None, names: Globs | None = None) -> Reasons:
    """Reasons of tools that one key of the configuration decides about."""
    return Reasons(Verdict(shown, text, key, names))


UNTOUCHED: Final = because(True, "nothing hides it")
LEFT_OUT: Final = because(False, "it is left out: see the notes")
NOT_READ_ONLY: Final = because(
    False, "`readOnly` is set, and the tool does not say that it changes nothing", "readOnly"
)
READ_ONLY: Final = because(True, "it says that it changes nothing, as `readOnly` asks for", "readOnly")


class ReasonBook:
    """The reasons of one catalog, by server and the tool's own name. Where nothing was decided nothing is kept."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Reasons]] = {}

    def note(self, upstream: str, native: str, reasons: Reasons) -> None:
        """Write down why a tool is as it is."""
        self._of.setdefault(upstream, {})[native] = reasons

    def of(self, upstream: str, native: str) -> Reasons:
        """Why a tool is as it is."""
        known: Mapping[str, Reasons] = self._of.get(upstream, {})
        return known.get(native, UNTOUCHED)
