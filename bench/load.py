"""The load generator: a closed loop of raw bytes over a target's pipes, with k requests in flight.

Nothing is decoded while the clock runs, yet every answer is checked: one pattern demands that the token in the result
is the id of the request, and each id is taken off the list of open requests once. An answer the pattern does not know
is decoded, and must then be right. At most 64 requests of some 150 bytes are open, less than a pipe holds, so blocking
writes cannot lock up against a target that is writing too.
"""

from __future__ import annotations

import gc
import json
import os
import re
from dataclasses import dataclass
from itertools import islice
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from bench.echo_server import padding
from bench.process import TargetError, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.process import Running

    Match = Callable[[bytearray, int, int], re.Match[bytes] | None]

ANSWER = (
    rb'\{"jsonrpc":"2\.0","id":(\d+),"result":\{"content":\[\{(?:"type":"text",)?"text":"tok-\1-',
    rb'\{"result":\{"content":\[\{(?:"type":"text",)?"text":"tok-(\d+)-[^\n]*,"jsonrpc":"2\.0","id":\1\}',
)
"""How answers look with the id first and with the id last; FastMCP sorts the keys of content, the others do not."""


@dataclass(frozen=True, slots=True)
class Slice:
    """What one timed slice of one target measured."""

    rate: float
    """Calls per second."""
    p50: float
    p99: float
    """Latency in ms."""
    cpu: float
    """CPU of the target's own process, µs per call."""
    load: float
    """CPU of the load generator, µs per call."""


class Load:
    """Calls of the echo tool with one result size, `flight` at a time, on one target."""

    def __init__(self, target: Running, size: int, flight: int, *, id_last: bool = False) -> None:
        self._target = target
        self._size = size
        self._flight = flight
        call = b'"method":"tools/call","params":{"name":"%b","arguments":{"token":"tok-%%d-","size":%d}}'
        call %= target.echo.encode(), size
        self._request = b"{" + call + b',"jsonrpc":"2.0","id":%d}\n'
        if not id_last:
            self._request = b'{"jsonrpc":"2.0","id":%d,' + call + b"}\n"
        self._match = re.compile(ANSWER[id_last]).match
        self._buffer = bytearray(2 * size + (1 << 18))

    def check(self) -> None:
        """Make a few calls, `flight` at once, and compare every decoded result with what the server must say."""
        target = self._target
        with within(60, f"{target.name}: checking results of {self._size} bytes"):
            wanted = dict.fromkeys(islice(target.ids, self._flight + 1))
            target.write(b"".join(self._request % (n, n) for n in wanted))
            while wanted:
                message = json.loads(target.line())
                if "method" in message:
                    target.heard(message)
                    continue
                self._must_be_right(message)
                del wanted[message["id"]]

    def run(self, seconds: float) -> Slice:
        """Keep `flight` calls open for a while, then let the open ones end; the first few are not timed."""
        with within(seconds + 60, f"{self._target.name}: {self._flight} calls in flight"):
            self._loop(0, self._flight * 2)
            gc.collect()
            gc.disable()
            try:
                cpu, own = self._target.cpu(), process_time()
                begin = perf_counter()
                latencies, end = self._loop(begin + seconds, 0)
                cpu, own = self._target.cpu() - cpu, process_time() - own
            finally:
                gc.enable()
        count = len(latencies)
        latencies.sort()
        p50, p99 = (latencies[min(count - 1, count * percent // 100)] * 1e3 for percent in (50, 99))
        rate = count / (end - begin)
        return Slice(rate=rate, p50=p50, p99=p99, cpu=cpu / count * 1e6, load=own / count * 1e6)

    def _loop(self, until: float, least: int) -> tuple[list[float], float]:
        target, buffer, request, ids = self._target, self._buffer, self._request, self._target.ids
        match, view = self._match, memoryview(self._buffer)
        latencies: list[float] = []
        end = len(target.unread)
        view[:end] = target.unread
        now = perf_counter()
        opened = list(islice(ids, self._flight))
        sent = dict.fromkeys(opened, now)
        target.write(b"".join([request % (n, n) for n in opened]))
        while sent:
            count = os.readv(target.stdout, [view[end:]])
            if not count:
                raise target.gone() if end < len(buffer) else TargetError(f"{target.name}: an answer is too long")
            cut = buffer.rfind(b"\n", end, end + count) + 1
            end += count
            if not cut:
                continue
            now = perf_counter()
            done = answered(match, buffer, cut)
            if done is None:
                done = self._slowly(bytes(view[:cut]))
            try:
                latencies += [now - sent.pop(number) for number in done]
            except KeyError as error:
                raise TargetError(f"{target.name} answered request {error} twice, or nobody made it") from None
            if end > cut:
                buffer[: end - cut] = buffer[cut:end]
            end -= cut
            if now < until or len(latencies) < least:
                opened = list(islice(ids, len(done)))
                now = perf_counter()
                for number in opened:
                    sent[number] = now
                target.write(b"".join([request % (n, n) for n in opened]))
        target.unread = bytes(view[:end])
        return latencies, now

    def _slowly(self, lines: bytes) -> list[int]:
        numbers = []
        for line in lines.splitlines():
            message = json.loads(line)
            if "method" in message:
                self._target.heard(message)
            else:
                self._must_be_right(message)
                numbers.append(message["id"])
        return numbers

    def _must_be_right(self, message: dict[str, Any]) -> None:
        token = f"tok-{message.get('id')}-"
        expected = token + padding(self._size - len(token))[0]
        try:
            content = message["result"]["content"]
            right = len(content) == 1 and content[0]["type"] == "text" and content[0]["text"] == expected
        except (KeyError, TypeError, IndexError):
            right = False
        if not right:
            raise TargetError(f"{self._target.name} gave a wrong result of {self._size} bytes: {str(message)[:300]}")


def answered(match: Match, buffer: bytearray, cut: int) -> list[int] | None:
    """Return the ids of whole lines, or None if one of them does not fit the pattern."""
    numbers: list[int] = []
    start = 0
    while start < cut:
        found = match(buffer, start, cut)
        if not found:
            return None
        numbers.append(int(found[1]))
        start = buffer.find(b"\n", found.end(), cut) + 1
    return numbers
