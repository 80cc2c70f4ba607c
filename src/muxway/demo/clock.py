"""Demo server of revision 2024-11-05: the time, here and elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from muxway.demo.serving import DemoServer, DemoTool, Run, ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

_ZONE = {"type": "string", "description": "IANA name (Asia/Tokyo), UTC, or an offset (+09:00)."}
_TIME = {"type": "string", "description": "Time of day, as 14:30."}


def _zone(name: object) -> tzinfo:
    if name == "UTC":
        return UTC  # known even on a machine without a time zone database
    try:
        return ZoneInfo(str(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    try:
        offset = datetime.strptime(str(name), "%z").tzinfo
    except ValueError:
        offset = None
    if offset is None:
        raise ToolError(f"unknown time zone {name}: use a name like Asia/Tokyo, UTC, or an offset like +09:00")
    return offset


def _now(arguments: Mapping[str, Any], _: Run) -> str:
    return datetime.now(_zone(arguments.get("timezone", "UTC"))).isoformat(timespec="seconds")


def _convert(arguments: Mapping[str, Any], _: Run) -> str:
    source, target = _zone(arguments["from"]), _zone(arguments["to"])
    try:
        clock = datetime.strptime(str(arguments["time"]), "%H:%M")  # noqa: DTZ007 - the zone is joined below
    except ValueError:
        raise ToolError(f"{arguments['time']} is no time of day: write it as 14:30") from None
    here = datetime.now(source).replace(hour=clock.hour, minute=clock.minute)
    there = here.astimezone(target)
    days = (there.date() - here.date()).days
    note = {1: ", the next day", -1: ", the day before"}.get(days, "")
    return f"{here:%H:%M} in {arguments['from']} is {there:%H:%M} in {arguments['to']}{note}"


TOOLS = {
    "now": DemoTool("Tell the time in a time zone (default UTC).", {"timezone": _ZONE}, (), _now),
    "convert": DemoTool(
        "Convert a time of day between two time zones.",
        {"time": _TIME, "from": _ZONE, "to": _ZONE},
        ("time", "from", "to"),
        _convert,
    ),
}

if __name__ == "__main__":
    DemoServer("clock", "2024-11-05", TOOLS).serve()
