"""How long users of a shared gateway wait who have no login at a server yet, and who have just made one.

    .venv/bin/python -m bench.logins

A provider and a server that wants its tokens run in this process, so what they take is in the figures.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time

ROUNDS = 200


async def _run() -> None:
    # The tests have a provider, a company and a browser that need no screen.
    from tests.identity.company import Browser
    from tests.identity.provider import Provider, running
    from tests.identity.team import URL_ELICITATION, team_at

    from muxway.cli.ending import settle_memory

    async with running(Provider()) as provider:
        began = time.perf_counter()
        async with team_at(provider) as team, Browser("ann") as browser:
            print(f"start with a server that wants a login   {1000 * (time.perf_counter() - began):8.1f} ms")
            # As the command does when it has started: else the worst call is one full collection of all that is loaded.
            settle_memory()
            first: list[tuple[float, float]] = []
            again: list[tuple[float, float]] = []
            for number in range(ROUNDS):
                for taken in (first, again):
                    began, cpu = time.perf_counter(), time.process_time()
                    assert (await team.call(f"user-{number % 50}-{number // 50}"))["isError"]
                    taken.append((1000 * (time.perf_counter() - began), 1000 * (time.process_time() - cpu)))
            for name, taken in (("first call without a login", first), ("later call without a login", again)):
                waited, spent = (sorted(column) for column in zip(*taken, strict=True))
                worst = int(len(taken) * 0.99)
                said = f"{statistics.median(waited):8.1f} ms, p99 {waited[worst]:.1f} ms"
                print(f"{name:<40} {said}; CPU {statistics.median(spent):.1f} ms, p99 {spent[worst]:.1f} ms")
            call = {"name": "guarded__who", "arguments": {}}
            await team.ask("ann", "tools/call", call, can=URL_ELICITATION)
            agreed = {**call, "inputResponses": {"muxway-login": {"action": "accept"}}}
            waiting = asyncio.create_task(team.ask("ann", "tools/call", agreed, can=URL_ELICITATION))
            await team.log_in(browser)
            began = time.perf_counter()
            assert (await waiting)["result"]["content"][0]["text"] == "ann"
            print(f"{'from the finished login to its call':<40} {1000 * (time.perf_counter() - began):8.1f} ms")


def main() -> None:
    """Measure, and print."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"XDG_DATA_HOME": f"{folder}/data", "XDG_CACHE_HOME": f"{folder}/cache"}
        asyncio.run(_run())


if __name__ == "__main__":
    main()
