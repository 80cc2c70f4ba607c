"""The HTTP server of the benchmark: `echo_server` behind one `POST /mcp`, standard library only.

    python http_echo_server.py PORT

A Streamable HTTP server of the handshake revisions that gives out no session ids and answers with JSON. Like its stdio
twin it is built not to be the bottleneck: one process, no header looked at but the length, one write per answer.
"""

from __future__ import annotations

import re
import select
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from echo_server import Server

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE).search


def responses(server: Server, data: bytes) -> tuple[bytes, bytes]:
    """Answer every whole request in `data`; return the answers and what is left over."""
    answers: list[bytes] = []
    while (cut := data.find(b"\r\n\r\n")) >= 0:
        length = LENGTH(data, 0, cut)
        end = cut + 4 + (int(length[1]) if length else 0)
        if len(data) < end:
            break
        if data.startswith(b"POST "):
            body = b"".join(server.answer([data[cut + 4 : end]]))
            kind = b"200 OK\r\ncontent-type: application/json" if body else b"202 Accepted"
        else:
            body, kind = b"", b"405 Method Not Allowed\r\nallow: POST"
        answers.append(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (kind, len(body), body))
        data = data[end:]
    return b"".join(answers), data


def main() -> None:
    """Serve until killed."""
    server = Server(1, id_last=False)
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=1024)
    clients: dict[int, tuple[socket.socket, bytes]] = {}
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    while True:
        for number, _ in poll.poll():
            if number == listener.fileno():
                client, _ = listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                clients[client.fileno()] = client, b""
                poll.register(client, select.EPOLLIN)
                continue
            client, rest = clients[number]
            try:
                data = client.recv(1 << 18)
                answers, rest = responses(server, rest + data)
                if answers:
                    client.sendall(answers)
            except ConnectionError:
                data = b""
            if data:
                clients[number] = client, rest
            else:
                del clients[number]
                client.close()


if __name__ == "__main__":
    main()
