"""A plain Python object as an MCP server: its public methods are the tools, no process is started."""

import asyncio
from typing import Literal

import muxway


class Shelf:
    """Books, in memory."""

    def __init__(self) -> None:
        self._books: dict[str, int] = {}

    def put(self, title: str, copies: int = 1) -> dict[str, int]:
        """Put a book on the shelf."""
        self._books[title] = self._books.get(title, 0) + copies
        return self._books

    async def find(self, word: str, case: Literal["exact", "any"] = "any") -> list[str]:
        """Find books by a word of the title."""
        if case == "exact":
            return [title for title in self._books if word in title]
        return [title for title in self._books if word.lower() in title.lower()]

    def burn(self, title: str) -> str:
        """Refuse to burn a book."""
        raise PermissionError(f"{title} stays")


async def main() -> None:
    async with muxway.Gateway.open() as gateway:
        await gateway.add("shelf", server=Shelf())
        for tool in gateway.tools():
            print(tool.name, list(tool.input_schema["properties"]))

        print((await gateway.call("shelf.put", {"title": "Emma", "copies": 2})).structured_content)
        print((await gateway.call("shelf.find", {"word": "em"})).structured_content)

        # An exception in a tool is a result that says so.
        result = await gateway.call("shelf.burn", {"title": "Emma"})
        print(result.is_error, result.text)


if __name__ == "__main__":
    asyncio.run(main())
