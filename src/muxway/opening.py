"""What `Gateway.open` gives: to be entered with `async with`, or awaited. Whoever tries else is told what to write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from types import TracebackType

_HOW = "write `async with {0} as gateway`, or `gateway = await {0}` and later `await gateway.close()`"


class _Closes(Protocol):
    async def close(self) -> None: ...


G = TypeVar("G", bound=_Closes)


class OpeningGateway(Generic[G]):
    """A gateway that is about to be started."""

    __slots__ = ("_begin", "_opened")

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, G]]) -> None:
        self._begin = begin
        self._opened: G | None = None

    def __await__(self) -> Generator[Any, Any, G]:
        return self._begin().__await__()

    async def __aenter__(self) -> G:
        self._opened = opened = await self._begin()
        return opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()

    def __enter__(self) -> NoReturn:
        how = _HOW.format("Gateway.open(...)")
        raise TypeError(f"a gateway is opened with `async with`: {how}; where nothing awaits, take muxway.SyncGateway")

    def __exit__(self, *_: object) -> None:
        """Never reached; `with` asks for it before it enters."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Gateway.open(...) is not a gateway yet, so it has no {name!r}: {_HOW.format('it')}")
