"""The HTTP client by itself, against a peer that writes raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import ssl
import zlib
from typing import TYPE_CHECKING

import pytest

from muxway.net.http_client import HttpClient
from muxway.net.http_errors import HttpTrouble
from muxway.net.http_line import HttpResponse

from ..certificates import Authority, shake_hands

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

OK = b"HTTP/1.1 200 OK\r\n"


class Peer:
    """Answers each request with the next of some bytes, and counts."""

    def __init__(self, *answers: bytes, close: bool = False) -> None:
        self.answers = list(answers)
        self.close = close
        self.connections = 0
        self.heads: list[bytes] = []
        self.bodies: list[int] = []
        self.speaking: list[asyncio.Task[None] | None] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Speak with one connection."""
        self.connections += 1
        self.speaking.append(asyncio.current_task())
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
                self.heads.append(head)
                self.bodies.append(len(await reader.readexactly(size)))
                writer.write(self.answers.pop(0))
                await writer.drain()
                if self.close:
                    break
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def asking(peer: Peer, path: str = "/mcp") -> AsyncIterator[tuple[HttpClient, str]]:
    """A client of this peer, and the URL to ask."""
    async with await asyncio.start_server(peer.serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}"
        client = HttpClient(url, {})
        try:
            yield client, url
        finally:
            await client.close()
            async with asyncio.timeout(30):
                await asyncio.gather(*filter(None, peer.speaking))


async def ask(client: HttpClient, url: str, body: bytes = b"{}") -> tuple[int, bytes]:
    """Post something; the status and the body of the answer."""
    async with asyncio.timeout(30), await client.request("POST", url, {}, body) as response:
        return response.status, await response.read(1 << 24)


def sized(body: bytes, *lines: bytes) -> bytes:
    """A whole answer."""
    return OK + b"".join(b"%b\r\n" % line for line in lines) + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def bare(data: bytes) -> bytes:
    """Deflated data without the header that it should have."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (sized(b"plain"), b"plain"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nch\r\n5;x=1\r\nunked\r\n0\r\nTrailer: x\r\n\r\n", b"chunked"),
        (sized(gzip.compress(b"z" * 900_000) + gzip.compress(b"!"), b"Content-Encoding: gzip"), b"z" * 900_000 + b"!"),
        (sized(zlib.compress(b"packed"), b"Content-Encoding: deflate"), b"packed"),
        (sized(bare(b"packed"), b"content-encoding: deflate"), b"packed"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + sized(b"late"), b"late"),
        (b"HTTP/1.1 200 OK\nContent-Length: 4\n\nbare", b"bare"),
    ],
    ids=["length", "chunks", "gzip", "deflate", "bare-deflate", "words-before", "bare-newlines"],
)
async def test_an_answer_is_read_and_its_connection_used_again(answer: bytes, body: bytes) -> None:
    """RFC 9112 §6 and §7, RFC 9110 §8.4.1 and §15.2."""
    peer = Peer(answer, answer)
    async with asking(peer) as (client, url):
        for _ in range(2):
            assert await ask(client, url) == (200, body)
    assert peer.connections == 1


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    """RFC 9112 §6.3, 8."""
    async with asking(Peer(OK + b"\r\nall that comes", close=True)) as (client, url):
        assert await ask(client, url) == (200, b"all that comes")


@pytest.mark.parametrize(
    "first",
    [sized(b"ok") + sized(b"evil"), sized(b"ok", b"Connection: close"), b"HTTP/1.0" + sized(b"ok")[8:]],
    ids=["two-answers", "close", "1.0"],
)
async def test_a_connection_is_not_used_again_if_the_server_does_not_mean_it(first: bytes) -> None:
    """RFC 9112 §9.3; what nobody asked for is no answer to the next request."""
    peer = Peer(first, sized(b"next"))
    async with asking(peer) as (client, url):
        assert await ask(client, url) == (200, b"ok")
        assert await ask(client, url) == (200, b"next")
    assert peer.connections == 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "closed the connection without an answer"),
        (b"SSH-2.0-x\r\n", "answered with something that is not HTTP"),
        (OK + b"Content-Length: 9\r\n\r\nhalf", "broke off in the middle of an answer"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "broke off in the middle of an answer"),
        (sized(gzip.compress(os.urandom(999))[:-9], b"Content-Encoding: gzip"), "broke off in the middle of an answer"),
        (sized(b"no gzip", b"Content-Encoding: gzip"), "broke off in the middle of an answer"),
        (OK + b"x: " + b"a" * 400_000, "answered with something that is not HTTP"),
        (OK + b"x: y\r\n" * 300 + b"\r\n", "answered with something that is not HTTP"),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx: " + b"a" * 400_000,
            "answered with something that is not HTTP",
        ),
    ],
    ids=["nothing", "ssh", "short", "cut", "gzip-cut", "no-gzip", "long-head", "many-fields", "long-trailer"],
)
async def test_what_is_no_answer_is_named(answer: bytes, why: str) -> None:
    """docs/behaviour.md#a-remote-server-errs: one bad answer ends its own request, with its reason."""
    async with asking(Peer(answer, close=True)) as (client, url):
        with pytest.raises(HttpTrouble) as failed:
            await ask(client, url)
    assert failed.value.what == why
    assert failed.value.broken


