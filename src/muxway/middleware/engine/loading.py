"""From the configuration to middlewares: found by name, given their options, every problem named."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import sys
import typing
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from muxway import tracebacks
from muxway.config.expand import working_folder
from muxway.config.fields import snake_case
from muxway.config.plan import same
from muxway.config.report import nearest
from muxway.errors import ConfigError, Problem
from muxway.log import EventLog, printable
from muxway.middleware.engine import modules
from muxway.middleware.engine.base import ConfigPath, Middleware
from muxway.middleware.engine.functions import of_function
from muxway.middleware.engine.running import Layer
from muxway.middleware.engine.tools import is_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from muxway.config.middlewares import MiddlewareSpec
    from muxway.config.model import Config, ServerConfig, ViewConfig
    from muxway.middleware.engine.base import Request

BUILT_IN: Final = ("approve", "audit", "cache", "limit", "log", "redact", "retry", "secrets", "timeout", "truncate")
"""Each is a module of `middleware/builtin`, with one class of the same name."""
ENTRY_POINTS: Final = "muxway.middleware"
"""The entry point group of plug-ins."""

log = EventLog("middleware")


def layers_of_server(server: ServerConfig, whole: Iterable[Layer] = ()) -> list[Layer]:
    """The middlewares of one server; a view takes those that are `shared` from the whole. Raises ConfigError."""
    problems: list[Problem] = []
    layers = _layers(
        server.middleware, f"server {server.name}", server.secrets, _shared(whole), problems, [], server.name
    )
    _refuse(f'server "{server.name}"', problems)
    return layers


def layers_of(
    config: Config, view: ViewConfig | None = None, whole: Iterable[Layer] = (), before: Iterable[Layer] = ()
) -> list[Layer]:
    """Every middleware of a configuration: the gateway's outside, then those of the view, then each server's.

    A view has its own, because what one keeps, such as a cached list, must not show in another; but for those that are
    `shared`, which it takes from the layers of the whole gateway.

    Those that are specified as one `before` was are the same: what they count and remember stays.

    Raises:
        ConfigError: some cannot be used; lists every problem.
    """
    problems: list[Problem] = []
    secrets = frozenset[str]().union(*(server.secrets for server in config.servers.values()))
    secrets = secrets.union(*(one.secrets for one in config.views.values()))
    shared = _shared(whole)
    kept = [*before]
    layers = _layers(config.gateway.middleware, "the gateway", secrets, shared, problems, kept)
    if view is not None:
        layers += _layers(view.middleware, f"view {view.name}", secrets, {}, problems, kept)
    for server in config.servers.values():
        layers += _layers(server.middleware, f"server {server.name}", secrets, shared, problems, kept, server.name)
    _refuse(config.source or "configuration", problems)
    return layers


def _shared(whole: Iterable[Layer]) -> dict[str, Middleware]:
    return {layer.where: layer.middleware for layer in whole if layer.where and type(layer.middleware).shared}


def _refuse(source: str, problems: Sequence[Problem]) -> None:
    if problems:
        count = len(problems)
        lines = [f"{source}: {count} problem{'s' if count > 1 else ''}", *(f"  {problem}" for problem in problems)]
        raise ConfigError("invalid_schema", "\n".join(lines), tuple(problems))


def _layers(
    specs: Sequence[MiddlewareSpec],
    whose: str,
    secrets: frozenset[str],
    shared: Mapping[str, Middleware],
    problems: list[Problem],
    kept: list[Layer],
    server: str | None = None,
) -> list[Layer]:
    layers: list[Layer] = []
    for spec in specs:
        try:
            made = shared.get(spec.where) or _taken_over(kept, whose, spec) or _make(spec, secrets)
            layers.append(Layer(spec.use, made, matching(spec.match, server), spec.where, server, whose, spec))
        except _Unusable as error:
            problems.append(Problem(path=spec.where, message=printable(str(error)), line=spec.line))
    names = {layer.name for layer in layers}
    for layer in layers:
        for other in type(layer.middleware).excludes:
            if other in names:
                spec = next(spec for spec in specs if spec.use == layer.name)
                why = printable(f"{layer.name} and {other} exclude each other; keep one")
                problems.append(Problem(path=spec.where, message=why, line=spec.line))
    return layers


def _taken_over(kept: list[Layer], whose: str, spec: MiddlewareSpec) -> Middleware | None:
    """The middleware that was made of the same specification, if there is one that nobody has taken over yet."""
    for layer in kept:
        # A relative path among the options begins at the first of the folders.
        its = layer.spec is not None and layer.whose == whose and layer.spec.folders == spec.folders
        if its and same(layer.spec, spec):
            kept.remove(layer)
            return layer.middleware
    return None


class _Unusable(Exception):
    """A middleware cannot be made of this."""


def _failed(use: str, what: str, error: Exception) -> _Unusable:
    """Somebody else's code raised something while it was imported or made."""
    log.error(f"could not be {what}", middleware=use, error=f"{type(error).__name__}: {error}")
    tracebacks.tell(log, error)
    return _Unusable(f"{use} could not be {what}: {tracebacks.located(error)}")


def matching(globs: Sequence[str], server: str | None) -> Callable[[Request], bool] | None:
    """Which requests a middleware is for; None: all."""
    if not globs and server is None:
        return None

    def matches(request: Request) -> bool:
        if server is not None and request.server != server:
            return False
        # A caller may spell a tool in several ways; what counts is how it is listed.
        return not globs or is_named(request, globs)

    return matches


