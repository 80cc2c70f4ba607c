"""Real clients and real servers with muxway between them.

peers.py       the foreign programs: versions, lock files, environments in `.envs/`
clients/       small scripts on each SDK: one plan in, one report out
servers/       small servers on either major version of the Python SDK
drive.py       runs a client against a server command, or against a URL
world.py       the servers with their data, and the gateway's configuration
serving.py     processes that listen: servers over HTTP, and `muxway serve`
tap.py         keeps a copy of what crosses a pipe
"""
