"""The load generator over HTTP: so many clients in one process, each asking again as soon as it has its answer."""

from __future__ import annotations

import gc
import select
from contextlib import closing
from itertools import islice
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from bench.load import Slice
from bench.process import within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.http_client import Client


def run(clients: Sequence[Client], seconds: float) -> Slice:
    """Keep one call of each client open for a while, then let the open ones end; the first few are not timed."""
    target = clients[0].target
    with within(seconds + 60, f"{target.name}: {len(clients)} connections"):
        for client in clients:
            client.reconnect()
        loop(clients, 0)
        loop(clients, 0)
        gc.collect()
        gc.disable()
        try:
            cpu, own = target.cpu(), process_time()
            begin = perf_counter()
            latencies, end = loop(clients, begin + seconds)
            cpu, own = target.cpu() - cpu, process_time() - own
        finally:
            gc.enable()
    count = len(latencies)
    latencies.sort()
    p50, p99 = (latencies[min(count - 1, count * percent // 100)] * 1e3 for percent in (50, 99))
    rate = count / (end - begin)
    return Slice(rate=rate, p50=p50, p99=p99, cpu=cpu / count * 1e6, load=own / count * 1e6)


def loop(clients: Sequence[Client], until: float) -> tuple[list[float], float]:
    """Each client calls, and calls again while it is not late; return the latencies and when the last answer came."""
    waiting = {each.fileno(): (client, each) for client in clients for each in client.sockets}
    ids = clients[0].target.ids
    latencies: list[float] = []
    for client, number in zip(clients, list(islice(ids, len(clients))), strict=True):
        client.sent = perf_counter()
        client.send(number)
    under_way, now = len(clients), 0.0
    with closing(select.epoll()) as poll:
        for number in waiting:
            poll.register(number, select.EPOLLIN)
        # A single socket needs no poll: reading it waits.
        single = [(number, 0) for number in waiting] if len(waiting) == 1 else None
        while under_way:
            for number, _ in single or poll.poll():
                client, source = waiting[number]
                if not client.receive(source):
                    continue
                now = perf_counter()
                latencies.append(now - client.sent)
                if now < until:
                    client.sent = now
                    client.send(next(ids))
                else:
                    under_way -= 1
    return latencies, now
