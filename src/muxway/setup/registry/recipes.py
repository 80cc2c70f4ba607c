"""How a server of the registry becomes an entry of the config, once its user has answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from muxway.setup.registry.questions import as_text, check_references
from muxway.setup.registry.records import RegistryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from muxway.setup.registry.bundles import Bundle
    from muxway.setup.registry.questions import Answers, EntryText, Put, Question


class RecipeArgument(NamedTuple):
    """One argument of a program: a flag, a value, or both."""

    flag: str | None
    value: EntryText | None = None

    def words(self, answers: Answers, put: Put) -> list[str]:
        """What stands on the command line for it."""
        flag = [] if self.flag is None else [self.flag]
        if self.value is None:
            return flag
        return [word for value in self.value.fill(answers, put) for word in (*flag, value)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A server to be."""

    kind: str
    """The type of its package, or `remote`."""
    pinned: str
    """What was pinned, for people."""
    command: str = ""
    before: tuple[RecipeArgument, ...] = ()
    """Arguments of what runs the package."""
    package: tuple[str, ...] = ()
    arguments: tuple[RecipeArgument, ...] = ()
    env: Mapping[str, EntryText] = field(default_factory=dict[str, "EntryText"])
    transport: str = ""
    url: EntryText | None = None
    headers: Mapping[str, EntryText] = field(default_factory=dict[str, "EntryText"])
    bundle: Bundle | None = None

    @property
    def questions(self) -> dict[str, Question]:
        """What its user is asked, by name; what is asked twice counts once."""
        texts = [*([self.url] if self.url is not None else []), *self.headers.values(), *self.env.values()]
        texts += [one.value for one in (*self.before, *self.arguments) if one.value is not None]
        found: dict[str, Question] = {}
        for text in texts:
            for question in text.questions:
                known = found.setdefault(question.name, question)
                if known.secret is False and question.secret:
                    found[question.name] = question
        return found

    def entry(self, answers: Answers, put: Put, more: list[str]) -> dict[str, object]:
        """The entry.

        Args:
            answers: what the user said.
            put: how that is written.
            more: further arguments, by the user.

        Raises:
            RegistryError: it would be none.
        """
        if self.url is not None:
            if more:
                raise RegistryError("An address takes no arguments.")
            url = "".join(self.url.fill(answers, put))
            headers = {name: "".join(text.fill(answers, put)) for name, text in self.headers.items()}
            headers = {name: value for name, value in headers.items() if value}
            _check((url, *headers.values()))
            return {"type": self.transport, "url": url, **({"headers": headers} if headers else {})}
        env = {name: "".join(text.fill(answers, put)[:1]) for name, text in self.env.items()}
        env = {name: value for name, value in env.items() if value}
        words = [word for one in self.before for word in one.words(answers, put)]
        if self.kind == "oci":
            # By its name only: the value is not for everybody who can see the command line.
            words += [word for name in env for word in ("-e", name)]
        words += self.package
        words += [word for one in self.arguments for word in one.words(answers, put)]
        _check((*words, *env.values()))
        args = [*words, *more]
        return {"command": as_text(self.command), **({"args": args} if args else {}), **({"env": env} if env else {})}


def _check(texts: Iterable[str]) -> None:
    # When they are whole: of two parts, each harmless, one may be made.
    for text in texts:
        check_references(text)