async def test_a_large_body_is_sent_whole() -> None:
    """RFC 9112 §6.2."""
    peer = Peer(sized(b"taken"), sized(b"again"))
    async with asking(peer) as (client, url):
        assert await ask(client, url, b"q" * 5_000_000) == (200, b"taken")
        assert await ask(client, url) == (200, b"again")
    assert peer.bodies == [5_000_000, 2]
    assert peer.connections == 1


async def test_what_is_harmless_is_sent_again_if_its_connection_was_closed_meanwhile() -> None:
    """RFC 9110 §9.2.2: a POST is not, as it may have been taken."""
    again = sized(b"again", b"Connection: close")
    peer = Peer(sized(b"first"), b"", again, sized(b"first"), b"")
    async with asking(peer) as (client, url):
        await ask(client, url)
        peer.close = True  # The next answer is that the connection ends.
        async with asyncio.timeout(30), await client.request("GET", url, {}) as response:
            assert await response.read(99) == b"again"
        peer.close = False
        await ask(client, url)
        peer.close = True
        with pytest.raises(HttpTrouble):
            await ask(client, url)


async def test_credentials_of_the_url_are_sent_as_a_header_and_never_in_the_target() -> None:
    """RFC 9110 §4.2.4, RFC 7617."""
    peer = Peer(sized(b""))
    async with asking(peer, "/mcp?x=%20y") as (_, url):
        client = HttpClient(url.replace("//", "//me:p%40ss@"), {})
        await ask(client, url.replace("//", "//me:p%40ss@"))
        await client.close()
    [head] = peer.heads
    assert head.startswith(b"POST /mcp?x=%20y HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAuthorization: Basic bWU6cEBzcw==\r\n" in head
    assert b"me:" not in head


class Tap:
    """A connection that gives a piece each time it is read on."""

    def __init__(self, piece: bytes) -> None:
        self.piece = piece
        self.given = 0
        self.response = HttpResponse(self)
        self.response.fields = [(b"content-encoding", b"gzip")]
        self.response.begin(200)

    def go_on(self) -> None:
        self.given += 1
        asyncio.get_running_loop().call_soon(self._give)

    def _give(self) -> None:
        self.response.put(self.piece)
        self.response.wake()

    def abort(self) -> None:
        raise AssertionError


async def test_a_compressed_body_that_is_read_slowly_is_not_kept_for_later() -> None:
    """What nobody has unpacked yet waits in the server's hands: in ours it would have no end."""
    tap = Tap(gzip.compress(b"") * 40_000)
    tap.go_on()
    reading = asyncio.ensure_future(tap.response.chunk())
    for _ in range(1000):
        await asyncio.sleep(0)
    assert tap.given == 2
    reading.cancel()


async def test_a_compressed_body_of_many_parts_leaves_others_their_turns() -> None:
    """RFC 1952 §2.2: members follow one another, and nothing need be in them."""
    parts = 1000
    tap = Tap(gzip.compress(b"") * parts + gzip.compress(b"x") * parts)
    tap.response.put(tap.piece)
    tap.response.received = True
    reading = asyncio.ensure_future(tap.response.read(parts))
    turns = 0
    while not reading.done():
        turns += 1
        await asyncio.sleep(0)
    assert reading.result() == b"x" * parts
    assert turns > parts


async def test_a_compressed_body_is_whole_wherever_it_is_cut() -> None:
    """What was unpacked and did not fit waits where no input shows it."""
    for size in range(256 * 1024 - 2, 256 * 1024 + 300, 7):
        tap = Tap(bare(b"z" * size))
        tap.response.fields = [(b"content-encoding", b"deflate")]
        tap.response.begin(200)
        tap.response.put(tap.piece)
        tap.response.received = True
        assert len(await tap.response.read(1 << 20)) == size


async def test_a_server_behind_a_proxy_that_speaks_before_it_is_asked_is_no_fault_of_ours(tmp_path: Path) -> None:
    """With TLS 1.2 its first words may come with the end of the handshake."""
    authority = Authority(tmp_path)
    shown = authority.server()
    shown.maximum_version = ssl.TLSVersion.TLSv1_2
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = shown.wrap_bio(incoming, outgoing, server_side=True)
        await shake_hands(tls, (incoming, outgoing), (reader, writer))
        tls.write(sized(b"unasked"))
        writer.write(outgoing.read())
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()

    async with await asyncio.start_server(lead, "127.0.0.1", 0) as proxy:
        place = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        client = HttpClient(f"https://{place}/mcp", {}, tls=authority.client(), proxy=f"http://{place}")
        with pytest.raises(HttpTrouble, match="reset the connection"):
            await ask(client, f"https://{place}/mcp")
        await client.close()
    assert faults == []


async def test_of_where_a_server_would_have_us_go_a_part_is_shown() -> None:
    """Ours: what it says ends up in the error of a call."""
    moved = b"HTTP/1.1 307 Moved\r\nLocation: http://%b/\r\nContent-Length: 0\r\n\r\n" % (b"a." * 20_000)
    async with asking(Peer(moved)) as (client, url):
        with pytest.raises(HttpTrouble, match="redirects to another origin") as told:
            await ask(client, url)
    assert len(told.value.what) < 1000
