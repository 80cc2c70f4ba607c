"""A server on stdin and stdout that is somebody else's pipe: whatever it hears goes to a socket, and back.

So a test is the server, without being its process. When the other end hangs up, this crashes, with last words.
"""

import os
import select
import socket
import sys

with socket.socket(socket.AF_UNIX) as peer:
    peer.connect(sys.argv[1])
    while True:
        for ready in select.select([0, peer], [], [])[0]:
            if ready == 0:
                data = os.read(0, 65536)
                if not data:
                    sys.exit(0)
                peer.sendall(data)
            else:
                data = peer.recv(65536)
                if not data:
                    os.write(2, b"the disk is full\n")
                    os._exit(3)
                while data:
                    data = data[os.write(1, data) :]
