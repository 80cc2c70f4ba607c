"""Work beside the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def in_own_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Do something in a thread that ends with it.

    One that stays, as those of the loop's own pool do, makes every later system call of the process dearer: with
    several threads, the kernel counts who uses a file.
    """
    pool = ThreadPoolExecutor(1)
    future = asyncio.get_running_loop().run_in_executor(pool, work)
    # What was given to it is done all the same.
    pool.shutdown(wait=False)
    return future
