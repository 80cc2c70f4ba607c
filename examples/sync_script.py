"""A script without `await`: every call waits for its outcome."""

from pathlib import Path

from muxway import SyncGateway

CONFIG = Path(__file__).parent / "servers.yaml"


def main() -> None:
    with SyncGateway(CONFIG) as gateway:
        for text in ("Buy milk", "Call Ada"):
            gateway.call("notes.add", {"text": text})
        print(gateway.call("notes.list").structured_content)
        print(gateway.call("clock.now").text)


if __name__ == "__main__":
    main()
