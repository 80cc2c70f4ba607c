"""One object in front of many servers: open a config, list every tool, call any of them as `server.tool`.

python examples/library_usage.py [CONFIG]
"""

import asyncio
import sys
from pathlib import Path

import muxway

CONFIG = Path(__file__).parent / "servers.yaml"


async def main(config: Path) -> None:
    # Entering connects to all servers, side by side; leaving ends them.
    async with muxway.Gateway.open(config) as gateway:
        for server in gateway.servers():
            print(f"{server.name}: {server.status}", server.error or "")

        for tool in gateway.tools():
            print(f"  {tool.name}: {tool.description}")

        result = await gateway.call("clock.convert", {"time": "09:30", "from": "UTC", "to": "+09:00"})
        print(result.text)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if sys.argv[1:] else CONFIG))
