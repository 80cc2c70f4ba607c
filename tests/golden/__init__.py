"""What muxway says, byte for byte, on each of its usual walks.

A walk is a script: clients and servers speak in turn, and every message they hear is written down. The files under
`transcripts/` hold what was heard when they were last approved; `python -m tests.golden --write` writes them anew.
Nothing here knows a module of muxway: it is started by its command, and seen from outside only.
"""