def _make(spec: MiddlewareSpec, secrets: frozenset[str]) -> Middleware:
    kind = _find(spec.use, spec.folders)
    given = {snake_case(key): value for key, value in spec.options.items()}
    wanted = {
        name: parameter
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    if "known_secrets" in wanted and "known_secrets" not in given:
        given["known_secrets"] = secrets
    hints = typing.get_type_hints(kind.__init__, include_extras=True)
    for name in given:
        if name not in wanted:
            known = ", ".join(name for name in wanted if name != "known_secrets") or "none"
            raise _Unusable(f"{spec.use} has no option `{name}`; its options are: {known}")
    for name, parameter in wanted.items():
        if parameter.default is inspect.Parameter.empty and name not in given:
            raise _Unusable(f"{spec.use} needs the option `{name}`")
    try:
        options = {name: _fitting(name, value, hints.get(name, Any)) for name, value in given.items()}
        if spec.folders:
            paths = {
                name: value for name, value in options.items() if hints.get(name) == ConfigPath and str(value).strip()
            }
            options |= {name: str(Path(spec.folders[0], Path(str(path)).expanduser())) for name, path in paths.items()}
        made = kind(**options)
    except ValueError as error:
        raise _Unusable(f"{spec.use}: {error}") from None
    except Exception as error:  # noqa: BLE001 - a plug-in's constructor is somebody else's code
        raise _failed(spec.use, "made", error) from None
    _refuse_idle(spec.use, made)
    return made


def _fitting(name: str, value: object, hint: object) -> object:
    try:
        return msgspec.convert(value, cast("type[Any]", hint))
    except msgspec.ValidationError as error:
        raise ValueError(f"the option `{name}` has the wrong type: {error}") from None


def _find(use: str, folders: Sequence[str]) -> type[Middleware]:
    if use in BUILT_IN:
        module = importlib.import_module(f"muxway.middleware.builtin.{use}")
        return getattr(module, use.capitalize())
    try:
        with modules.noted():
            thing = _import(use, folders) if ":" in use else _plug_in(use)
    except _Unusable:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a plug-in does when it is imported
        raise _failed(use, "imported", error) from None
    modules.note_installed(getattr(thing, "__module__", ""))
    if inspect.isclass(thing) and issubclass(thing, Middleware):
        return thing
    if isinstance(thing, FunctionType):
        try:
            return of_function(thing, use)
        except ValueError as error:
            raise _Unusable(str(error)) from None
    raise _Unusable(f"{use} is no middleware: it must be a subclass of muxway.Middleware, or a function")


def _refuse_idle(use: str, made: Middleware) -> None:
    """Raise _Unusable for one whose methods are no hooks: its author believes that they are called."""
    kind = type(made)
    hooks = {name for name, value in vars(Middleware).items() if isinstance(value, FunctionType) and name[0] != "_"}
    if any(getattr(kind, name) is not getattr(Middleware, name) or name in vars(made) for name in hooks):
        return
    methods = [name for name, value in vars(kind).items() if isinstance(value, FunctionType) and name != "__init__"]
    if not methods:
        return
    slips = (f"did you mean `{hook}` by `{name}`?" for name in methods if (hook := nearest(name, hooks)))
    hint = next(slips, f"hooks are: {', '.join(sorted(hooks))}")
    raise _Unusable(f"{use} has no hook, so it would do nothing; {hint}")


def _import(use: str, folders: Sequence[str]) -> object:
    module, _, name = use.partition(":")
    if "/" in module or module.endswith(".py") or module.startswith("."):
        own = Path(module).name.removesuffix(".py").lstrip(".")
        raise _Unusable(f"{use} names a file; write the module: {own}:{name}, with {own}.py beside the config")
    # As Python does for a script: what lies beside the configuration can be named. A client starts us anywhere.
    places = dict.fromkeys((*folders, str(working_folder())))
    sys.path += [place for place in places if place not in sys.path]
    try:
        thing: object = importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Of what the module itself imports, its own line says more.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        looked = " nor in ".join(places)
        raise _Unusable(f"{use}: there is no module {error.name}, neither in {looked}, nor installed") from None
    known = [key for key, value in vars(thing).items() if _may_be_one(value)]
    for part in name.split("."):
        thing = getattr(thing, part, None)
        if thing is None:
            near = nearest(name, known)
            hint = f"; did you mean {near}?" if near else f"; it has {', '.join(known)}" if known else ""
            raise _Unusable(f"{use}: the module {module} has no {name}{hint}")
    return thing


def _may_be_one(value: object) -> bool:
    if inspect.isclass(value):
        return issubclass(value, Middleware) and value is not Middleware
    return isinstance(value, FunctionType)


def _plug_in(use: str) -> object:
    found = {entry.name: entry for entry in _entry_points()}
    if use not in found:
        known = ", ".join(sorted({*BUILT_IN, *found}))
        raise _Unusable(f'there is no middleware "{use}"; known are: {known}; your own are written module:Class')
    return found[use].load()


def _entry_points() -> Iterable[importlib.metadata.EntryPoint]:
    return importlib.metadata.entry_points(group=ENTRY_POINTS)
