"""muxway: one MCP endpoint in front of many MCP servers, for clients of every protocol revision.

Everything public is re-exported here and loaded on first use, so that `import muxway`
costs nothing to those who only want a part of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muxway.chaining import Chain, chain
    from muxway.config import Config, load_config, parse_config
    from muxway.errors import (
        ConfigError,
        InvalidParams,
        MuxwayError,
        Problem,
        RpcError,
        ToolNotFound,
        UnknownName,
        UpstreamError,
        UpstreamSaid,
    )
    from muxway.gateway import Gateway
    from muxway.middleware.engine.base import Middleware, Next, Outcome, Request, Result
    from muxway.results import (
        Prompt,
        PromptResult,
        Resource,
        ResourceResult,
        ResourceTemplate,
        Server,
        Tool,
        ToolResult,
    )
    from muxway.servers.state import Status
    from muxway.sync import SyncGateway

__version__ = "0.2.0"

__all__ = [
    "Chain",
    "Config",
    "ConfigError",
    "Gateway",
    "InvalidParams",
    "Middleware",
    "MuxwayError",
    "Next",
    "Outcome",
    "Problem",
    "Prompt",
    "PromptResult",
    "Request",
    "Resource",
    "ResourceResult",
    "ResourceTemplate",
    "Result",
    "RpcError",
    "Server",
    "Status",
    "SyncGateway",
    "Tool",
    "ToolNotFound",
    "ToolResult",
    "UnknownName",
    "UpstreamError",
    "UpstreamSaid",
    "__version__",
    "chain",
    "load_config",
    "parse_config",
]

_HOME = {
    "Gateway": "gateway",
    "Prompt": "results",
    "PromptResult": "results",
    "Resource": "results",
    "ResourceResult": "results",
    "ResourceTemplate": "results",
    "Server": "results",
    "Tool": "results",
    "ToolResult": "results",
    "Chain": "chaining",
    "chain": "chaining",
    "Middleware": "middleware.engine.base",
    "Next": "middleware.engine.base",
    "Request": "middleware.engine.base",
    "Outcome": "middleware.engine.base",
    "Result": "middleware.engine.base",
    "Config": "config",
    "load_config": "config",
    "parse_config": "config",
    "SyncGateway": "sync",
    "Status": "servers.state",
}


def __dir__() -> list[str]:
    # What this file needs itself is nothing to be offered; editors look at what Python puts into every module.
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'muxway' has no attribute {name!r}")
    return getattr(importlib.import_module(f"muxway.{_HOME.get(name, 'errors')}"), name)
