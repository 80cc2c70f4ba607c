"""What the two Python clients that answer questions share: their answers, and the walk through a plan's steps.

A step names one of the client's acts and its arguments. What came of it goes into the report, with everything heard in
the meantime: questions, log messages, progress, notices. Standard library only, because two environments import it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

POLL_SECONDS = 0.05
HANGING_SECONDS = 10

ROOT = "file:///project"
FILLED_IN = {"name": "Ann", "color": "red"}
SAID = "hi"


def plain(model: Any) -> dict[str, Any]:
    """What came over the wire, in its own spelling and without the model's defaults."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


def fill_in(schema: dict[str, Any]) -> dict[str, str]:
    return {field: FILLED_IN[field] for field in schema["properties"]}


class Heard:
    """Everything that came unasked, in order."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []

    def __call__(self, method: str, params: Any = None) -> None:
        self.all.append({"method": method, "params": params})

    def since(self, start: int, method: str) -> bool:
        """Whether there was such a notice after that moment."""
        return any(message["method"] == method for message in self.all[start:])


async def take(step: dict[str, Any], act: Callable[..., Awaitable[Any]], heard: Heard, report: dict[str, Any]) -> None:
    """Take one step, and whatever repeating and waiting belongs to it."""
    start, deadline = len(heard.all), time.monotonic() + step["seconds"]

    async def wait(reason: Any) -> None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {step['seconds']} s for {reason}")
        await asyncio.sleep(POLL_SECONDS)

    report["result"] = await act(**step["arguments"])
    while "expect" in step and (missing := set(step["expect"]) - {each["name"] for each in report["result"]}):
        await wait(missing)
        report["result"] = await act(**step["arguments"])
    while "until" in step and not heard.since(start, step["until"]):
        await wait(step["until"])


async def walk(
    steps: list[dict[str, Any]], acts: dict[str, Callable[..., Awaitable[Any]]], heard: Heard, errors: type[Exception]
) -> list[dict[str, Any]]:
    """Take the steps one after another; a failed one is reported and the next one taken."""
    reports: list[dict[str, Any]] = []
    for step in steps:
        start = len(heard.all)
        report: dict[str, Any] = {}
        try:
            # Only what hangs is cut off: an answer to a request that was given up confuses the older SDK.
            async with asyncio.timeout(step["seconds"] + HANGING_SECONDS):
                await take(step, acts[step["act"]], heard, report)
        except errors as error:
            code, message = (error.code, error.message) if hasattr(error, "code") else (error.error.code, str(error))
            report["error"] = {"code": code, "message": message}
        except Exception as error:  # noqa: BLE001 - reported; the test that reads this step fails
            report["error"] = {"code": None, "message": repr(error)}
        reports.append(report | {"heard": heard.all[start:]})
    return reports
