"""Configuration: any file people already have in, one typed `Config` out, or every problem at once.

    find_config ─► load_config ─► documents   file → plain data with lines (jsonc, TOML, YAML)
                   parse_config ─► load       find the servers in it, whatever the dialect
                                   servers    one entry → ServerConfig; values reads each kind, expand the variables
                                   report     collects problems; finish() raises ConfigError with all of them

`model` is the one table of keys; validation, `json_schema()` and `explain()` are made from it.
"""

from muxway.config.find import find_config
from muxway.config.load import load_config, parse_config, parse_server
from muxway.config.model import Config, CustomTool, Era, GatewaySettings, Separator, ServerConfig, SubTool, Transport
from muxway.config.schema import explain, json_schema
from muxway.config.shaping import ExposedTool

__all__ = [
    "Config",
    "CustomTool",
    "Era",
    "ExposedTool",
    "GatewaySettings",
    "Separator",
    "ServerConfig",
    "SubTool",
    "Transport",
    "explain",
    "find_config",
    "json_schema",
    "load_config",
    "parse_config",
    "parse_server",
]
