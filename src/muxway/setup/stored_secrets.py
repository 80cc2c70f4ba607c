"""Secrets of a server in the sealed store, and references to them in its entry.

Unlike a file of variables, this is for every place of an entry: headers, arguments and addresses, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muxway.config.report import as_list, as_mapping
from muxway.net.secret_store import is_name
from muxway.setup.clear_secrets import clear_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from muxway.net.secret_store import SecretStore


class NewSecrets:
    """Secrets that are going to be stored, each under a name that no other value has."""

    def __init__(self, store: SecretStore) -> None:
        self._store = store
        self.values: dict[str, str] = {}
        """By name. Those that are in the store already are among them."""

    def refer(self, server: str, key: str, value: str) -> str:
        """A reference to a secret of a server. Raises StoreError."""
        plain = f"{server}.{key}".replace("}", "_")
        plain = plain if is_name(plain) else f"secret.{len(self.values) + 1}"
        name, number = plain, 2
        while (self.values.get(name) or self._store.read(name) or value) != value:
            name, number = f"{plain}-{number}", number + 1
        self.values[name] = value
        return f"${{secret:{name}}}"

    def write(self) -> None:
        """Store them. Raises StoreError."""
        for name, value in self.values.items():
            if self._store.read(name) != value:
                self._store.write(name, value)


def stored(name: str, entry: Mapping[str, object], secrets: NewSecrets) -> tuple[dict[str, object], list[str]]:
    """The entry with references in place of the secrets that stand in clear in it, and where they stood.

    Raises:
        StoreError: the store cannot be read.
    """
    found = clear_secrets({str(key): value for key, value in entry.items()})
    # The longest first: one may be a part of another.
    references = {
        text: secrets.refer(name, place.removeprefix("env.").removeprefix("headers."), text)
        for place, text in sorted(found.items(), key=lambda item: -len(item[1]))
    }

    def replaced(value: Any) -> Any:
        mapping, listed = as_mapping(value), as_list(value)
        if mapping is not None:
            return {key: replaced(item) for key, item in mapping.items()}
        if listed is not None:
            return [replaced(item) for item in listed]
        if isinstance(value, str):
            for text, reference in references.items():
                if text in value:
                    return reference.join(map(replaced, value.split(text)))
        return value

    return replaced({**entry}), [*found]
