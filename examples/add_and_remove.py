"""Servers that come and go while the gateway runs; progress, cancellation and errors on the way."""

import asyncio
import sys

import muxway


def show(done: float, total: float | None, message: str | None) -> None:
    print(f"  {done:g} of {total:g}: {message}" if total else f"  {done:g}: {message}")


async def main() -> None:
    async with muxway.Gateway.open() as gateway:
        # The keys are those of the config file.
        server = await gateway.add("text", command=sys.executable, args=["-m", "muxway.demo.text"], callTimeout="10s")
        print(server.name, server.status, [tool.name for tool in server.tools])

        words = {"text": "one two three", "pause_ms": 10}
        print((await gateway.call("text.read_aloud", words, on_progress=show)).text)

        # Giving up here cancels the call at its server.
        try:
            async with asyncio.timeout(0.1):
                await gateway.call("text.read_aloud", {"text": "a b c", "pause_ms": 60_000})
        except TimeoutError:
            print("gave up")

        # A server that cannot be started is no exception: it has a status and a reason.
        broken = await gateway.add("broken", command=sys.executable, args=["-c", "raise SystemExit('no database')"])
        print(broken.status, "-", broken.error)

        await gateway.remove("text")
        try:
            await gateway.call("text.count", {"text": "gone"})
        except muxway.ToolNotFound as error:
            print(error.code, error)


if __name__ == "__main__":
    asyncio.run(main())
