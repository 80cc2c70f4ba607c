"""What changes between two configurations, and what must be done about each server. Pure: nothing is done here.

A server whose process or connection depends on what changed is swapped; one of which only the gateway thinks
otherwise is adjusted. Whatever is not known to be harmless is a swap, so a setting that is added later is safe.
Nothing of a configuration needs a restart of muxway but `host` and `port`, which `muxway serve` says in its log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from muxway.config.model import ADJUSTABLE, CUSTOM_TOOL, GATEWAY, SERVER, VIEW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from muxway.config.fields import Section
    from muxway.config.model import Config, ServerConfig

Keys = tuple[str, ...]
"""What differs, as it is spelled in a file: `args`, `env.TOKEN`. Never a value: that may be a secret."""

_BY_NAME: Final = frozenset({"env", "headers"})
"""Of these it is told which entries differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What becomes of things that have names."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: Mapping[str, Keys] = field(default_factory=dict[str, Keys])

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a reload does. Servers that are off count as not there; the others are each in exactly one of five."""

    keep: tuple[str, ...] = ()
    """Servers that stay as they are. A change of `gateway` may still concern them."""
    start: tuple[str, ...] = ()
    """Servers that are new, or no longer off."""
    stop: tuple[str, ...] = ()
    """Servers that are gone, or off now."""
    swap: Mapping[str, Keys] = field(default_factory=dict[str, Keys])
    """Servers that get a new process or connection, and why."""
    adjust: Mapping[str, Keys] = field(default_factory=dict[str, Keys])
    """Servers that keep their process while the gateway treats them differently, and how."""
    reordered: bool = False
    """Whether servers or tools that stay stand in another order, which is that of the lists."""
    tools: Changes = field(default_factory=Changes)
    """Compound and composed tools."""
    views: Changes = field(default_factory=Changes)
    gateway: Keys = ()
    """Settings of muxway itself."""
    middleware: bool = False
    """Whether a chain written in Python has other middlewares."""
    modules: tuple[str, ...] = ()
    """Modules of middlewares that were edited, and are imported anew."""
    outdated: tuple[str, ...] = ()
    """Modules of installed packages that were edited. Only a restart of muxway takes them up."""

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return any(
            (self.start, self.stop, self.swap, self.adjust, self.reordered, self.tools, self.views, self.gateway)
        ) or bool(self.middleware or self.modules or self.outdated)

    def __str__(self) -> str:
        """All of it in one line, for the log."""
        if not self:
            return "nothing changes"
        return "; ".join(f"{what} {', '.join(items)}" for what, items in self._parts() if what != "keep")

    def lines(self) -> list[str]:
        """The same for people who want to look at it: one line for each thing, what stays included."""
        rows = [(what, item) for what, items in self._parts() for item in items]
        width = max((len(what) for what, _ in rows), default=0)
        return [f"{what:<{width}}  {item}" for what, item in rows]

    def document(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "changes": bool(self),
            "keep": [*self.keep],
            "start": [*self.start],
            "stop": [*self.stop],
            "swap": {name: [*keys] for name, keys in self.swap.items()},
            "adjust": {name: [*keys] for name, keys in self.adjust.items()},
            "reordered": self.reordered,
            "tools": _document(self.tools),
            "views": _document(self.views),
            "gateway": [*self.gateway],
            "middleware": self.middleware,
            "modules": [*self.modules],
            "outdated": [*self.outdated],
        }

    def _parts(self) -> Iterator[tuple[str, list[str]]]:
        """Each kind of thing to do that there is, with what it is done to."""
        parts: dict[str, Iterable[str]] = {
            "keep": self.keep,
            "start": self.start,
            "swap": map(_because, self.swap.items()),
            "adjust": map(_because, self.adjust.items()),
            "stop": self.stop,
            "reorder": ("lists",) if self.reordered else (),
        }
        for noun, changes in (("tool", self.tools), ("view", self.views)):
            parts[f"add {noun}"] = changes.added
            parts[f"change {noun}"] = map(_because, changes.changed.items())
            parts[f"remove {noun}"] = changes.removed
        parts["set"] = (f"gateway.{key}" for key in self.gateway)
        parts["change"] = ("middleware",) if self.middleware else ()
        parts["import"] = (f"module {name}, which was edited" for name in self.modules)
        parts["not import"] = (f"module {name}, which was edited: restart muxway" for name in self.outdated)
        return ((what, listed) for what, items in parts.items() if (listed := [*items]))


def plan(old: Config, new: Config) -> Plan:
    """What to do so that a gateway that runs `old` runs `new`."""
    before, after = _running(old), _running(new)
    both = [name for name in after if name in before]
    swap: dict[str, Keys] = {}
    adjust: dict[str, Keys] = {}
    for name in both:
        differing = _differing(before[name], after[name])
        if old.objects.get(name) is not new.objects.get(name):
            swap[name] = (*_spelled(SERVER, before[name], after[name], differing), "object")
        elif differing:
            kind = adjust if ADJUSTABLE.issuperset(differing) else swap
            kind[name] = _spelled(SERVER, before[name], after[name], differing)
    return Plan(
        keep=tuple(name for name in both if name not in swap and name not in adjust),
        start=tuple(name for name in after if name not in before),
        stop=tuple(name for name in before if name not in after),
        swap=swap,
        adjust=adjust,
        reordered=_reordered(before, after) or _reordered(old.tools, new.tools),
        tools=_changes(CUSTOM_TOOL, old.tools, new.tools),
        views=_changes(VIEW, old.views, new.views),
        gateway=_spelled(GATEWAY, old.gateway, new.gateway, _differing(old.gateway, new.gateway)),
        middleware=[*map(id, old.middleware)] != [*map(id, new.middleware)],
    )


def _running(config: Config) -> dict[str, ServerConfig]:
    return {name: server for name, server in config.servers.items() if server.enabled}


def _reordered(old: Mapping[str, object], new: Mapping[str, object]) -> bool:
    return [name for name in old if name in new] != [name for name in new if name in old]


def _changes(section: Section, old: Mapping[str, object], new: Mapping[str, object]) -> Changes:
    both = [(name, old[name], new[name]) for name in new if name in old]
    return Changes(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed={
            name: _spelled(section, before, after, differing)
            for name, before, after in both
            if (differing := _differing(before, after))
        },
    )


def _differing(old: Any, new: Any) -> list[str]:
    """The attributes in which two objects of one class differ, as far as these count for them."""
    return [
        item.name for item in fields(old) if item.compare and not same(getattr(old, item.name), getattr(new, item.name))
    ]


def same(old: Any, new: Any) -> bool:
    """Whether two values mean the same. To Python `1`, `1.0` and `True` do; to whoever wrote them they do not."""
    if type(old) is not type(new):
        return False
    if is_dataclass(old):
        return not _differing(old, new)
    if isinstance(old, Mapping):
        before, after = cast("Mapping[object, object]", old), cast("Mapping[object, object]", new)
        return before.keys() == after.keys() and all(same(value, after[key]) for key, value in before.items())
    if isinstance(old, list | tuple):
        items, others = cast("list[object]", old), cast("list[object]", new)
        return len(items) == len(others) and all(map(same, items, others))
    return old == new


def _spelled(section: Section, old: object, new: object, attributes: Sequence[str]) -> Keys:
    """The keys that stand for these attributes."""
    keys = {row.attribute: row.key for row in reversed(section.fields) if row.attribute is not None}
    spelled: list[str] = []
    # These change with what they stand in.
    for attribute in [one for one in attributes if one != "secrets"] or attributes:
        key = keys.get(attribute, attribute)
        if attribute in _BY_NAME:
            spelled += (f"{key}.{name}" for name in _differing_names(getattr(old, attribute), getattr(new, attribute)))
        else:
            spelled.append(key)
    return tuple(spelled)


def _differing_names(old: object, new: object) -> list[str]:
    before, after = cast("Mapping[str, str]", old), cast("Mapping[str, str]", new)
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _because(item: tuple[str, Keys]) -> str:
    name, keys = item
    return f"{name} ({', '.join(keys)})"


def _document(changes: Changes) -> dict[str, Any]:
    return {
        "added": [*changes.added],
        "removed": [*changes.removed],
        "changed": {name: [*keys] for name, keys in changes.changed.items()},
    }
