"""What several verbs say of a gateway and its servers, in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muxway.cli.output import plural

if TYPE_CHECKING:
    from muxway.config import Config
    from muxway.library import Server


def holdings(server: Server) -> str:
    """What a server has: `17 tools, 4 prompts, 7 resources`."""
    return counted(len(server.tools), server.prompts, server.resources, server.resource_templates)


def counted(tools: int, prompts: int, resources: int, templates: int) -> str:
    """These numbers in words. Tools are always told, the rest if there is any."""
    more = {"prompt": prompts, "resource": resources, "resource template": templates}
    return ", ".join([plural(tools, "tool"), *(plural(count, noun) for noun, count in more.items() if count)])


def middlewares(config: Config) -> list[tuple[str, str]]:
    """The middlewares of the gateway, the outermost first: name, and what they stand around."""
    given = [(type(one).__name__, "everything") for one in config.middleware]
    return [*given, *((spec.use, ", ".join(spec.match) or "everything") for spec in config.gateway.middleware)]
