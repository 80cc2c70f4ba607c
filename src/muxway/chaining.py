"""A gateway in a few lines of Python: middleware, then servers.

    from muxway import chain

    async def only_reading(request, next):
        if "write" in request["params"].get("name", ""):
            return {"error": {"code": -32602, "message": "this gateway only reads"}}
        return await next(request)

    gateway = chain(only_reading).then(time=["uvx", "mcp-server-time"])

`muxway stdio that_file.py` serves it, `muxway serve`, `tools`, `call` and `check` work on it as on any configuration.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, cast

from muxway import tracebacks
from muxway.config import parse_config
from muxway.errors import ConfigError, Problem
from muxway.gateway import Gateway
from muxway.log import EventLog, printable
from muxway.middleware.engine import modules
from muxway.middleware.engine.base import Middleware
from muxway.middleware.engine.functions import of_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from muxway.config.model import Config
    from muxway.opening import OpeningGateway

log = EventLog("config")


class Chain:
    """Middleware around servers. Immutable: `then` makes a longer one."""

    def __init__(self, middleware: tuple[Middleware, ...], servers: Mapping[str, object], settings: Any) -> None:
        self._middleware = middleware
        self._servers = servers
        self._settings = settings

    def then(self, *middleware: Middleware | Callable[..., Any], **servers: object) -> Chain:
        """Go on to further middleware, or to servers.

        A server is what a configuration would have for it (a mapping), a URL, a command as a list of words, or an
        in-process server: an official-SDK server, or any object whose public methods are the tools.
        """
        return Chain((*self._middleware, *map(_middleware, middleware)), {**self._servers, **servers}, self._settings)

    @property
    def config(self) -> Config:
        """All of it as a configuration. Raises ConfigError."""
        entries: dict[str, object] = {}
        objects: dict[str, object] = {}
        for name, server in self._servers.items():
            entry = _entry(server)
            if entry is None:
                objects[name] = server
                entry = {"command": "(in-process)"}
            entries[name] = entry
        if not entries:
            raise ConfigError("invalid_schema", "the chain leads nowhere: end it with .then(name=server)")
        config = parse_config({"mcpServers": entries, "gateway": self._settings})
        return replace(config, objects=objects, middleware=self._middleware)

    def open(self) -> OpeningGateway[Gateway]:
        """The gateway of this chain, started: `async with chain.open() as gateway`. Raises ConfigError."""
        return Gateway.open(self.config)


def chain(*middleware: Middleware | Callable[..., Any], **settings: Any) -> Chain:
    """Begin a chain with middleware, the outermost first; the settings are those of `gateway` in a configuration."""
    return Chain(tuple(map(_middleware, middleware)), {}, settings)


def _middleware(given: Middleware | Callable[..., Any]) -> Middleware:
    if isinstance(given, Middleware):
        return given
    if inspect.isclass(given) and issubclass(given, Middleware):
        return given()
    if isinstance(given, FunctionType):
        return of_function(given, given.__name__)()
    if not callable(given):
        what = _what(given)
        raise TypeError(f"{what} is no middleware. If it is a server give it a name: .then(name={what})")
    raise TypeError(f"{given!r} is no middleware: give a Middleware, or a function (metadata, next) or (request, next)")


def _what(given: object) -> str:
    """A server in place of a middleware, as it may be shown: without what is inside, which may be a secret."""
    match given:
        case str():
            return '"…"'
        case list() | tuple():
            return "[…]"
        case dict():
            return "{…}"
        case _:
            return f"{type(given).__name__}(…)"


def _entry(server: object) -> dict[str, object] | None:
    """What a configuration would have for a server; None for one in this process."""
    if isinstance(server, str):
        return {"url": server} if "://" in server else {"command": server}
    if isinstance(server, (list, tuple)):
        command, *args = cast("list[object]", server)
        return {"command": command, "args": args}
    return cast("dict[str, object]", server) if isinstance(server, dict) else None


class _AsItIs(SourceFileLoader):
    """Reads the file each time. What Python keeps compiled is compared to the second, and a reload may come sooner."""

    def get_code(self, fullname: str) -> CodeType:
        """The file's code, compiled."""
        return self.source_to_code(self.get_data(self.path), self.get_filename(fullname))


def load_chain(path: Path) -> Config:
    """The configuration of the chain that a Python file defines.

    Raises:
        ConfigError: the file fails, or defines no chain, or several none of which is called `gateway`.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path, loader=_AsItIs(path.stem, str(path)))
    if spec is None or spec.loader is None:
        raise _problem(path, "cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    # As Python does for a script: what lies beside it can be imported.
    beside = str(path.resolve().parent)
    if beside not in sys.path:
        sys.path.insert(0, beside)
    sys.modules.setdefault(path.stem, module)
    try:
        # What it imports of the user's own may have been edited since the last time.
        with modules.renewed(), modules.noted():
            spec.loader.exec_module(module)
    except Exception as error:
        log.error("chain file failed", file=path, error=f"{type(error).__name__}: {error}")
        tracebacks.tell(log, error)
        line = tracebacks.line_in(error, path)
        raise _problem(path, f"failed with {tracebacks.located(error)}", line) from error
    chains = {name: value for name, value in vars(module).items() if isinstance(value, Chain)}
    found = chains.get("gateway") or (next(iter(chains.values())) if len(chains) == 1 else None)
    if found is None:
        several = f"defines several chains ({', '.join(chains)}); call the one to serve `gateway`"
        raise _problem(path, several if chains else "defines no chain: see muxway.chain")
    return replace(found.config, source=str(path))


def _problem(path: Path, what: str, line: int | None = None) -> ConfigError:
    message = printable(f"{path.name} {what}")
    return ConfigError("invalid_schema", message, (Problem(path=str(path), message=message, line=line),))
